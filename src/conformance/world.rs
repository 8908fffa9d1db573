//! What every case is handed: credentials, ids of its own, the database if there is one.

use std::sync::Arc;

use jiff::Timestamp;

use super::call::Client;
use super::case::{Need, Verdict, ensure, skip};
use super::database::Database;
use super::seen::Seen;
use super::{DevJson, Target};
use crate::clock::{Clock, Ids};

/// A credential of the demo group, by its name in `dev.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    Admin,
    FrontDesk,
    OtherClinic,
    Integration,
    Operator,
    LedgerApprover,
    Worker,
    OtherTenant,
}

/// The target of a run, and what the run keeps.
pub(super) struct World {
    target: Target,
    admin: Client,
    seen: Arc<Seen>,
    database: Option<Database>,
    clock: Clock,
    ids: Ids,
}

impl World {
    /// A world for this target; nothing is asked of it yet.
    pub(super) fn new(target: Target) -> anyhow::Result<Self> {
        let seen = Arc::new(Seen::default());
        let bases = [Some(&target.base_url), target.peer_base_url.as_ref()];
        let bases = bases.into_iter().flatten().map(|base| base.trim_end_matches('/').to_owned()).collect();
        let admin = Client::new(bases, &target.api_key, Arc::clone(&seen))?;
        let database = target.database_url.clone().map(Database::new);
        Ok(Self { target, admin, seen, database, clock: Clock::system(), ids: Ids::random() })
    }

    /// Why a case with this need cannot run, if it cannot.
    pub(super) fn lacks(&self, need: Need) -> Option<String> {
        match need {
            Need::Credentials if self.target.dev.is_none() => {
                Some("needs several credentials: give --dev-json".to_owned())
            }
            Need::Database if self.database.is_none() => Some("needs the database: give --database-url".to_owned()),
            Need::PlainHttp if !self.target.base_url.starts_with("http://") => {
                Some("writes its requests byte by byte: needs an http:// base URL".to_owned())
            }
            _ => None,
        }
    }

    /// The credential that may do everything in all clinics.
    pub(super) fn admin(&self) -> &Client {
        &self.admin
    }

    /// One of the demo group's credentials.
    pub(super) fn seat(&self, seat: Seat) -> Verdict<Client> {
        let keys = &self.dev()?.api_keys;
        let key = match seat {
            Seat::Admin => &keys.admin,
            Seat::FrontDesk => &keys.front_desk,
            Seat::OtherClinic => &keys.other_clinic,
            Seat::Integration => &keys.integration,
            Seat::Operator => &keys.operator,
            Seat::LedgerApprover => &keys.ledger_approver,
            Seat::Worker => &keys.worker,
            Seat::OtherTenant => &keys.other_tenant,
        };
        Ok(self.admin.with_key(key))
    }

    /// The demo group.
    pub(super) fn dev(&self) -> Verdict<&DevJson> {
        self.target.dev.as_ref().map_or_else(|| skip("needs --dev-json"), Ok)
    }

    /// The database, for cases that need it.
    pub(super) fn database(&self) -> Verdict<&Database> {
        self.database.as_ref().map_or_else(|| skip("needs --database-url"), Ok)
    }

    /// The database, for cases that count where they can.
    pub(super) fn database_if_any(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    /// An idempotency key nobody has used.
    pub(super) fn key(&self) -> String {
        format!("conformance-{}", self.id())
    }

    /// An id nobody has used.
    pub(super) fn id(&self) -> String {
        self.ids.uuid(self.now()).to_string()
    }

    /// Now, by this machine's clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A number below `bound`.
    pub(super) fn below(&self, bound: u64) -> usize {
        usize::try_from(self.ids.below(bound)).unwrap_or(0)
    }

    /// Fails if any answer so far broke what holds of every answer.
    pub(super) async fn noticed(&self) -> Verdict {
        self.seen.faults()?;
        self.documented().await
    }

    /// Fails if any answer so far is not in `/openapi.json`.
    pub(super) async fn documented(&self) -> Verdict {
        let document = self.admin.get("/openapi.json").send().await?;
        self.seen.undocumented(&document.is(200)?.json()?)
    }

    /// Fails if any answer so far lacked a header or was no proper problem.
    pub(super) fn well_formed(&self) -> Verdict {
        self.seen.faults()
    }

    /// A path's answer, which must be 200 and in time.
    pub(super) async fn promptly(&self, path: &str, at_most: std::time::Duration) -> Verdict {
        let answer = self.admin.get(path).send().await?;
        let came = format!("{} after {} ms", answer.status, answer.took.as_millis());
        ensure(answer.status == 200 && answer.took <= at_most, format!("{path}: 200 within {at_most:?}"), came)
    }
}
