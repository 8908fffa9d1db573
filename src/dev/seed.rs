//! The demo group: two clinics in Berlin, and another group beside them to prove that nothing crosses. Ids are derived
//! from names, so every machine has the same; secrets are random and this machine's own.

use anyhow::Result;
use jiff::Timestamp;
use jiff::civil::date;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::clock::Ids;
use crate::dev::record::ApiKeys;
use crate::domain::api_key::{self, NewKey};
use crate::store::demo::{self, Clinic, Credential, Group, Patient};

/// The demo clinics' zone.
pub(crate) const ZONE: &str = "Europe/Berlin";

const PRACTITIONERS: [&str; 8] = [
    "Dr. Amira Haddad",
    "Dr. Jonas Keller",
    "Dr. Mei Tanaka",
    "Dr. Lukas Brandt",
    "Dr. Ewa Nowak",
    "Dr. Samuel Osei",
    "Dr. Clara Vogel",
    "Dr. Deniz Yıldız",
];
const SERVICES: [(&str, i32); 3] = [("Check-up", 15), ("Cleaning", 30), ("Filling", 60)];
const GIVEN_NAMES: [&str; 10] = ["Ada", "Bruno", "Carla", "David", "Elif", "Felix", "Greta", "Hassan", "Ines", "Jakob"];
const FAMILY_NAMES: [&str; 5] = ["Arslan", "Becker", "Costa", "Dietrich", "Engel"];
const LANGUAGES: [&str; 4] = ["de", "de", "en", "tr"];
const CHANNELS: [&str; 5] = ["email", "email", "sms", "email", "none"];

/// What the demo consists of, as dev.json tells it.
#[derive(Clone, Debug)]
pub struct Demo {
    /// The group.
    pub tenant_id: Uuid,
    /// The demo clinic.
    pub clinic_id: Uuid,
    /// Its sister.
    pub other_clinic_id: Uuid,
    /// Eight; they work at both clinics.
    pub practitioner_ids: Vec<Uuid>,
    /// Eight, of the demo clinic.
    pub operatory_ids: Vec<Uuid>,
    /// 15, 30 and 60 minutes, of the demo clinic.
    pub service_ids: Vec<Uuid>,
    /// Fifty.
    pub patient_ids: Vec<Uuid>,
    /// Tokens that work.
    pub api_keys: ApiKeys,
    /// How many of them took the place of ones that worked until then.
    pub replaced_keys: usize,
}

/// Adds what is missing. Keys of the last run go on working where their rows agree; the others are issued anew.
///
/// # Errors
/// When Postgres refuses.
pub async fn seed(
    connection: &mut PgConnection,
    last: Option<ApiKeys>,
    now: Timestamp,
    ids: &Ids,
) -> Result<Demo, sqlx::Error> {
    let (group, other) = (group(), other_group());
    demo::add_group(connection, &group, now).await?;
    demo::add_group(connection, &other, now).await?;
    let (clinic, sister) = (&group.clinics[0], &group.clinics[1]);
    let mut api_keys = last.unwrap_or_default();
    let replaced_keys = issue_keys(connection, &mut api_keys, &parts(&group, &other), now, ids).await?;
    Ok(Demo {
        tenant_id: group.id,
        clinic_id: clinic.id,
        other_clinic_id: sister.id,
        practitioner_ids: group.practitioners.iter().map(|(id, _)| *id).collect(),
        operatory_ids: clinic.operatories.iter().map(|(id, _)| *id).collect(),
        service_ids: clinic.services.iter().map(|(id, _, _)| *id).collect(),
        patient_ids: group.patients.iter().map(|patient| patient.id).collect(),
        api_keys,
        replaced_keys,
    })
}

/// One key of `dev.json`: where it stands there, the person behind it, what they may do and where.
struct Part {
    name: &'static str,
    key: fn(&mut ApiKeys) -> &mut String,
    subject: &'static str,
    role: &'static str,
    tenant_id: Uuid,
    clinic_id: Option<Uuid>,
}

fn parts(group: &Group, other: &Group) -> [Part; 9] {
    let (here, there) = (Some(group.clinics[0].id), Some(group.clinics[1].id));
    let all = group.id;
    let part = |name, key, subject, role, tenant_id, clinic_id| Part { name, key, subject, role, tenant_id, clinic_id };
    [
        part("admin", |keys| &mut keys.admin, "person:nora.lindqvist", "CLINIC_ADMIN", all, None),
        part("front_desk", |keys| &mut keys.front_desk, "person:paul.meier", "FRONT_DESK", all, here),
        part("other_clinic", |keys| &mut keys.other_clinic, "person:rosa.santos", "FRONT_DESK", all, there),
        part("integration", |keys| &mut keys.integration, "system:website", "INTEGRATION", all, None),
        part("operator", |keys| &mut keys.operator, "person:omar.aziz", "APPOINTMENT_REPLAY_OPERATOR", all, None),
        part(
            "operator_2",
            |keys| &mut keys.operator_2,
            "person:olga.petrova",
            "APPOINTMENT_REPLAY_OPERATOR",
            all,
            None,
        ),
        part("ledger_approver", |keys| &mut keys.ledger_approver, "person:lena.schulz", "LEDGER_APPROVER", all, None),
        part("worker", |keys| &mut keys.worker, "system:pms-worker", "PMS_WORKER", all, here),
        part("other_tenant", |keys| &mut keys.other_tenant, "person:tess.okafor", "FRONT_DESK", other.id, None),
    ]
}

/// Says how many keys that worked until now work no more.
async fn issue_keys(
    connection: &mut PgConnection,
    keys: &mut ApiKeys,
    parts: &[Part],
    now: Timestamp,
    ids: &Ids,
) -> Result<usize, sqlx::Error> {
    let known: Vec<Uuid> = parts.iter().map(|part| id("credential", part.name)).collect();
    let working = demo::working_keys(connection, &known).await?;
    let mut issued = Vec::new();
    for part in parts {
        let token = (part.key)(keys);
        let id = id("credential", part.name);
        let shown = api_key::read(token);
        let works = |(known, stored): &(Uuid, Vec<u8>)| {
            *known == id && shown.is_some_and(|(named, hash)| named == id && hash == stored.as_slice())
        };
        if working.iter().any(works) {
            continue;
        }
        let fresh = NewKey::new(id, &ids.secret());
        issued.push(Credential {
            id,
            tenant_id: part.tenant_id,
            name: format!("demo {}", part.name),
            subject: part.subject.into(),
            role: part.role.into(),
            clinic_id: part.clinic_id,
            secret_hash: fresh.secret_hash.into(),
        });
        *token = fresh.text;
    }
    if !issued.is_empty() {
        demo::put_keys(connection, &issued, now).await?;
    }
    Ok(issued.iter().filter(|key| working.iter().any(|(id, _)| *id == key.id)).count())
}

fn group() -> Group {
    let patients = FAMILY_NAMES.iter().flat_map(|family| GIVEN_NAMES.iter().map(move |given| (given, family)));
    Group {
        id: id("tenant", "demo"),
        name: "Spree Dental".into(),
        clinics: vec![clinic("Spree Dental Mitte", ZONE, 8), clinic("Spree Dental Pankow", ZONE, 2)],
        practitioners: PRACTITIONERS.iter().map(|name| (id("practitioner", name), (*name).to_owned())).collect(),
        patients: patients.zip(0..).map(|((given, family), n)| patient(given, family, n)).collect(),
    }
}

fn other_group() -> Group {
    Group {
        id: id("tenant", "other"),
        name: "Harbour Dental".into(),
        clinics: vec![clinic("Harbour Dental", "Europe/London", 2)],
        practitioners: vec![(id("practitioner", "Dr. Isla Grant"), "Dr. Isla Grant".into())],
        patients: vec![patient("Kit", "Lowe", 50)],
    }
}

fn clinic(name: &str, zone: &str, rooms: usize) -> Clinic {
    let own = |kind, what: &str| id(kind, &format!("{name}, {what}"));
    let room = |n: usize| format!("Room {n}");
    Clinic {
        id: id("clinic", name),
        name: name.into(),
        time_zone: zone.into(),
        operatories: (1..=rooms).map(|n| (own("operatory", &room(n)), room(n))).collect(),
        services: SERVICES.map(|(what, minutes)| (own("service", what), what.to_owned(), minutes)).into(),
    }
}

/// The `n`-th patient, `n` below 100.
fn patient(given: &str, family: &str, n: i8) -> Patient {
    let turn = |list: &[&str]| list[usize::try_from(n).unwrap_or(0) % list.len()].to_owned();
    Patient {
        id: id("patient", &format!("{given} {family}")),
        name: format!("{given} {family}"),
        birth_date: date(1940 + i16::from(n) * 37 % 70, n % 12 + 1, n % 28 + 1),
        email: format!("{given}.{family}@example.org").to_lowercase(),
        // A block Germany's numbering authority keeps for films.
        phone: format!("+49 30 23125 {n:03}"),
        language: turn(&LANGUAGES),
        preferred_channel: turn(&CHANNELS),
    }
}

/// A version 8 UUID (RFC 9562, "custom"), the same for the same name.
fn id(kind: &str, name: &str) -> Uuid {
    let digest: [u8; 32] = Sha256::digest(format!("oncebook demo {kind} {name}").as_bytes()).into();
    let (half, _) = digest.split_at(16);
    let bytes = half.try_into().unwrap_or_default();
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_demo_is_what_the_contract_says() {
        let (group, other) = (group(), other_group());
        assert!(group.practitioners.len() >= 8 && group.clinics[0].operatories.len() >= 8);
        assert_eq!(group.clinics[0].services.iter().map(|(_, _, minutes)| *minutes).collect::<Vec<_>>(), [15, 30, 60]);
        assert_eq!(group.patients.iter().map(|patient| patient.id).collect::<HashSet<_>>().len(), 50);
        let subjects: HashSet<_> = parts(&group, &other).iter().map(|part| part.subject).collect();
        assert_eq!(subjects.len(), 9, "each key belongs to a subject of its own");
    }
}
