//! Who may do what: API.md's role table, and a credential's reach.

use jiff::Timestamp;
use uuid::Uuid;

/// What a credential may do. `CLINIC_ADMIN`: everything below, the directory and credentials. `FRONT_DESK`: patients,
/// appointments and blocks, overbooking and reopening included. `INTEGRATION`: the same without overbooking and
/// reopening. `APPOINTMENT_REPLAY_OPERATOR`: reads the directory, availability, appointments and blocks.
/// `LEDGER_APPROVER`: reads the directory and availability. `PMS_WORKER`: nothing in this release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Role {
    /// Runs the directory and hands out credentials.
    ClinicAdmin,
    /// Books for patients.
    FrontDesk,
    /// A system that books.
    Integration,
    /// Looks into what failed and replays it.
    AppointmentReplayOperator,
    /// Signs off entries in a ledger.
    LedgerApprover,
    /// A worker inside a clinic's network.
    PmsWorker,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 6] = [
        Self::ClinicAdmin,
        Self::FrontDesk,
        Self::Integration,
        Self::AppointmentReplayOperator,
        Self::LedgerApprover,
        Self::PmsWorker,
    ];

    /// As it is written in JSON and SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClinicAdmin => "CLINIC_ADMIN",
            Self::FrontDesk => "FRONT_DESK",
            Self::Integration => "INTEGRATION",
            Self::AppointmentReplayOperator => "APPOINTMENT_REPLAY_OPERATOR",
            Self::LedgerApprover => "LEDGER_APPROVER",
            Self::PmsWorker => "PMS_WORKER",
        }
    }

    /// The role of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A row of the role table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Change the directory, credentials and connections.
    Administer,
    /// Read the directory and availability.
    ReadDirectory,
    /// Read and write patients.
    Patients,
    /// Read appointments and blocks.
    ReadAppointments,
    /// Book, move, cancel and the like.
    WriteAppointments,
    /// Overbook and reopen.
    Overrule,
}

impl Permission {
    /// Whether a role carries it: the columns of API.md's table.
    #[must_use]
    pub const fn granted_to(self, role: Role) -> bool {
        use Role::{AppointmentReplayOperator, ClinicAdmin, FrontDesk, Integration, LedgerApprover};
        match self {
            Self::Administer => matches!(role, ClinicAdmin),
            Self::ReadDirectory => {
                matches!(role, ClinicAdmin | FrontDesk | Integration | AppointmentReplayOperator | LedgerApprover)
            }
            Self::Patients | Self::WriteAppointments => matches!(role, ClinicAdmin | FrontDesk | Integration),
            Self::ReadAppointments => matches!(role, ClinicAdmin | FrontDesk | Integration | AppointmentReplayOperator),
            Self::Overrule => matches!(role, ClinicAdmin | FrontDesk),
        }
    }
}

/// A credential that has been proved: who is asking, and how far it reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The credential.
    pub credential_id: Uuid,
    /// The clinic group it belongs to. The tenant always comes from here, never from a request.
    pub tenant_id: Uuid,
    /// The person or system behind it.
    pub subject: String,
    /// What it may do.
    pub roles: Vec<Role>,
    /// The clinics it may touch; none stands for all of the group.
    pub clinic_ids: Option<Vec<Uuid>>,
}

impl Caller {
    /// Whether one of its roles carries the permission.
    #[must_use]
    pub fn may(&self, permission: Permission) -> bool {
        self.roles.iter().any(|role| permission.granted_to(*role))
    }

    /// Whether the clinic is within its reach, if the group has such a clinic at all.
    #[must_use]
    pub fn reaches(&self, clinic: Uuid) -> bool {
        self.clinic_ids.as_ref().is_none_or(|clinics| clinics.contains(&clinic))
    }
}

/// A credential as administrators see it: everything but its key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[schema(as = Credential)]
pub struct CredentialView {
    /// The credential's id.
    pub id: Uuid,
    /// What people call it.
    #[schema(example = "Front desk, Mitte")]
    pub name: String,
    /// The person or system behind it, as history and audit name it. Rules that need two persons compare it.
    #[schema(example = "person:paul.meier")]
    pub subject: String,
    /// What it may do.
    pub roles: Vec<Role>,
    /// Ids of the clinics it may touch; null: all of the group.
    pub clinic_ids: Option<Vec<Uuid>>,
    /// The subject of the credential that made it.
    #[schema(example = "person:nora.lindqvist")]
    pub created_by: String,
    /// When it was made, in UTC.
    pub created_at: Timestamp,
    /// Until when the key before the last rotation works, or worked, in UTC; null where there is none.
    pub previous_secret_until: Option<Timestamp>,
    /// When it was withdrawn, in UTC; null while it is in use.
    pub revoked_at: Option<Timestamp>,
}
