//! Patients: `/v1/patients`. They belong to the group: every credential that may see patients sees all of its group.

use std::sync::Arc;

use axum::extract::State;
use jiff::civil::Date;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use scoped_futures::ScopedFutureExt;
use serde::{Deserialize, Deserializer, de};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::{listing, page, put_entry, show};
use crate::app::App;
use crate::domain::directory::{Channel, Patient};
use crate::domain::problem::Problem;
use crate::http::ask::Change;
use crate::http::fields::{NAME, Name, Text};
use crate::http::page::{Cursor, Page, Wanted};
use crate::http::params::Ids;
use crate::http::problem::Answered;
use crate::http::reading::Reading;
use crate::store::directory::patients;

/// Longest e-mail address, in characters (RFC 5321: 256 with its angle brackets).
const EMAIL: usize = 254;

/// Longest phone number, in characters.
const PHONE: usize = 40;

/// Longest language tag, in characters (RFC 5646, section 4.4.1).
const LANGUAGE: usize = 35;

/// No living patient was born before.
const EARLIEST_BIRTH: Date = jiff::civil::date(1850, 1, 1);

/// Where the day is longest ahead of UTC.
const FIRST_TO_SEE_A_DAY: SignedDuration = SignedDuration::from_hours(14);

/// A patient as they are to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatientFields {
    /// The patient's name: 1 to 200 characters, not blank; else 400.
    #[schema(value_type = String, min_length = 1, max_length = 200, example = "Ada Becker")]
    name: Name<NAME>,
    /// The patient's date of birth, not before 1850 and not in the future; else 400.
    #[schema(value_type = Option<String>, format = Date, example = "1984-05-17")]
    birth_date: Option<Day>,
    /// The patient's e-mail address, at most 254 characters; what has not the form of one: 400.
    #[schema(value_type = Option<String>, format = Email, max_length = 254, example = "ada.becker@example.org")]
    email: Option<Email>,
    /// The number for calls and text messages: one line of at most 40 characters, else 400.
    #[schema(value_type = Option<String>, max_length = 40, example = "+49 30 23125 001")]
    phone: Option<Line<PHONE>>,
    /// The language to address the patient in: a BCP 47 tag such as `de` or `pt-BR`, else 400.
    #[schema(value_type = Option<String>, max_length = 35, example = "de")]
    language: Option<Language>,
    /// How the patient wants to be told of their appointments: `email`, `sms` or `none`.
    #[schema(default = "none")]
    preferred_channel: Option<Channel>,
}

impl PatientFields {
    fn patient(self, id: Uuid, now: Timestamp) -> Result<Patient, Problem> {
        let birth_date = self.birth_date.map(|Day(day)| day);
        let latest = Offset::UTC.to_datetime(now.saturating_add(FIRST_TO_SEE_A_DAY).unwrap_or(now)).date();
        if birth_date.is_some_and(|day| day < EARLIEST_BIRTH || day > latest) {
            return Err(Problem::malformed("/birth_date", "A day since 1850 that is not in the future is wanted."));
        }
        Ok(Patient {
            id,
            name: self.name.0,
            birth_date,
            email: self.email.map(|Email(email)| email),
            phone: self.phone.map(|Line(phone)| phone),
            language: self.language.map(|Language(language)| language),
            preferred_channel: self.preferred_channel.unwrap_or_default(),
            version: 0,
        })
    }
}

/// A day of the calendar, written "YYYY-MM-DD".
#[derive(Clone, Copy, Debug, PartialEq)]
struct Day(Date);

impl Day {
    /// jiff reads more than this: week dates, and a time behind the day.
    fn parse(text: &str) -> Option<Self> {
        let form = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let day: Date = text.parse().ok().filter(|_| form)?;
        (day.to_string() == text).then_some(Self(day))
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?)
            .ok_or_else(|| de::Error::custom("a day of the calendar is wanted, written YYYY-MM-DD"))
    }
}

/// One line of text that says something.
#[derive(Clone, Debug, PartialEq)]
struct Line<const MAX: usize>(String);

impl<'de, const MAX: usize> Deserialize<'de> for Line<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Name(text) = Name::<MAX>::deserialize(deserializer)?;
        if text.contains(char::is_control) {
            return Err(de::Error::custom("a text on one line is wanted"));
        }
        Ok(Self(text))
    }
}

/// An e-mail address, as far as its form tells. Whether it is anybody's shows when it is written to.
#[derive(Clone, Debug, PartialEq)]
struct Email(String);

impl<'de> Deserialize<'de> for Email {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Line(text) = Line::<EMAIL>::deserialize(deserializer)?;
        let halves = text.split_once('@').filter(|(local, domain)| {
            !local.is_empty() && !domain.is_empty() && !domain.contains('@') && !text.contains(char::is_whitespace)
        });
        if halves.is_none() {
            return Err(de::Error::custom("an e-mail address is wanted, such as ada@example.org"));
        }
        Ok(Self(text))
    }
}

/// A language tag in BCP 47's form: a language of two to eight letters, then subtags of letters and digits.
#[derive(Clone, Debug, PartialEq)]
struct Language(String);

impl<'de> Deserialize<'de> for Language {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(text) = Text::<LANGUAGE>::deserialize(deserializer)?;
        let mut subtags = text.split('-');
        let letters = |tag: &str| (2..=8).contains(&tag.len()) && tag.bytes().all(|byte| byte.is_ascii_alphabetic());
        let others = |tag: &str| (1..=8).contains(&tag.len()) && tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !(subtags.next().is_some_and(letters) && subtags.all(others)) {
            return Err(de::Error::custom("a language tag is wanted, such as de or pt-BR"));
        }
        Ok(Self(text))
    }
}

/// Makes a patient or replaces what is known of them. What is left out is forgotten. Sent again, it changes nothing.
#[utoipa::path(put, path = "/v1/patients/{id}", operation_id = "put_patient", tag = "Patients", params(("id" = Uuid, Path)), request_body = PatientFields, responses((status = 200, body = Patient), (status = 201, body = Patient)))]
pub async fn put(State(app): State<Arc<App>>, change: Change<PatientFields>, Ids([id]): Ids<1>) -> Answered {
    let patient = change.body.patient(id, app.clock.now())?;
    put_entry(&app, &change.asker, &change.condition, patient, format!("/v1/patients/{id}")).await
}

/// Reads a patient.
#[utoipa::path(get, path = "/v1/patients/{id}", operation_id = "get_patient", tag = "Patients", params(("id" = Uuid, Path)), responses((status = 200, body = Patient), (status = 304)))]
pub async fn get(Reading { app, ids: [id], caller, headers, .. }: Reading<1>) -> Answered {
    let found = app.insist(|connection| patients::find(connection, caller.tenant_id, id).scope_boxed()).await?;
    show(found, &headers)
}

/// Which patients.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Beginnings of words of the name, in any order and case: `beck ada` finds Ada Becker. More than 200 characters:
    /// 400.
    #[param(max_length = 200, example = "beck")]
    q: Option<String>,
    /// Patients born on that day only: YYYY-MM-DD, else 400.
    #[param(value_type = Option<String>, format = Date, example = "1984-05-17")]
    birth_date: Option<String>,
    /// Rows on a page at most, 1 to 200; 50 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came, with the other parameters unchanged. Left out: the first page. One
    /// that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
}

/// Lists patients by name. All of the group, or those with these beginnings of names and this date of birth. Follow
/// `next` until it is null.
#[utoipa::path(get, path = "/v1/patients", operation_id = "list_patients", tag = "Patients", params(ListParams), responses((status = 200, body = Page<Patient>)))]
pub async fn list(Reading { app, params, caller, .. }: Reading<0, ListParams>) -> Answered {
    let wanted = Wanted::read(params.limit.as_deref(), params.after.as_deref())?;
    // A search box that was cleared searches for nothing in particular.
    let typed = params.q.as_deref().filter(|typed| !typed.trim().is_empty());
    if typed.is_some_and(|typed| typed.chars().count() > NAME) {
        return Err(Problem::malformed("q", format!("At most {NAME} characters are wanted.")).into());
    }
    let birth_date = params.birth_date.as_deref().map(|text| {
        Day::parse(text).ok_or_else(|| Problem::malformed("birth_date", "A day of the calendar is wanted, YYYY-MM-DD."))
    });
    let birth_date = birth_date.transpose()?.map(|Day(day)| day);
    let listing = listing(&caller, None, &wanted);
    let rows = app.insist(|connection| patients::list(connection, typed, birth_date, listing).scope_boxed()).await?;
    Ok(page(rows, &wanted, |patient| Cursor::by_name((&patient.name, patient.id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(member: &str, value: &str) -> Result<Patient, String> {
        let json = format!(r#"{{"name":"Ada","{member}":"{value}"}}"#);
        let fields: PatientFields = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let now = "2026-12-01T11:00:00Z".parse().expect("a time");
        fields.patient(Uuid::nil(), now).map_err(|problem| problem.detail)
    }

    #[test]
    fn what_a_patient_may_have() {
        let good = [
            ("email", "a@b"),
            ("email", "ada.o'brien+x@example.org"),
            ("phone", "+49 (30) 23125-001 ext. 2"),
            ("language", "de"),
            ("language", "zh-Hant-TW"),
            ("language", "de-1996"),
            ("birth_date", "1850-01-01"),
            ("birth_date", "2026-12-02"),
            ("preferred_channel", "sms"),
        ];
        for (member, value) in good {
            assert!(read(member, value).is_ok(), "{member} {value}");
        }
        let bad = [
            ("email", ""),
            ("email", "ada"),
            ("email", "@b"),
            ("email", "a@"),
            ("email", "a@b@c"),
            ("email", "a b@c"),
            ("email", r"a@b\r\nBcc:c@d"),
            ("phone", " "),
            ("phone", r"1\n2"),
            ("phone", "12345678901234567890123456789012345678901"),
            ("language", ""),
            ("language", "d"),
            ("language", "de-"),
            ("language", "germanlanguage"),
            ("language", "de_DE"),
            ("birth_date", "1849-12-31"),
            ("birth_date", "2026-12-03"),
            ("birth_date", "2026-02-29"),
            ("birth_date", "1984-5-17"),
            ("birth_date", "19840517"),
            ("birth_date", "1984-W20-4"),
            ("birth_date", "1984-05-17T00:00:00Z"),
            ("preferred_channel", "fax"),
        ];
        for (member, value) in bad {
            assert!(read(member, value).is_err(), "{member} {value}");
        }
    }
}
