//! SQL and nothing else.

pub mod databases;
pub mod demo;
