//! Oncebook: a clinic appointment service in which **a command that arrives twice, at any boundary, changes an
//! appointment once**.
//!
//! # The one idea
//!
//! Every command is the same three steps:
//!
//! 1. **Look**: one read-only statement, so one snapshot: the credential, the stored answer of this key, every row the rule
//!    depends on. A stored answer ends the command here.
//! 2. **Decide**: a pure function from what was seen to a decision, which is data. A refusal is a decision too.
//! 3. **Commit**: one statement, so one transaction and one round trip: the appointment, its history, the key with its
//!    answer, the notification intents, the outbox and the audit row, all derived from the appointment's row.
//!
//! Whatever went stale between look and commit leaves nothing behind, and the command looks again until its deadline.
//! Nothing "in progress" is ever committed, so there is nothing to sweep after a crash.
//!
//! # A booking, from the socket to the row
//!
//! 1. [`http::listen`] takes the connection; [`http::edge`] gives the request its id and holds the flood limit;
//!    [`http::intake`] takes its body in; [`http::guard`] asks who is calling.
//! 2. [`http::appointments`] parses the body into [`command::book::Book`]; [`http::ask`] brings key and preconditions.
//! 3. [`command::run`] runs it in a task of its own: look (`store/look_new.sql`), [`command::admit`], the stored answer,
//!    [`command::registry`] for duplicates in this process, [`command::lanes`] for turns on a practitioner.
//! 4. [`command::book`] decides. What a visit's time must fit is [`domain::availability::check_time`], and nowhere else.
//! 5. [`store::commit`] writes (`store/insert.sql`). [`command::reply`] made the bytes; they are stored and sent as they are.
//!
//! # Where to change what
//!
//! | to change | go to |
//! |---|---|
//! | when a visit may be ("no same-day bookings at this clinic") | [`domain::availability::check_time`]; booking, moving and the offered slots all ask it. A setting it needs is a column of `clinics`, read by `store/look_new.sql` and `store/look_change.sql` into [`domain::availability::Rules`] |
//! | which status leads to which | [`command::transition`] |
//! | who may do what | [`domain::access`] |
//! | what makes two requests the same | the command's `fields`, and [`domain::fingerprint`] |
//! | what a patient is told, and when not | [`domain::notification`], [`domain::template`] |
//! | how long an answer replays | [`command::reply`] |
//! | an error's code, status or advice | [`domain::problem`] |
//! | the limits of duplicates | [`command::registry`]; of time: [`config`] |
//! | a new command | a file in `command/`, its handler in [`http`], its line in [`http::routes`], the codes of what it decides in [`http::openapi::codes`] |
//! | what the OpenAPI document says | the handler's and the fields' own comments; by rule, [`http::openapi`] |
//!
//! # The map
//!
//! | | |
//! |---|---|
//! | [`domain`] | pure: appointment, availability, fingerprint, problems, access. Knows nothing of the rest |
//! | [`store`] | SQL and nothing else, and the connections it runs on |
//! | [`command`] | look, decide, commit: the loop and one file for each thing one may ask for |
//! | [`http`] | REST: router, guards, extractors, one file for each resource |
//! | [`log`], [`relay`], [`consumer`] | from commit to effect: outbox → event log (a table, or Kafka) → inbox → handler |
//! | [`notify`] | what patients are told: words, senders, and what became of each; `docs/notifications.md` |
//! | [`changes`] | what a consumer keeps: the feed of changes |
//! | [`webhook`] | signed deliveries to endpoints outside, in order, retried for a day |
//! | [`outbound`], [`sealed`] | requests that may go to public addresses alone; secrets at rest |
//! | [`hint`] | wakes the background work of this process |
//! | [`janitor`], [`worker`] | what is done in the background, and the one loop that does it |
//! | [`pulse`], [`trace`] | how background work is doing; what led to what, across requests, relay and consumers |
//! | [`app`], [`serve`] | the parts put together; start and stop |
//! | [`dev`] | the one-command machine: a private Postgres, the demo group |
//! | [`keys`], [`healthcheck`] | two commands for whoever runs the service: API keys without the API; is the process alive |
//! | [`conformance`], [`bench`] | the black-box checks, the load |
//! | [`clock`], [`config`], [`telemetry`] | time and ids, knobs, names of metrics |
//!
//! Direction: `main → serve → http → app → command → store → domain`; reads go `http → store → domain`. SQL text only in
//! `store/`, axum only in `http/`, time and randomness only from `clock`, the environment only in `config`.
//! `tests/it/tidy.rs` holds it.

pub mod app;
pub mod bench;
pub mod changes;
pub mod clock;
pub mod command;
pub mod config;
pub mod conformance;
pub mod consumer;
pub mod dev;
pub mod domain;
pub mod healthcheck;
pub mod hint;
pub mod http;
pub mod janitor;
pub mod keys;
pub mod log;
pub mod notify;
pub mod outbound;
pub mod pulse;
pub mod relay;
pub mod sealed;
pub mod serve;
pub mod store;
pub mod telemetry;
pub mod trace;
pub mod webhook;
pub mod worker;
