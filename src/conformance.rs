//! The black-box checks.
