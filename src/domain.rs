//! What a clinic means by an appointment. Pure: values in, values out; no I/O, no clock, no randomness.
pub mod availability;
pub mod hours;
pub mod time;
