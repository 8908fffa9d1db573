//! Events as they travel: `CloudEvents` 1.0 in JSON. Ids and times only, never a patient's data.
//!
//! The standard's attributes, and of ours `tenantid`, `clinicid` and `sequence`: with `subject`, its place in the order of
//! its subject. `traceparent` is the standard's extension for distributed tracing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::event::{Event, EventType, Standing};

/// The version of the standard.
const VERSION: &str = "1.0";

/// An event as it travels. Attributes that a later release may add are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CloudEvent {
    /// Of the standard: `1.0`.
    #[schema(example = "1.0")]
    pub specversion: String,
    /// The event's identity; with `source` unique, as the standard wants.
    pub id: Uuid,
    /// Where it comes from: the clinic.
    #[schema(example = "/v1/clinics/0197f3c0-0000-7000-8000-000000000001")]
    pub source: String,
    /// A past fact.
    #[serde(rename = "type")]
    #[schema(example = "appointment.booked")]
    pub kind: String,
    /// What it is about: `appointment/ID` or `block/ID`.
    #[schema(example = "appointment/0197f3c0-0000-7000-8000-000000000002")]
    pub subject: String,
    /// When it happened, RFC 3339 in UTC.
    pub time: Timestamp,
    /// The media type of `data`: `application/json`.
    #[schema(example = "application/json")]
    pub datacontenttype: String,
    /// The id of the group whose it is.
    pub tenantid: Uuid,
    /// The id of the clinic where it happened.
    pub clinicid: Uuid,
    /// Its place in the order of its subject, from 1 on without gaps: the version it made. A receiver drops what is not
    /// above the last it has seen.
    #[schema(example = 1)]
    pub sequence: i32,
    /// W3C trace context of the request that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// What stands now: ids, times, status.
    #[schema(value_type = Standing)]
    pub data: Value,
}

/// The schema of an event as it travels (JSON Schema 2020-12).
#[must_use]
pub fn schema() -> Value {
    // Made of text and lists alone, which always serialise.
    let of = |schema| serde_json::to_value::<RefOr<Schema>>(schema).unwrap_or_default();
    let mut schema = of(CloudEvent::schema());
    // The OpenAPI document refers to it; here it stands in its place.
    schema["properties"]["data"] = of(Standing::schema());
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "An event of Oncebook".into();
    schema["properties"]["specversion"]["const"] = VERSION.into();
    schema["properties"]["type"]["enum"] = EventType::ALL.map(EventType::as_str).to_vec().into();
    schema["properties"]["subject"]["pattern"] = "^(appointment|block)/[0-9a-f-]{36}$".into();
    schema["properties"]["sequence"]["minimum"] = 1.into();
    schema
}

impl From<Event> for CloudEvent {
    fn from(event: Event) -> Self {
        Self {
            specversion: VERSION.to_owned(),
            id: event.id,
            source: format!("/v1/clinics/{}", event.clinic_id),
            kind: event.kind,
            subject: format!("{}/{}", event.subject_kind, event.subject_id),
            time: event.occurred_at,
            datacontenttype: "application/json".to_owned(),
            tenantid: event.tenant_id,
            clinicid: event.clinic_id,
            sequence: event.sequence,
            traceparent: event.traceparent,
            data: event.data,
        }
    }
}

impl TryFrom<CloudEvent> for Event {
    type Error = &'static str;

    fn try_from(event: CloudEvent) -> Result<Self, &'static str> {
        let (kind, id) = event.subject.split_once('/').ok_or("its subject is no kind and id")?;
        if event.specversion != VERSION {
            return Err("it is of another version of the standard");
        }
        Ok(Self {
            id: event.id,
            tenant_id: event.tenantid,
            clinic_id: event.clinicid,
            subject_kind: kind.to_owned(),
            subject_id: id.parse().map_err(|_| "its subject's id is none")?,
            sequence: event.sequence,
            kind: event.kind,
            data: event.data,
            traceparent: event.traceparent,
            occurred_at: event.time,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_comes_back_as_it_went() {
        let event = Event {
            id: Uuid::from_u128(1),
            tenant_id: Uuid::from_u128(2),
            clinic_id: Uuid::from_u128(3),
            subject_kind: "appointment".to_owned(),
            subject_id: Uuid::from_u128(4),
            sequence: 7,
            kind: "appointment.noted".to_owned(),
            data: json!({"status": "booked"}),
            traceparent: None,
            occurred_at: "2026-12-01T08:00:00Z".parse().expect("a time"),
        };
        let travels = serde_json::to_value(CloudEvent::from(event.clone())).expect("JSON");
        assert_eq!(travels["subject"], "appointment/00000000-0000-0000-0000-000000000004");
        assert!(travels.get("traceparent").is_none());
        let arrived: CloudEvent = serde_json::from_value(travels).expect("an event");
        assert_eq!(Event::try_from(arrived), Ok(event));
    }
}
