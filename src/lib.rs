//! Oncebook.
pub mod bench;
pub mod clock;
pub mod conformance;
pub mod dev;
pub mod domain;
pub mod healthcheck;
pub mod store;
