//! The one-command machine.
