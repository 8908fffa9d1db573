//! Oncebook.

pub mod app;
pub mod bench;
pub mod clock;
pub mod command;
pub mod config;
pub mod conformance;
pub mod dev;
pub mod domain;
pub mod healthcheck;
pub mod http;
pub mod janitor;
pub mod keys;
pub mod store;
pub mod telemetry;
pub mod worker;
