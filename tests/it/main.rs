//! The trials: the real service on a real Postgres, treated as badly as a clinic's network and machines will treat it.
//!
//! One binary, one file a subject; the harness is `app.rs` and what it names. A trial ends with [`app::Trial::end`], which
//! fails it if anything was left at work or any promise about the rows is broken. Long versions: `soak.rs`.

mod aging;
mod app;
mod asyncapi;
#[cfg(feature = "kafka")]
mod broker;
mod clean;
mod client;
mod cluster;
mod columns;
mod constraints;
mod contract;
mod crash;
mod credentials;
mod event_plans;
mod events;
mod faults;
mod figures;
mod gateway;
mod ground;
mod held;
mod hold;
#[cfg(feature = "kafka")]
mod kafka;
mod keys;
mod log;
mod logs;
mod machine;
mod mailbox;
mod malformed;
mod model;
mod notify;
mod openapi;
mod plans;
mod process;
mod races;
mod reads;
mod repeats;
mod seals;
mod snapshot;
mod soak;
mod stop;
mod storm;
mod takeover;
mod terminal;
mod tidy;
mod traces;
mod trips;
mod trouble;
mod waits;
mod watch;
mod webhooks;
mod wire;
