//! `dev.json`: what a developer, a test suite or a benchmark needs to know of a running machine (API.md, "Starting it").
//! It is there while the machine is ready. From a new start until then it waits under another name, keys and all, so
//! that whoever waits for the file never reads the last run's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::dev::private;

/// The file, field by field.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DevJson {
    /// Where the service answers, without a slash at the end.
    pub base_url: String,
    /// Its database.
    pub database_url: String,
    /// The simulated practice management system, once there is one.
    pub pms_url: Option<String>,
    /// A key for each part one may play.
    pub api_keys: ApiKeys,
    /// The demo group.
    pub tenant_id: Uuid,
    /// The demo clinic, in Europe/Berlin.
    pub clinic_id: Uuid,
    /// Another clinic of the group.
    pub other_clinic_id: Uuid,
    /// All of the group.
    pub practitioner_ids: Vec<Uuid>,
    /// Those of the demo clinic.
    pub operatory_ids: Vec<Uuid>,
    /// Those of the demo clinic: 15, 30 and 60 minutes.
    pub service_ids: Vec<Uuid>,
    /// All of the group.
    pub patient_ids: Vec<Uuid>,
}

/// Tokens for `Authorization: Bearer`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeys {
    /// `CLINIC_ADMIN`.
    pub admin: String,
    /// `FRONT_DESK` of the demo clinic alone.
    pub front_desk: String,
    /// `FRONT_DESK` of the other clinic alone.
    pub other_clinic: String,
    /// `INTEGRATION`.
    pub integration: String,
    /// `APPOINTMENT_REPLAY_OPERATOR`.
    pub operator: String,
    /// Another person in the same role.
    pub operator_2: String,
    /// `LEDGER_APPROVER`.
    pub ledger_approver: String,
    /// `PMS_WORKER` of the demo clinic alone.
    pub worker: String,
    /// `FRONT_DESK` of another group.
    pub other_tenant: String,
}

fn current(folder: &Path) -> PathBuf {
    folder.join("dev.json")
}

fn last(folder: &Path) -> PathBuf {
    folder.join("dev.json.last")
}

/// Puts the file of the last run aside and reads its keys; none where there is none that can be read.
pub(crate) fn set_aside(folder: &Path) -> Option<ApiKeys> {
    // Not there on a first start, nor after one that never got ready.
    drop(fs::rename(current(folder), last(folder)));
    let text = fs::read_to_string(last(folder)).ok()?;
    serde_json::from_str::<DevJson>(&text).ok().map(|record| record.api_keys)
}

/// Says that the machine is ready.
pub(crate) fn write(folder: &Path, record: &DevJson) -> Result<PathBuf> {
    let path = current(folder);
    let text = serde_json::to_string_pretty(record).context("dev.json has no form")?;
    private::write(&path, &(text + "\n"))?;
    drop(fs::remove_file(last(folder)));
    Ok(path)
}
