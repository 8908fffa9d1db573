//! Credentials: `/v1/credentials`. A secret is in the answer that makes it and nowhere else, so making one takes no
//! `Idempotency-Key`: a stored reply would be a stored secret. Who lost the answer to a creation revokes what it made, or
//! rotates it. Who lost the answer to a rotation makes another credential while the old secret still works: a second rotation
//! would end that one, and keep the lost one.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use jiff::{SignedDuration, Timestamp};
use scoped_futures::ScopedFutureExt;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::ask::{Change, Nothing};
use super::directory::may_name;
use super::fields::{NAME, Name, Number};
use super::page::{Cursor, Page, PageParams};
use super::params::Ids;
use super::problem::Answered;
use super::reading::Reading;
use crate::app::App;
use crate::domain::access::{Caller, CredentialView, Role};
use crate::domain::api_key::NewKey;
use crate::domain::problem::{Code, Problem};
use crate::store::audit::AuditNote;
use crate::store::commit::Asker;
use crate::store::credentials_admin;

/// How long an old secret works after a rotation at the most: 30 days.
const LONGEST_KEPT: i32 = 30 * 24 * 60 * 60;

/// How long it works when the caller does not say: a day.
const USUALLY_KEPT: i32 = 24 * 60 * 60;

/// Routes of those who may administer: the reads.
pub fn reads() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// The same: the writes.
pub fn writes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(delete)).routes(routes!(rotate)).routes(routes!(revoke))
}

/// A credential to be made.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialFields {
    /// What people call the credential: 1 to 200 characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Front desk, Mitte")]
    name: Name<NAME>,
    /// The person or system behind it, as history and audit name it. Rules that need two persons compare it. 1 to 200
    /// characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "person:paul.meier")]
    subject: Name<NAME>,
    /// What it may do; at least one role, else 400.
    #[schema(min_items = 1)]
    roles: Vec<Role>,
    /// Ids of the clinics it may touch; the empty list: 400. Left out or null: all of the group, which only a
    /// credential for all clinics can give. More than the caller may touch: 403.
    #[schema(min_items = 1)]
    clinic_ids: Option<Vec<Uuid>>,
}

impl CredentialFields {
    fn credential(self, id: Uuid, caller: &Caller, now: Timestamp) -> Result<CredentialView, Problem> {
        let wanted = |pointer, what| Err(Problem::malformed(pointer, format!("At least one {what} is wanted.")));
        let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| self.roles.contains(role)).collect();
        if roles.is_empty() {
            return wanted("/roles", "role");
        }
        if self.clinic_ids.as_ref().is_some_and(Vec::is_empty) {
            return wanted("/clinic_ids", "clinic");
        }
        let clinic_ids = self.clinic_ids.map(|mut ids| {
            ids.sort_unstable();
            ids.dedup();
            ids
        });
        Ok(CredentialView {
            id,
            name: self.name.0,
            subject: self.subject.0,
            roles,
            clinic_ids,
            created_by: caller.subject.clone(),
            created_at: now,
            previous_secret_until: None,
            revoked_at: None,
        })
    }
}

/// A credential with its key, in the one answer that has it.
#[derive(Serialize, ToSchema)]
pub struct IssuedCredential {
    #[serde(flatten)]
    credential: CredentialView,
    /// The API key, in this answer only: keep it. Send it as `Authorization: Bearer …`.
    #[schema(example = "ob_0195f3c06b1e7d429a573f1c2e8d4b60_…")]
    api_key: String,
}

/// Makes a credential and shows its key, this once. Takes no `Idempotency-Key`: sent twice, it makes two. Where the
/// answer was lost, revoke the credential or rotate it.
#[utoipa::path(post, path = "/v1/credentials", operation_id = "create_credential", tag = "Credentials", request_body = CredentialFields, responses((status = 201, body = IssuedCredential)))]
pub async fn create(State(app): State<Arc<App>>, change: Change<CredentialFields>) -> Answered {
    let now = app.clock.now();
    let credential = &change.body.credential(app.ids.uuid(now), &change.asker.caller, now)?;
    match (&credential.clinic_ids, &change.asker.caller.clinic_ids) {
        (None, Some(_)) => return Err(Code::Forbidden.into()),
        (clinics, _) => may_name(&app, &change.asker.caller, clinics.as_deref().unwrap_or_default()).await?,
    }
    let key = NewKey::new(credential.id, &app.ids.secret());
    let (secret_hash, note) = (&key.secret_hash, &note(&app, "create_credential", &change.asker));
    app.insist(|connection| credentials_admin::create(connection, credential, secret_hash, note).scope_boxed()).await?;
    let issued = IssuedCredential { credential: credential.clone(), api_key: key.text };
    let location = [(header::LOCATION, format!("/v1/credentials/{}", credential.id))];
    Ok((StatusCode::CREATED, location, Json(issued)).into_response())
}

/// Lists credentials in the order they were made. Revoked ones are among them; a credential for some clinics sees only
/// those that are for no others. Follow `next` until it is null.
#[utoipa::path(get, path = "/v1/credentials", operation_id = "list_credentials", tag = "Credentials", params(PageParams), responses((status = 200, body = Page<CredentialView>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, PageParams>) -> Answered {
    let wanted = params.wanted()?;
    let after = wanted.after.as_ref().map(|cursor| Ok::<_, Problem>((cursor.instant()?, cursor.id))).transpose()?;
    let limit = wanted.rows();
    let rows =
        app.insist(|connection| credentials_admin::list(connection, &caller, after, limit).scope_boxed()).await?;
    let place = |row: &CredentialView| Cursor::at(row.created_at, row.id);
    Ok(Json(Page::of(rows, &wanted, place, |row| row)).into_response())
}

/// Reads a credential. Never with its key.
#[utoipa::path(get, path = "/v1/credentials/{id}", operation_id = "get_credential", tag = "Credentials", params(("id" = Uuid, Path)), responses((status = 200, body = CredentialView)))]
pub async fn get(Reading { app, ids: [id], caller, .. }: Reading<1>) -> Answered {
    Ok(Json(find(&app, &caller, id).await?).into_response())
}

/// A change of a credential's secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Seconds for which the key it has now goes on working, 0 to 2592000 (30 days); a day when left out. Else 400.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 2_592_000, default = 86_400, example = 3600)]
    keep_old_seconds: Option<Number<0, LONGEST_KEPT>>,
}

/// Gives a credential a new key and shows it, this once. The key it had until now works for a while; one from before an
/// earlier rotation ends at once. So who loses the answer while callers still use the old key makes another credential
/// instead of rotating again. A revoked credential: 409 `transition_not_allowed`.
#[utoipa::path(post, path = "/v1/credentials/{id}/rotate", operation_id = "rotate_credential", tag = "Credentials", params(("id" = Uuid, Path)), request_body = Rotation, responses((status = 200, body = IssuedCredential)))]
pub async fn rotate(State(app): State<Arc<App>>, change: Change<Rotation>, Ids([id]): Ids<1>) -> Answered {
    let Change { asker, body, .. } = change;
    find(&app, &asker.caller, id).await?;
    let key = NewKey::new(id, &app.ids.secret());
    let (secret_hash, note) = (&key.secret_hash, &note(&app, "rotate_credential", &asker));
    let kept = SignedDuration::from_secs(body.keep_old_seconds.map_or(USUALLY_KEPT, |Number(kept)| kept).into());
    let until = note.at.checked_add(kept).ok().filter(|until| *until > note.at);
    app.insist(|connection| credentials_admin::rotate(connection, id, secret_hash, until, note).scope_boxed()).await?;
    let credential = find(&app, &asker.caller, id).await?;
    if credential.revoked_at.is_some() {
        return Err(Problem::new(Code::TransitionNotAllowed, "The credential is revoked.").into());
    }
    Ok(Json(IssuedCredential { credential, api_key: key.text }).into_response())
}

/// Withdraws a credential. From its next request on it gets 401. Revoked already: 200, and nothing changes.
#[utoipa::path(post, path = "/v1/credentials/{id}/revoke", operation_id = "revoke_credential", tag = "Credentials", params(("id" = Uuid, Path)), responses((status = 200, body = CredentialView)))]
pub async fn revoke(State(app): State<Arc<App>>, change: Change<Nothing>, Ids([id]): Ids<1>) -> Answered {
    Ok(Json(withdraw(&app, &change.asker, id).await?).into_response())
}

/// Withdraws a credential as `revoke_credential` does, and answers without a body. From its next request on it gets
/// 401; it stays in the list.
#[utoipa::path(delete, path = "/v1/credentials/{id}", operation_id = "delete_credential", tag = "Credentials", params(("id" = Uuid, Path)), responses((status = 204)))]
pub async fn delete(State(app): State<Arc<App>>, change: Change<Nothing>, Ids([id]): Ids<1>) -> Answered {
    withdraw(&app, &change.asker, id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn withdraw(app: &App, asker: &Asker, id: Uuid) -> Result<CredentialView, Problem> {
    let note = &note(app, "revoke_credential", asker);
    app.insist(|connection| credentials_admin::revoke(connection, id, note).scope_boxed()).await?;
    find(app, &asker.caller, id).await
}

async fn find(app: &App, caller: &Caller, id: Uuid) -> Result<CredentialView, Problem> {
    let found = app.insist(|connection| credentials_admin::find(connection, caller, id).scope_boxed()).await?;
    found.ok_or_else(|| Code::NotFound.into())
}

fn note<'a>(app: &App, operation: &'static str, asker: &'a Asker) -> AuditNote<'a> {
    let at = app.clock.now();
    AuditNote { id: app.ids.uuid(at), at, operation, asker }
}
