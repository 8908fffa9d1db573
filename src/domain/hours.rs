//! hours
