//! availability
