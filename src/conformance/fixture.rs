//! Clinics to check in: made afresh through the directory, with slots nobody else wants, or the demo clinic.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _};
use serde_json::{Value, json};

use super::answer::Answer;
use super::call::{Call, Client};
use super::case::{About as _, Verdict, failed};
use super::database::Tally;
use super::world::World;

/// What a fresh clinic is to be like.
pub(super) struct Settings {
    pub(super) zone: &'static str,
    pub(super) slot_minutes: u32,
    pub(super) allow_overbooking: bool,
    pub(super) min_notice_minutes: u32,
    pub(super) horizon_days: u32,
    pub(super) key_retention_days: u32,
    pub(super) hours: Value,
    pub(super) practitioners: usize,
    pub(super) operatories: usize,
    pub(super) patients: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            zone: "Europe/Berlin",
            slot_minutes: 15,
            allow_overbooking: false,
            min_notice_minutes: 0,
            horizon_days: 730,
            key_retention_days: 7,
            hours: hours(&WEEK[..6], "08:00", "18:00"),
            practitioners: 2,
            operatories: 2,
            patients: 3,
        }
    }
}

/// The days, in the words of API.md.
pub(super) const WEEK: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The same hours on each of these days.
pub(super) fn hours(days: &[&str], opens: &str, closes: &str) -> Value {
    days.iter().map(|day| json!({"weekday": day, "opens": opens, "closes": closes})).collect()
}

/// Open all week, day and night.
pub(super) fn round_the_clock() -> Value {
    hours(&WEEK, "00:00", "24:00")
}

/// A practitioner's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) practitioner: String,
    pub(super) patient: String,
    pub(super) start: Timestamp,
}

impl Slot {
    /// The same, so many minutes later.
    pub(super) fn later(&self, minutes: i64) -> Self {
        Self { start: plus(self.start, minutes), ..self.clone() }
    }
}

/// An instant, so many minutes later.
pub(super) fn plus(instant: Timestamp, minutes: i64) -> Timestamp {
    instant.checked_add(minutes.minutes()).unwrap_or(instant)
}

/// An appointment made for a check, and how.
pub(super) struct Booked {
    pub(super) id: String,
    pub(super) slot: Slot,
    /// The request, key included.
    pub(super) call: Call,
    pub(super) key: String,
    pub(super) answer: Answer,
}

/// A clinic, and the credential that acts in it.
pub(super) struct Place<'a> {
    pub(super) world: &'a World,
    pub(super) client: Client,
    pub(super) clinic: String,
    pub(super) zone: TimeZone,
    pub(super) practitioners: Vec<String>,
    pub(super) operatories: Vec<String>,
    /// 15, 30 and 60 minutes.
    pub(super) services: Vec<String>,
    pub(super) patients: Vec<String>,
    first_day: Date,
    next: AtomicUsize,
    /// The slots are ours alone, so they can be counted off; otherwise availability is asked.
    own: bool,
}

impl<'a> Place<'a> {
    /// A fresh clinic like the demo clinic.
    pub(super) async fn fresh(world: &'a World) -> Verdict<Self> {
        Self::with(world, Settings::default()).await
    }

    /// A fresh clinic of this kind, with everything it needs.
    pub(super) async fn with(world: &'a World, settings: Settings) -> Verdict<Self> {
        Self::of_id(world, world.id(), settings).await
    }

    /// The same, of an id that may have been used before: what it has is its own, whatever else there is.
    pub(super) async fn of_id(world: &'a World, clinic: String, settings: Settings) -> Verdict<Self> {
        let Ok(zone) = TimeZone::get(settings.zone) else { return failed("a known zone", settings.zone) };
        let many = |count: usize| (0..count).map(|_| world.id()).collect::<Vec<_>>();
        let place = Self {
            client: world.admin().clone(),
            clinic,
            practitioners: many(settings.practitioners),
            operatories: many(settings.operatories),
            services: many(3),
            patients: many(settings.patients),
            first_day: a_monday(world, &zone),
            zone,
            world,
            next: AtomicUsize::new(0),
            own: true,
        };
        place.settle(&settings).await?;
        for practitioner in &place.practitioners {
            place
                .put(&format!("/v1/practitioners/{practitioner}"), &json!({"name": "Dr. Ada", "active": true}))
                .await?;
            let membership = format!("/v1/practitioners/{practitioner}/clinics/{}", place.clinic);
            place.put(&membership, &json!({"active": true})).await?;
        }
        for operatory in &place.operatories {
            let body = json!({"clinic_id": place.clinic, "name": "Room", "active": true});
            place.put(&format!("/v1/operatories/{operatory}"), &body).await?;
        }
        for (service, minutes) in place.services.iter().zip([15, 30, 60]) {
            place.put(&format!("/v1/services/{service}"), &place.service(minutes, 0)).await?;
        }
        for patient in &place.patients {
            place.put(&format!("/v1/patients/{patient}"), &patient_body()).await?;
        }
        Ok(place)
    }

    /// The demo clinic, under one of its credentials.
    pub(super) fn demo(world: &'a World, client: Client) -> Verdict<Self> {
        let dev = world.dev()?;
        let zone = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC);
        Ok(Self {
            client,
            clinic: dev.clinic_id.clone(),
            practitioners: dev.practitioner_ids.clone(),
            operatories: dev.operatory_ids.clone(),
            services: dev.service_ids.clone(),
            patients: dev.patient_ids.clone(),
            first_day: a_monday(world, &zone),
            zone,
            world,
            next: AtomicUsize::new(0),
            own: false,
        })
    }

    /// Whatever clinic this credential is shown first: for groups of which nothing else is known.
    pub(super) async fn first_of(world: &'a World, client: Client) -> Verdict<Self> {
        let mut ids = Vec::new();
        let clinic = listed_ids(&client, "/v1/clinics").await?.into_iter().next().unwrap_or_default();
        for list in ["practitioners", "operatories", "services", "patients"] {
            let query = if list == "patients" { String::new() } else { format!("?clinic_id={clinic}") };
            ids.push(listed_ids(&client, &format!("/v1/{list}{query}")).await?);
        }
        let [practitioners, operatories, services, patients] = <[Vec<String>; 4]>::try_from(ids).unwrap_or_default();
        let zone = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::UTC);
        let first_day = a_monday(world, &zone);
        let next = AtomicUsize::new(0);
        Ok(Self {
            world,
            client,
            clinic,
            zone,
            practitioners,
            operatories,
            services,
            patients,
            first_day,
            next,
            own: false,
        })
    }

    /// Puts the clinic and its hours as these settings say, whatever they were.
    pub(super) async fn settle(&self, settings: &Settings) -> Verdict {
        let body = json!({
            "name": "Conformance", "time_zone": settings.zone, "slot_minutes": settings.slot_minutes,
            "allow_overbooking": settings.allow_overbooking, "min_notice_minutes": settings.min_notice_minutes,
            "horizon_days": settings.horizon_days, "key_retention_days": settings.key_retention_days,
        });
        self.put(&format!("/v1/clinics/{}", self.clinic), &body).await?;
        self.put(&format!("/v1/clinics/{}/hours", self.clinic), &settings.hours).await?;
        Ok(())
    }

    /// Puts something into the directory, as the administrator.
    pub(super) async fn put(&self, path: &str, body: &Value) -> Verdict<Answer> {
        let answer = self.world.admin().put(path).json(body).send().await?;
        answer.ensure(matches!(answer.status, 200 | 201 | 204), "the directory to take it").about("set-up")?;
        Ok(answer)
    }

    /// A service of this clinic, of this length.
    pub(super) fn service(&self, minutes: u32, buffer_minutes: u32) -> Value {
        json!({"clinic_id": self.clinic, "name": "Check-up", "minutes": minutes, "buffer_minutes": buffer_minutes, "active": true})
    }

    /// A slot that is free, on a working day within opening hours.
    pub(super) async fn slot(&self) -> Verdict<Slot> {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let patient = self.patients.get(count % self.patients.len().max(1)).cloned().unwrap_or_default();
        if !self.own {
            return self.offered(patient).await;
        }
        // Nine hours a day from 08:00, so that an hour's visit fits; Monday to Friday.
        let (seat, hour) = (count % self.practitioners.len(), count / self.practitioners.len());
        let (day, hour) = (hour / 9, 8 + hour % 9);
        let practitioner = self.practitioners.get(seat).cloned().unwrap_or_default();
        Ok(Slot { practitioner, patient, start: self.at(self.working_day(day), hour, 0) })
    }

    /// The first practitioner's slot of an hour in which every practitioner is free still.
    pub(super) async fn untouched_hour(&self) -> Verdict<Slot> {
        // Slots come by the hour, one practitioner after the other.
        loop {
            let slot = self.slot().await?;
            if self.practitioners.first() == Some(&slot.practitioner) {
                return Ok(slot);
            }
        }
    }

    /// The working day of this number, from the place's first.
    pub(super) fn working_day(&self, number: usize) -> Date {
        let days = i64::try_from(number / 5 * 7 + number % 5).unwrap_or(0);
        self.first_day.checked_add(days.days()).unwrap_or(self.first_day)
    }

    /// A local time here, as an instant.
    pub(super) fn at(&self, day: Date, hour: usize, minute: usize) -> Timestamp {
        let (hour, minute) = (i8::try_from(hour).unwrap_or(0), i8::try_from(minute).unwrap_or(0));
        let zoned = day.at(hour, minute, 0, 0).to_zoned(self.zone.clone());
        zoned.map_or(Timestamp::UNIX_EPOCH, |zoned| zoned.timestamp())
    }

    async fn offered(&self, patient: String) -> Verdict<Slot> {
        for _ in 0..20 {
            let days = 30 + i64::try_from(self.world.below(570)).unwrap_or(0);
            let from = self.world.now().checked_add(Span::new().hours(days * 24)).unwrap_or(Timestamp::MAX);
            let slots = self.availability(self.half_hour(), from, plus(from, 24 * 60), "").await?;
            let Some(slot) = slots.get(self.world.below(slots.len() as u64)) else { continue };
            let start = slot["start"].as_str().unwrap_or_default().parse();
            let Ok(start) = start else { return failed("a start with its offset", slot.to_string()) };
            return Ok(Slot { practitioner: text(slot, "practitioner_id"), patient, start });
        }
        failed("an opening within the next 600 days", "20 random days without one")
    }

    /// What is offered for a service within these bounds; `more` is appended to the query.
    pub(super) async fn availability(
        &self,
        service: Option<&String>,
        from: Timestamp,
        to: Timestamp,
        more: &str,
    ) -> Verdict<Vec<Value>> {
        let service = service.map(String::as_str).unwrap_or_default();
        let path = format!("/v1/availability?clinic_id={}&service_id={service}&from={from}&to={to}{more}", self.clinic);
        let answer = self.client.get(path).send().await?;
        let slots = answer.is(200)?.json()?["slots"].as_array().cloned();
        slots.map_or_else(|| answer.ensure(false, "{\"slots\":[…]}").map(|_| vec![]), Ok)
    }

    /// The service of half an hour; of a group of which nothing is known, whatever it has.
    fn half_hour(&self) -> Option<&String> {
        self.services.get(1).or(self.services.first())
    }

    /// The body of a half-hour's booking.
    pub(super) fn booking(&self, slot: &Slot) -> Value {
        json!({
            "clinic_id": self.clinic, "patient_id": slot.patient, "practitioner_id": slot.practitioner,
            "service_id": self.half_hour(), "start": slot.start.to_string(),
        })
    }

    /// A half-hour's booking, without a key.
    pub(super) fn book_call(&self, slot: &Slot) -> Call {
        self.client.post("/v1/appointments").json(&self.booking(slot))
    }

    /// Books the next free slot.
    pub(super) async fn book(&self) -> Verdict<Booked> {
        let slot = self.slot().await?;
        self.booked(slot.clone(), self.book_call(&slot)).await
    }

    /// Sends a booking under a new key, which must succeed.
    pub(super) async fn booked(&self, slot: Slot, call: Call) -> Verdict<Booked> {
        let key = self.world.key();
        let call = call.key(&key);
        let answer = call.send().await?;
        let id = answer.is(201)?.replayed(false)?.member("id")?;
        Ok(Booked { id, slot, call, key, answer })
    }

    /// A command on an appointment, without a key.
    pub(super) fn act(&self, id: &str, action: &str) -> Call {
        let call = self.client.post(format!("/v1/appointments/{id}/{action}"));
        // The others that are complete without a body have nothing to say in one.
        if action == "cancel" { call.json(&json!({})) } else { call }
    }

    /// Commands on an appointment, one after another, each under a new key; all must succeed.
    pub(super) async fn acts(&self, id: &str, actions: &[&str]) -> Verdict {
        for action in actions {
            self.act(id, action).key(&self.world.key()).send().await?.is(200).about("set-up")?;
        }
        Ok(())
    }

    /// Rows as they are now, if they can be counted.
    pub(super) async fn tally(&self) -> Verdict<Tally<'a>> {
        let counting = match self.world.database_if_any() {
            None => None,
            Some(database) => Some((database, database.counts(&self.clinic).await?)),
        };
        Ok(Tally { counting, clinic: self.clinic.clone() })
    }
}

/// A patient who can be told things.
pub(super) fn patient_body() -> Value {
    json!({"name": "Grace Example", "email": "grace@example.org", "language": "en", "preferred_channel": "email"})
}

/// A text member; empty where there is none.
pub(super) fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

/// A member that is an instant.
pub(super) fn instant(value: &Value, member: &str) -> Option<Timestamp> {
    value[member].as_str()?.parse().ok()
}

/// A member that is a time on a wall: no offset, no zone.
pub(super) fn wall_clock(value: &Value, member: &str) -> Option<DateTime> {
    value[member].as_str()?.parse().ok()
}

async fn listed_ids(client: &Client, path: &str) -> Verdict<Vec<String>> {
    let answer = client.get(path).send().await?;
    Ok(answer.is(200)?.items()?.iter().map(|item| text(item, "id")).collect())
}

/// A Monday 30 to 500 days ahead: far enough for every notice, near enough for every horizon.
fn a_monday(world: &World, zone: &TimeZone) -> Date {
    let today = world.now().to_zoned(zone.clone()).date();
    let day = today.checked_add(i64::try_from(30 + world.below(470)).unwrap_or(30).days()).unwrap_or(today);
    day.nth_weekday(1, jiff::civil::Weekday::Monday).unwrap_or(day)
}
