//! What availability is reckoned from.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::StoreError;
use crate::domain::availability::{Person, Question, Rules};
use crate::domain::hours::OpenHours;
use crate::domain::time::Span;

/// Minutes past the range within which a visit that starts in it can end: a day's visit and a day's buffer.
const LONGEST_VISIT: i32 = 2 * 24 * 60;

/// A clinic's schedule over a range.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Who works there, with what keeps them.
    pub people: Vec<Person>,
    /// When it is closed.
    pub closures: Vec<Span>,
    /// What keeps the operatory, if one was asked for.
    pub operatory_busy: Option<Vec<Span>>,
}

impl Plan {
    /// The question of what is free in the range, for a visit of that length.
    #[must_use]
    pub fn question<'a>(
        &'a self,
        rules: &'a Rules,
        minutes: i32,
        buffer_minutes: i32,
        range: Span,
        now: Timestamp,
    ) -> Question<'a> {
        Question {
            rules,
            closures: &self.closures,
            minutes,
            buffer_minutes,
            people: &self.people,
            operatory_busy: self.operatory_busy.as_deref(),
            range,
            now,
        }
    }
}

/// Reads what bears on visits that start in the range; of one practitioner, or of all.
///
/// # Errors
/// As [`StoreError`].
pub async fn read(
    connection: &mut PgConnection,
    tenant: Uuid,
    clinic: Uuid,
    range: Span,
    practitioner: Option<Uuid>,
    operatory: Option<Uuid>,
) -> Result<Plan, StoreError> {
    let until = Span::from_length(range.end, LONGEST_VISIT).end;
    let rows = sqlx::query_file!(
        "src/store/schedule.sql",
        tenant,
        clinic,
        range.start.to_sqlx(),
        until.to_sqlx(),
        practitioner,
        operatory
    )
    .fetch_all(connection)
    .await?;
    let mut plan = Plan { operatory_busy: operatory.map(|_| Vec::new()), ..Plan::default() };
    let mut busy: HashMap<Uuid, Vec<Span>> = HashMap::new();
    for row in rows {
        let span = row.start.zip(row.end).map(|(start, end)| Span { start: start.to_jiff(), end: end.to_jiff() });
        match (row.kind.as_str(), row.id, span) {
            ("person", Some(practitioner_id), _) => {
                plan.people.push(Person {
                    practitioner_id,
                    hours: row.hours.map(|Json(hours)| hours),
                    busy: Vec::new(),
                });
            }
            ("busy", Some(id), Some(span)) => busy.entry(id).or_default().push(span),
            ("operatory", _, Some(span)) => plan.operatory_busy.get_or_insert_default().push(span),
            ("closure", _, Some(span)) => plan.closures.push(span),
            _ => {}
        }
    }
    for person in &mut plan.people {
        person.busy = busy.remove(&person.practitioner_id).unwrap_or_default();
    }
    Ok(plan)
}
