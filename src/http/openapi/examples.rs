//! Examples a person can send: to `oncebook dev` they can go as they are, but for the ids of what was made there.
//! `tests/it/openapi/live.rs` sends them all.

use jiff::Timestamp;
use serde_json::{Value, json};
use utoipa::openapi::{RefOr, Schema};
use uuid::{Uuid, uuid};

/// A clinic of the demo group.
const CLINIC: Uuid = uuid!("8856b996-4702-8720-96cf-720b7e84e9e4");
/// One who works there.
pub const PRACTITIONER: Uuid = uuid!("a434fcd8-3601-8290-8cc3-724153c27c76");
/// A room there.
const OPERATORY: Uuid = uuid!("8761c03c-5016-8e9b-92bd-63e809470fb7");
/// A service of half an hour there.
const SERVICE: Uuid = uuid!("7e07b0ba-db42-8c5a-99a1-a7820773220a");
/// A patient of the group.
const PATIENT: Uuid = uuid!("29475c09-6d5b-8ec9-93fd-e847c35e17fb");
/// A credential of the group.
const A_CREDENTIAL: Uuid = uuid!("0ee965a4-128c-8fcb-8f71-fb30ba0d8594");
/// An appointment as it might be.
pub const APPOINTMENT: Uuid = uuid!("019e0000-0000-7000-8000-000000000001");
/// A block as it might be.
const BLOCK: Uuid = uuid!("019e0000-0000-7000-8000-000000000002");
/// A webhook endpoint as it might be.
const ENDPOINT: Uuid = uuid!("019e0000-0000-7000-8000-000000000003");
/// An event as it might have happened.
const EVENT: Uuid = uuid!("019e0000-0000-7000-8000-000000000004");
/// A request as it might have been.
const REQUEST: Uuid = uuid!("019e0000-0000-7000-8000-0000000000aa");

/// A Tuesday, nine o'clock in Berlin. Far enough ahead to be booked for a while, and within the demo clinic's horizon.
pub const START: Timestamp = Timestamp::constant(1_825_142_400, 0);

/// What a path's parameter names and what becomes of a wrong one, and one there is.
#[must_use]
pub fn of_path(path: &str, parameter: &str) -> Option<(&'static str, Value)> {
    let (before, _) = path.split_once(&format!("/{{{parameter}}}"))?;
    Some(match before.rsplit('/').next()? {
        "appointments" => {
            ("The appointment's id. Unknown, or at a clinic outside the credential's: 404.", json!(APPOINTMENT))
        }
        "blocks" => ("The block's id. Unknown, or at a clinic outside the credential's: 404.", json!(BLOCK)),
        "clinics" => ("The clinic's id, of your choice when you make it. Unknown otherwise: 404.", json!(CLINIC)),
        "practitioners" => {
            ("The practitioner's id, of your choice when you make one. Unknown otherwise: 404.", json!(PRACTITIONER))
        }
        "operatories" => {
            ("The operatory's id, of your choice when you make it. Unknown otherwise: 404.", json!(OPERATORY))
        }
        "services" => ("The service's id, of your choice when you make it. Unknown otherwise: 404.", json!(SERVICE)),
        "patients" => ("The patient's id, of your choice when you make one. Unknown otherwise: 404.", json!(PATIENT)),
        "credentials" => {
            ("The credential's id. Unknown, or for clinics outside the caller's: 404.", json!(A_CREDENTIAL))
        }
        "webhook-endpoints" => {
            ("The endpoint's id. Unknown, deleted, or for clinics outside the caller's: 404.", json!(ENDPOINT))
        }
        "deliveries" => ("The event's id. None that was queued for the endpoint: 404.", json!(EVENT)),
        "problems" => ("The problem's `code`. Unknown: 404.", json!("slot_taken")),
        _ => return None,
    })
}

/// A value for a query's parameter that must be given.
#[must_use]
pub fn of_member(name: &str) -> Option<Value> {
    Some(match name {
        "clinic_id" => json!(CLINIC),
        "service_id" => json!(SERVICE),
        "from" => json!("2027-11-02T00:00:00Z"),
        "to" => json!("2027-11-09T00:00:00Z"),
        _ => return None,
    })
}

/// A body to send, by `operationId`.
#[must_use]
pub fn of_request(operation: &str) -> Option<Value> {
    Some(match operation {
        "book" => json!({
            "clinic_id": CLINIC, "patient_id": PATIENT, "practitioner_id": PRACTITIONER, "operatory_id": OPERATORY,
            "service_id": SERVICE, "start": "2027-11-02T09:00:00", "time_zone": "Europe/Berlin",
            "note": "prefers mornings",
        }),
        "reschedule" => json!({ "start": "2027-11-02T10:00:00", "time_zone": "Europe/Berlin" }),
        "cancel" => json!({ "reason": "patient called" }),
        "note" => json!({ "note": "will be ten minutes late" }),
        "block" => json!({
            "clinic_id": CLINIC, "practitioner_id": PRACTITIONER, "start": "2027-11-02T12:00:00+01:00",
            "end": "2027-11-02T13:00:00+01:00", "reason": "lunch",
        }),
        "create_credential" => json!({
            "name": "Front desk, Mitte", "subject": "person:paul.meier", "roles": ["FRONT_DESK"], "clinic_ids": [CLINIC],
        }),
        "rotate_credential" => json!({ "keep_old_seconds": 3600 }),
        "create_webhook_endpoint" | "put_webhook_endpoint" => json!({
            "url": "https://1.1.1.1/oncebook", "description": "Waiting room screen", "clinic_ids": [CLINIC],
            "event_types": ["appointment.arrived", "appointment.noshow"],
        }),
        "rotate_webhook_secret" => json!({ "keep_old_seconds": 86_400 }),
        _ => return to_put(operation),
    })
}

/// The demo group's own entries, so that whoever tries one changes nothing.
fn to_put(operation: &str) -> Option<Value> {
    let name = match operation {
        "put_clinic" => "Clinic",
        "put_clinic_hours" => return Some(week()),
        "put_clinic_closures" => return Some(json!([closure()])),
        "put_clinic_notifications" => "NotificationSettings",
        "put_practitioner" => "Practitioner",
        "put_practitioner_clinic" => "Membership",
        "put_operatory" => "Operatory",
        "put_service" => "Service",
        "put_patient" => "Patient",
        _ => return None,
    };
    let mut body = entry(name)?;
    let members = body.as_object_mut()?;
    // The path has its ids, and versions are counted here.
    members.retain(|member, _| !matches!(member.as_str(), "id" | "version" | "practitioner_id"));
    if name == "Membership" {
        members.remove("clinic_id");
    }
    Some(body)
}

/// What the directory has, by its schema's name.
fn entry(name: &str) -> Option<Value> {
    Some(match name {
        "Clinic" => json!({
            "id": CLINIC, "name": "Spree Dental Mitte", "time_zone": "Europe/Berlin", "slot_minutes": 15,
            "allow_overbooking": false, "min_notice_minutes": 0, "horizon_days": 730, "key_retention_days": 7,
            "version": 1,
        }),
        "NotificationSettings" => json!({
            "reminder_hours": 24, "quiet_hours": { "from": "20:00", "to": "08:00" },
            "templates": { "confirmation": null, "change": null, "cancellation": null, "reminder": {
                "subject": "See you on {{ date }}", "text": "Hello {{ patient }}, see you on {{ start }}. {{ clinic }}",
                "html": null, "sms": "{{ clinic }}: see you on {{ start }}",
            }},
            "version": 1,
        }),
        "Practitioner" => json!({ "id": PRACTITIONER, "name": "Dr. Amira Haddad", "active": true, "version": 1 }),
        "Membership" => json!({
            "practitioner_id": PRACTITIONER, "clinic_id": CLINIC, "active": true, "hours": null, "version": 1,
        }),
        "Operatory" => json!({
            "id": OPERATORY, "clinic_id": CLINIC, "name": "Room 1", "active": true, "version": 1,
        }),
        "Service" => json!({
            "id": SERVICE, "clinic_id": CLINIC, "name": "Cleaning", "minutes": 30, "buffer_minutes": 0, "active": true,
            "version": 1,
        }),
        "Patient" => json!({
            "id": PATIENT, "name": "Ada Arslan", "birth_date": "1940-01-01", "email": "ada.arslan@example.org",
            "phone": "+49 30 23125 000", "language": "de", "preferred_channel": "email", "version": 1,
        }),
        _ => return None,
    })
}

fn closure() -> Value {
    json!({ "from": "2027-12-23T23:00:00Z", "to": "2027-12-26T23:00:00Z", "reason": "Christmas" })
}

fn week() -> Value {
    let days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    days.map(|day| json!({ "weekday": day, "opens": "08:00", "closes": "18:00" })).into_iter().collect()
}

fn credential(operation: &str) -> Value {
    let later = "2026-11-30T11:15:00Z";
    json!({
        "id": A_CREDENTIAL, "name": "Front desk, Mitte", "subject": "person:paul.meier", "roles": ["FRONT_DESK"],
        "clinic_ids": [CLINIC], "created_by": "person:nora.lindqvist", "created_at": "2026-11-30T10:15:00Z",
        "previous_secret_until": (operation == "rotate_credential").then_some(later),
        "revoked_at": (operation == "revoke_credential").then_some(later),
    })
}

/// A body one may get: of a schema, in answer to an operation.
#[must_use]
pub fn of_answer(schema: &RefOr<Schema>, operation: &str, status: &str) -> Option<Value> {
    match schema {
        RefOr::Ref(to) => {
            let name = to.ref_location.rsplit('/').next()?;
            match name.strip_prefix("Page_") {
                Some(row) => Some(json!({ "items": [of_schema(row, operation, status)?], "next": null })),
                None => of_schema(name, operation, status),
            }
        }
        RefOr::T(Schema::Array(_)) if operation.ends_with("hours") => Some(week()),
        RefOr::T(Schema::Array(_)) => Some(json!([closure()])),
        RefOr::T(_) => None,
    }
}

fn of_schema(name: &str, operation: &str, status: &str) -> Option<Value> {
    Some(match name {
        "Appointment" => appointment(operation),
        "Block" => json!({
            "id": BLOCK, "clinic_id": CLINIC, "practitioner_id": PRACTITIONER, "operatory_id": null,
            "start": "2027-11-02T11:00:00Z", "end": "2027-11-02T12:00:00Z", "reason": "lunch", "version": 1,
            "created_at": "2026-11-30T10:15:00Z",
        }),
        "HistoryEntry" => json!({
            "version": 1, "status": "booked", "start": START, "end": "2027-11-02T08:30:00Z",
            "practitioner_id": PRACTITIONER, "operatory_id": OPERATORY, "service_id": SERVICE, "overbooked": false,
            "operation": "book", "subject": "person:paul.meier", "credential_id": A_CREDENTIAL, "request_id": REQUEST,
            "caller_request_id": "my-call-17", "at": "2026-11-30T10:15:00Z",
        }),
        "Availability" => json!({ "slots": [
            { "start": "2027-11-02T09:00:00Z", "end": "2027-11-02T09:30:00Z", "practitioner_id": PRACTITIONER },
        ]}),
        "CommandFate" => json!({
            "state": "finished", "status": 201, "operation": "book", "finished_at": "2026-11-30T10:15:00Z",
            "expires_at": "2027-11-09T08:30:00Z",
        }),
        "Changes" => json!({
            "items": [{
                "specversion": "1.0", "id": REQUEST, "source": format!("/v1/clinics/{CLINIC}"), "type": "appointment.booked",
                "subject": format!("appointment/{APPOINTMENT}"), "time": "2026-11-30T10:15:00Z",
                "datacontenttype": "application/json", "tenantid": "9f2ed1d5-1fd0-8d2c-8fe0-1b4f4f1b7a4e", "clinicid": CLINIC,
                "sequence": 1, "data": {
                    "start": START, "end": "2027-11-02T08:30:00Z", "status": "booked", "schedule_version": 1,
                    "practitioner_id": PRACTITIONER, "operatory_id": OPERATORY, "service_id": SERVICE,
                },
            }],
            "next": "AQAAAAAAAAAAAAAAAAAAAAAwMDAwMDAwMDAwMDAwMDAwMDAwMQ",
        }),
        "Health" => json!({ "status": "ok" }),
        "Readiness" => {
            let ready = status == "200";
            let version = if ready { json!(2) } else { Value::Null };
            let schema = json!({ "ok": ready, "version": version, "expected": 2 });
            let behind = json!({ "items": 0, "seconds": 0.0 });
            let relay = json!({ "name": "relay", "ok": true, "last_ok_seconds": 0.4, "behind": behind });
            let checks = json!({ "database": { "ok": ready }, "schema": schema });
            json!({ "ready": ready, "checks": checks, "workers": [relay] })
        }
        "Explained" => explained(),
        "Problems" => json!({ "items": [explained()] }),
        "Credential" => credential(operation),
        "IssuedCredential" => {
            let mut issued = credential(operation);
            issued["api_key"] = json!(format!("ob_{}_{}", A_CREDENTIAL.simple(), "0".repeat(64)));
            issued
        }
        _ => return webhook(name, operation).or_else(|| entry(name)),
    })
}

/// What there is of webhooks, by its schema's name.
fn webhook(name: &str, operation: &str) -> Option<Value> {
    Some(match name {
        "WebhookEndpoint" => json!({
            "id": ENDPOINT, "url": "https://1.1.1.1/oncebook", "description": "Waiting room screen", "clinic_ids": [CLINIC],
            "event_types": ["appointment.arrived", "appointment.noshow"], "active": true, "disabled_reason": null,
            "disabled_at": null, "failing_since": null, "paused_until": null, "last_success_at": null,
            "previous_secret_until": null, "version": if operation == "put_webhook_endpoint" { 2 } else { 1 },
            "created_by": "person:nora.lindqvist", "created_at": "2026-11-30T10:15:00Z", "updated_at": "2026-11-30T10:15:00Z",
        }),
        "WebhookSecret" => {
            let rotated = operation == "rotate_webhook_secret";
            json!({
                "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
                "previous_secret": rotated.then_some("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrs="),
                "previous_secret_until": rotated.then_some("2026-12-01T10:15:00Z"),
            })
        }
        "WebhookDelivery" => json!({
            "event_id": EVENT, "clinic_id": CLINIC, "type": "appointment.arrived",
            "subject": format!("appointment/{APPOINTMENT}"), "sequence": 2, "state": "PENDING", "reason": "status",
            "redelivery": false, "next_attempt_at": "2026-11-30T10:15:04Z", "queued_at": "2026-11-30T10:15:00Z", "ended_at": null,
            "attempts": [{
                "attempt": 1, "started_at": "2026-11-30T10:15:00Z", "outcome": "status", "status": 503, "duration_ms": 42,
            }],
        }),
        _ => return None,
    })
}

/// The example's visit, as an operation leaves it.
fn appointment(operation: &str) -> Value {
    let mut visit = json!({
        "id": APPOINTMENT, "clinic_id": CLINIC, "patient_id": PATIENT, "practitioner_id": PRACTITIONER,
        "operatory_id": OPERATORY, "service_id": SERVICE, "start": START, "end": "2027-11-02T08:30:00Z",
        "local_start": "2027-11-02T09:00:00", "time_zone": "Europe/Berlin", "status": "booked", "confirmed_at": null,
        "overbooked": false, "version": 1, "note": "prefers mornings", "external": null, "cancel_reason": null,
        "created_at": "2026-11-30T10:15:00Z", "updated_at": "2026-11-30T10:15:00Z",
    });
    let now = "2026-11-30T10:20:00Z";
    let changes = match operation {
        "reschedule" => json!({
            "start": "2027-11-02T09:00:00Z", "end": "2027-11-02T09:30:00Z", "local_start": "2027-11-02T10:00:00",
        }),
        "confirm" => json!({ "confirmed_at": now }),
        "check_in" => json!({ "status": "arrived" }),
        "complete" => json!({ "status": "fulfilled" }),
        "no_show" => json!({ "status": "noshow" }),
        "cancel" => json!({ "status": "cancelled", "cancel_reason": "patient called" }),
        "note" => json!({ "note": "will be ten minutes late" }),
        "reopen" => json!({}),
        _ => return visit,
    };
    for changes in [changes, json!({ "version": 2, "updated_at": now })] {
        let members = changes.as_object().into_iter().flatten();
        members.for_each(|(member, value)| visit[member] = value.clone());
    }
    visit
}

fn explained() -> Value {
    let code = crate::domain::problem::Code::SlotTaken;
    serde_json::to_value(crate::http::explain::Explained::from(code)).unwrap_or_default()
}

/// A text one may get.
#[must_use]
pub fn of_text(media_type: &str) -> Option<&'static str> {
    match media_type {
        "text/plain" => Some("oncebook_http_requests_total{method=\"GET\",path=\"/healthz\",status=\"200\"} 1\n"),
        "text/html" => Some("<!doctype html><html lang=\"en\"><title>The slot is taken · Oncebook</title>…</html>"),
        _ => None,
    }
}
