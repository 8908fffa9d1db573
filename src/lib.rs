//! Oncebook.

pub mod app;
pub mod bench;
pub mod clock;
pub mod command;
pub mod config;
pub mod conformance;
pub mod dev;
pub mod domain;
pub mod http;
pub mod store;
pub mod telemetry;
