//! Webhook endpoints: `/v1/webhook-endpoints`. Creating one takes an `Idempotency-Key`, and its answer is stored: so the
//! answer has no secret in it, which has a read of its own. It is sealed wherever it is kept.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use jiff::{SignedDuration, Timestamp};
use scoped_futures::ScopedFutureExt;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::ask::{Ask, Change, Nothing, execute_of_group};
use super::edge::RequestIds;
use super::fields::{NAME, Number, Text};
use super::guard::SignedIn;
use super::page::{Cursor, Page, PageParams};
use super::params::Ids;
use super::problem::Answered;
use super::reading::Reading;
use crate::app::App;
use crate::command::group::GroupCommand;
use crate::command::reply::etag;
use crate::domain::access::Caller;
use crate::domain::problem::{Code, Problem};
use crate::domain::webhook::{
    Endpoint, EndpointView, LONGEST_URL, SecretView, is_event_type, secret_belongs_to, show_secret,
};
use crate::store::audit::AuditNote;
use crate::store::commit::Asker;
use crate::store::webhooks;

pub mod deliveries;

/// How long an old secret signs after a rotation at the most: 30 days.
const LONGEST_KEPT: i32 = 30 * 24 * 60 * 60;

/// How long it does when the caller does not say: a day.
const USUALLY_KEPT: i32 = 24 * 60 * 60;

/// Routes of those who may administer: the commands.
pub fn commands() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(deliveries::redeliver))
}

/// The same: the reads.
pub fn reads() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(secret))
        .routes(routes!(deliveries::list))
}

/// The same: the other changes.
pub fn writes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(put)).routes(routes!(delete)).routes(routes!(rotate))
}

/// An endpoint as it is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointFields {
    /// Where events are to be sent: an absolute `https` URL of at most 2048 bytes with a name or a public address, port 443
    /// or one of 1024 and more, no user, no password and no fragment; else 400. A name that resolves to private addresses
    /// only: 400 too. It is looked at again with every connection.
    #[schema(format = "uri", max_length = 2048, example = "https://hooks.example.org/oncebook")]
    url: String,
    /// For people: at most 200 characters; may be left out.
    #[schema(value_type = Option<String>, max_length = 200, example = "Waiting room screen")]
    description: Option<Text<NAME>>,
    /// Ids of the clinics whose events are sent; the empty list: 400. Left out or null: all of the group, which only a
    /// credential for all clinics can ask for. More than the caller may touch: 403.
    #[schema(min_items = 1)]
    clinic_ids: Option<Vec<Uuid>>,
    /// The types of event that are sent, such as `appointment.booked`; an unknown one, or the empty list: 400. Left out or
    /// null: all, those to come included.
    #[schema(min_items = 1, example = json!(["appointment.booked", "appointment.cancelled"]))]
    event_types: Option<Vec<String>>,
    /// Whether anything is sent. Left out: true. What waits when it becomes false is cancelled.
    #[schema(default = true, example = true)]
    active: Option<bool>,
}

impl EndpointFields {
    /// The endpoint they mean. Lists are sorted: in whatever order they were sent, it is the same.
    fn endpoint(self, id: Uuid) -> Result<Endpoint, Problem> {
        let wanted = |pointer, what| Problem::malformed(pointer, format!("At least one {what} is wanted."));
        if self.url.len() > LONGEST_URL || self.url.contains('\0') {
            return Err(Problem::malformed("/url", "A URL of at most 2048 bytes is wanted."));
        }
        if self.clinic_ids.as_ref().is_some_and(Vec::is_empty) {
            return Err(wanted("/clinic_ids", "clinic"));
        }
        if self.event_types.as_ref().is_some_and(Vec::is_empty) {
            return Err(wanted("/event_types", "type"));
        }
        for (n, kind) in self.event_types.iter().flatten().enumerate() {
            if !is_event_type(kind) {
                return Err(Problem::malformed(&format!("/event_types/{n}"), "A type of event there is is wanted."));
            }
        }
        Ok(Endpoint {
            id,
            url: self.url,
            description: self.description.map(|Text(text)| text).unwrap_or_default(),
            clinic_ids: self.clinic_ids.map(sorted),
            event_types: self.event_types.map(sorted),
            active: self.active.unwrap_or(true),
            version: 1,
        })
    }
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all.dedup();
    all
}

fn misplaced(why: &str) -> Problem {
    Problem::malformed("/url", format!("It cannot be there: {why}."))
}

/// Makes a webhook endpoint. Events that happen from then on are sent to it. Its secret is not in the answer, which is
/// stored: read it with `GET /v1/webhook-endpoints/{id}/secret`. Where the service has no key to seal secrets with: 501
/// `not_configured`.
#[utoipa::path(post, path = "/v1/webhook-endpoints", operation_id = "create_webhook_endpoint", tag = "Webhooks", request_body = EndpointFields, responses((status = 201, body = EndpointView)))]
pub async fn create(
    State(app): State<Arc<App>>,
    // Only whose the credential is, which never changes: the command's look decides the rest.
    Extension(SignedIn { caller, .. }): Extension<SignedIn>,
    ask: Ask<EndpointFields>,
) -> Answered {
    let id = app.ids.uuid(app.clock.now());
    let endpoint = ask.body.endpoint(id)?;
    app.guard.place(&endpoint.url).map_err(misplaced)?;
    // What its name resolves to just now, and whether this process has a key, is nothing to a replay.
    let sealed = match app.guard.check(&endpoint.url).await {
        Ok(()) => seal(&app, caller.tenant_id, id),
        Err(why) => Err(misplaced(why)),
    };
    let view = EndpointView {
        id,
        url: endpoint.url,
        description: endpoint.description,
        clinic_ids: endpoint.clinic_ids,
        event_types: endpoint.event_types,
        active: endpoint.active,
        disabled_reason: None,
        disabled_at: None,
        failing_since: None,
        paused_until: None,
        last_success_at: None,
        previous_secret_until: None,
        version: endpoint.version,
        created_by: String::new(),
        created_at: Timestamp::UNIX_EPOCH,
        updated_at: Timestamp::UNIX_EPOCH,
    };
    execute_of_group(&app, ask.asked, GroupCommand::CreateEndpoint(Box::new(view), sealed)).await
}

/// Replaces what is set of a webhook endpoint. With a change whatever had failed is forgotten: it begins anew; sent again, it
/// changes nothing. Where it is inactive
/// nothing is queued for it, and what waits is cancelled; so is what waits of clinics or types that it is no longer for.
#[utoipa::path(put, path = "/v1/webhook-endpoints/{id}", operation_id = "put_webhook_endpoint", tag = "Webhooks", params(("id" = Uuid, Path)), request_body = EndpointFields, responses((status = 200, body = EndpointView)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<EndpointFields>, Ids([id]): Ids<1>) -> Answered {
    let endpoint = change.body.endpoint(id)?;
    app.guard.check(&endpoint.url).await.map_err(misplaced)?;
    let put = app.commands.put(&change.asker, endpoint, &change.condition).await?;
    let view = find(&app, &change.asker.caller, id).await?;
    Ok(([(header::ETAG, etag(put.row.version))], Json(view)).into_response())
}

/// Lists webhook endpoints in the order they were made. A credential for some clinics sees only those that are for no
/// others. Follow `next` until it is null.
#[utoipa::path(get, path = "/v1/webhook-endpoints", operation_id = "list_webhook_endpoints", tag = "Webhooks", params(PageParams), responses((status = 200, body = Page<EndpointView>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, PageParams>) -> Answered {
    let wanted = params.wanted()?;
    let after = wanted.after.as_ref().map(|cursor| Ok::<_, Problem>((cursor.instant()?, cursor.id))).transpose()?;
    let limit = wanted.rows();
    let rows = app.insist(|connection| webhooks::list(connection, &caller, after, limit).scope_boxed()).await?;
    let place = |row: &EndpointView| Cursor::at(row.created_at, row.id);
    Ok(Json(Page::of(rows, &wanted, place, |row| row)).into_response())
}

/// Reads a webhook endpoint. Never with its secret. How it fares changes without its version, so `If-None-Match` is ignored.
#[utoipa::path(get, path = "/v1/webhook-endpoints/{id}", operation_id = "get_webhook_endpoint", tag = "Webhooks", params(("id" = Uuid, Path)), responses((status = 200, body = EndpointView)))]
pub async fn get(Reading { app, ids: [id], caller, .. }: Reading<1>) -> Answered {
    let view = find(&app, &caller, id).await?;
    Ok(([(header::ETAG, etag(view.version))], Json(view)).into_response())
}

/// Deletes a webhook endpoint. Its secrets are gone at once, and nothing more is sent. `If-Match` is optional. Deleted
/// before: 404.
#[utoipa::path(delete, path = "/v1/webhook-endpoints/{id}", operation_id = "delete_webhook_endpoint", tag = "Webhooks", params(("id" = Uuid, Path)), responses((status = 204)))]
pub async fn delete(State(app): State<Arc<App>>, change: Change<Nothing>, Ids([id]): Ids<1>) -> Answered {
    let note = &note(&app, "delete_webhook_endpoint", &change.asker);
    let mut there = Some(find(&app, &change.asker.caller, id).await?);
    // Changed between the look and the write, it is looked at again; gone by now, perhaps by a write whose answer was lost.
    while let Some(view) = there {
        change.condition.check(view.version)?;
        let at = (id, view.version);
        let deleted = app.insist(|connection| webhooks::delete(connection, at, note).scope_boxed()).await?;
        there = if deleted { None } else { look(&app, &change.asker.caller, id).await? };
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A change of an endpoint's secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRotation {
    /// Seconds for which the secret it has now goes on signing beside the new one, 0 to 2592000 (30 days); a day when left
    /// out. Else 400.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 2_592_000, default = 86_400, example = 86_400)]
    keep_old_seconds: Option<Number<0, LONGEST_KEPT>>,
}

/// Gives a webhook endpoint a new secret. The one it had goes on signing beside it for a while; one from before an earlier
/// rotation ends at once. Where the answer is lost, read the secret instead of rotating again. `If-Match` is optional;
/// rotating does not change the version.
#[utoipa::path(post, path = "/v1/webhook-endpoints/{id}/rotate-secret", operation_id = "rotate_webhook_secret", tag = "Webhooks", params(("id" = Uuid, Path)), request_body = SecretRotation, responses((status = 200, body = SecretView)))]
pub async fn rotate(State(app): State<Arc<App>>, change: Change<SecretRotation>, Ids([id]): Ids<1>) -> Answered {
    let Change { asker, body, condition } = change;
    let sealed = &seal(&app, asker.caller.tenant_id, id)?;
    let note = &note(&app, "rotate_webhook_secret", &asker);
    let kept = SignedDuration::from_secs(body.keep_old_seconds.map_or(USUALLY_KEPT, |Number(kept)| kept).into());
    let until = note.at.checked_add(kept).ok().filter(|until| *until > note.at);
    let mut version = 0;
    loop {
        let view = find(&app, &asker.caller, id).await?;
        // At the version it was when that was tried: it has that secret, by a write whose answer was lost.
        if view.version == version {
            break;
        }
        condition.check(view.version)?;
        version = view.version;
        let at = (id, version);
        if app.insist(|connection| webhooks::rotate(connection, at, sealed, until, note).scope_boxed()).await? {
            break;
        }
    }
    show(&app, asker, id).await
}

/// Reads the secrets of a webhook endpoint. That they were read is in the audit.
#[utoipa::path(get, path = "/v1/webhook-endpoints/{id}/secret", operation_id = "webhook_secret", tag = "Webhooks", params(("id" = Uuid, Path)), responses((status = 200, body = SecretView)))]
pub async fn secret(
    Extension(ids): Extension<RequestIds>,
    Reading { app, ids: [id], caller, .. }: Reading<1>,
) -> Answered {
    let asker = Asker { caller, request_id: ids.ours, caller_request_id: ids.callers, traceparent: None };
    show(&app, asker, id).await
}

async fn show(app: &App, asker: Asker, id: Uuid) -> Answered {
    let note = &note(app, "read_webhook_secret", &asker);
    let sealed = app.insist(|connection| webhooks::secrets(connection, id, note).scope_boxed()).await?;
    let sealed = sealed.ok_or(Code::NotFound)?;
    let keyring = app.keyring.as_ref().ok_or_else(not_configured)?;
    let open = |sealed: &[u8]| {
        let opened = keyring.open(&secret_belongs_to(&asker.caller.tenant_id, &id), sealed);
        opened.map(|secret| show_secret(&secret)).map_err(|_| {
            Problem::new(
                Code::NotConfigured,
                "The secret was sealed with a key that ONCEBOOK_ENCRYPTION_KEY does not have.",
            )
        })
    };
    let previous = sealed.previous.filter(|(_, until)| *until > note.at);
    let view = SecretView {
        secret: open(&sealed.secret)?,
        previous_secret: previous.as_ref().map(|(sealed, _)| open(sealed)).transpose()?,
        previous_secret_until: previous.map(|(_, until)| until),
    };
    Ok(Json(view).into_response())
}

/// A new secret of 256 bits, sealed.
fn seal(app: &App, tenant: Uuid, endpoint: Uuid) -> Result<Vec<u8>, Problem> {
    let keyring = app.keyring.as_ref().ok_or_else(not_configured)?;
    let secret = app.ids.secret();
    keyring.seal(&app.ids, &secret_belongs_to(&tenant, &endpoint), &secret).map_err(|_| Code::Internal.into())
}

fn not_configured() -> Problem {
    Problem::new(Code::NotConfigured, "The service has no ONCEBOOK_ENCRYPTION_KEY to seal the endpoint's secret with.")
}

async fn find(app: &App, caller: &Caller, id: Uuid) -> Result<EndpointView, Problem> {
    look(app, caller, id).await?.ok_or_else(|| Code::NotFound.into())
}

async fn look(app: &App, caller: &Caller, id: Uuid) -> Result<Option<EndpointView>, Problem> {
    app.insist(|connection| webhooks::find(connection, caller, id).scope_boxed()).await
}

fn note<'a>(app: &App, operation: &'static str, asker: &'a Asker) -> AuditNote<'a> {
    let at = app.clock.now();
    AuditNote { id: app.ids.uuid(at), at, operation, asker }
}
