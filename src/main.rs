//! Oncebook.
fn main() {}
