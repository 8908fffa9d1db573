//! The one table of routes: the router and the OpenAPI document are both made of it, so neither can have what the other has
//! not. Whoever adds a route says here of which kind it is and what its callers must be allowed to do (API.md, "Who may do
//! what"); guards, headers and documented problems follow.

use std::sync::Arc;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{
    appointments, availability, blocks, changes, commands, credentials, directory, explain, operations, webhooks,
};
use crate::app::App;
use crate::domain::access::Permission;

/// How a route's requests are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command under an `Idempotency-Key`; its own look checks the credential again, with the decision.
    Command,
    /// The command that needs no key, since what it removes stays removed; its look checks the credential again.
    Removal,
    /// Any other change. It needs no key; the credential is read anew before it.
    Change,
    /// A read; the credential, where one is needed, is read anew before it.
    Read,
    /// A read by what watches over the service. No flood limit: at the address of a busy proxy a load balancer would be
    /// refused with the proxy's callers, and take a process out for it.
    Probe,
}

impl Kind {
    /// Whether nothing is changed.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Probe)
    }
}

/// Routes that are taken in the same way.
pub struct Group {
    /// How.
    pub kind: Kind,
    /// What a caller must be allowed to do; none where anyone may, without a credential.
    pub permission: Option<Permission>,
    /// The routes, and what their handlers say of themselves.
    pub routes: OpenApiRouter<Arc<App>>,
}

/// The API's routes, each with the permission of API.md's role table.
#[must_use]
pub fn api() -> Vec<Group> {
    use Permission::{Administer, Overrule, Patients, ReadAppointments, ReadDirectory, WriteAppointments};
    let of = |kind, permission, routes| Group { kind, permission: Some(permission), routes };
    let new = OpenApiRouter::new;
    vec![
        of(
            Kind::Command,
            WriteAppointments,
            new()
                .routes(routes!(appointments::book))
                .routes(routes!(appointments::note))
                .routes(routes!(appointments::reschedule))
                .routes(routes!(appointments::confirm))
                .routes(routes!(appointments::check_in))
                .routes(routes!(appointments::complete))
                .routes(routes!(appointments::no_show))
                .routes(routes!(appointments::cancel))
                .routes(routes!(blocks::block)),
        ),
        of(Kind::Command, Overrule, new().routes(routes!(appointments::reopen))),
        of(Kind::Removal, WriteAppointments, new().routes(routes!(blocks::unblock))),
        of(
            Kind::Read,
            ReadAppointments,
            new()
                .routes(routes!(appointments::get))
                .routes(routes!(appointments::list))
                .routes(routes!(appointments::history))
                .routes(routes!(blocks::get))
                .routes(routes!(blocks::list))
                .routes(routes!(changes::list)),
        ),
        of(Kind::Read, ReadDirectory, new().routes(routes!(availability::get))),
        of(Kind::Read, WriteAppointments, new().routes(routes!(commands::get))),
        of(Kind::Read, ReadDirectory, directory::reads()),
        of(Kind::Change, Administer, directory::writes()),
        of(Kind::Read, Patients, directory::patient_reads()),
        of(Kind::Change, Patients, directory::patient_writes()),
        of(Kind::Read, Administer, credentials::reads()),
        of(Kind::Change, Administer, credentials::writes()),
        of(Kind::Command, Administer, webhooks::commands()),
        of(Kind::Read, Administer, webhooks::reads()),
        of(Kind::Change, Administer, webhooks::writes()),
    ]
}

/// What anyone may ask, without a credential.
#[must_use]
pub fn open() -> Group {
    let routes = OpenApiRouter::new().routes(routes!(explain::index)).routes(routes!(explain::explain));
    Group { kind: Kind::Read, permission: None, routes }
}

/// What every listener answers.
#[must_use]
pub fn health() -> Group {
    let routes = OpenApiRouter::new().routes(routes!(operations::healthz));
    Group { kind: Kind::Probe, permission: None, routes }
}

/// What only those who run the service should reach.
#[must_use]
pub fn admin() -> Group {
    let routes = OpenApiRouter::new().routes(routes!(operations::readyz)).routes(routes!(operations::metrics));
    Group { kind: Kind::Probe, permission: None, routes }
}
