//! What a clinic means by an appointment. Pure: values in, values out; no I/O, no clock, no randomness.

pub mod access;
pub mod address;
pub mod api_key;
pub mod appointment;
pub mod availability;
pub mod calendar;
pub mod cloud_event;
pub mod directory;
pub mod event;
pub mod fingerprint;
pub mod hours;
pub mod key;
pub mod notification;
pub mod problem;
pub mod refusal;
pub mod template;
pub mod time;
pub mod webhook;
