//! The one-command machine.

mod account;
pub mod binaries;
pub mod cluster;
mod leftover;
mod lock;
mod private;
mod server;
