//! The load.
