//! The directory's tables: one file per family, and what all of them have in common.
//!
//! A put is looked at, decided on and written like a command (`command/put.rs`). The write is one upsert, guarded by the
//! version that was seen: it never sets a key column, so it takes no lock that a booking's foreign keys would wait for.

use sqlx::postgres::{PgConnection, PgQueryResult};
use uuid::Uuid;

use super::StoreError;
use super::audit::AuditNote;
use crate::domain::access::Caller;

pub mod clinics;
pub mod notifications;
pub mod operatories;
pub mod patients;
pub mod practitioners;
pub mod services;

/// Something that is put into the directory: how it is found and how it is written.
pub trait Entry: Clone + PartialEq + Send + Sync + 'static {
    /// What the audit calls the change.
    const OPERATION: &'static str;

    /// Its version.
    fn version(&self) -> i32;

    /// The same under another version.
    #[must_use]
    fn at_version(self, version: i32) -> Self;

    /// Looks at what stands in its place.
    ///
    /// # Errors
    /// As [`StoreError`].
    fn look(
        &self,
        connection: &mut PgConnection,
        caller: &Caller,
    ) -> impl Future<Output = Result<Sight<Self>, StoreError>> + Send;

    /// Writes it and the change's audit row: in place of what was seen, if that still stands, or as a new row.
    ///
    /// # Errors
    /// As [`StoreError`].
    fn write(
        &self,
        connection: &mut PgConnection,
        seen: Option<&Self>,
        note: &AuditNote<'_>,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + Send;
}

/// What a put sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight<T> {
    /// Whether the clinic its body names is there and within the caller's reach; true where it names none.
    pub clinic: bool,
    /// What stands in its place, if that is within reach.
    pub row: Option<T>,
    /// Whether the caller may make it: nothing stands in its place, seen or unseen.
    pub vacant: bool,
}

impl<T> Sight<T> {
    /// Of what stands in its place, if anything does, and whether that is within the caller's reach.
    fn of(row: Option<T>, reached: impl FnOnce(&T) -> bool) -> Self {
        Self { clinic: true, vacant: row.is_none(), row: row.filter(reached) }
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stands.
    Done,
    /// Nothing was written: what was seen has changed.
    Stale,
    /// Nothing was written: booked rows would have moved to another clinic.
    InUse,
}

impl Outcome {
    /// By the number of audit rows, which are derived from the written one.
    fn of(done: &PgQueryResult) -> Self {
        if done.rows_affected() == 0 { Self::Stale } else { Self::Done }
    }

    /// The same for a statement that moves rows to another clinic, which the bookings' foreign key may forbid.
    fn of_move(result: Result<PgQueryResult, sqlx::Error>, foreign_key: &str) -> Result<Self, StoreError> {
        match result {
            Ok(done) => Ok(Self::of(&done)),
            Err(sqlx::Error::Database(error)) if error.constraint() == Some(foreign_key) => Ok(Self::InUse),
            Err(error) => Err(error.into()),
        }
    }
}

/// What is listed by name, whatever its case, then by id.
pub trait Named: Send + Sized {
    /// Its place in that order.
    fn place(&self) -> (&str, Uuid);

    /// Lists it.
    ///
    /// # Errors
    /// As [`StoreError`].
    fn list(
        connection: &mut PgConnection,
        listing: Listing<'_>,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send;
}

/// Which rows of a list are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// Whose.
    pub tenant: Uuid,
    /// Of these clinics only; none stands for all of the group.
    pub clinics: Option<&'a [Uuid]>,
    /// After this name and id.
    pub after: Option<(&'a str, Uuid)>,
    /// So many at the most.
    pub rows: i64,
}

impl Listing<'_> {
    /// What a list by name goes on after, or begins after: no name is empty, so that comes before them all.
    fn after_name(&self) -> (&str, Uuid) {
        self.after.unwrap_or_default()
    }
}
