//! A put into the directory: look, decide, commit, and look again when something went stale. It needs no key, since it
//! says what is to stand: sent twice it changes nothing the second time, and nothing is stored of it but its audit row.

use scoped_futures::ScopedFutureExt;
use tokio::time::{Instant, sleep};

use super::IfMatch;
use super::run::{Commands, PAUSE_MILLIS};
use crate::clock::Pauses;
use crate::domain::problem::{Code, Problem};
use crate::store::StoreError;
use crate::store::audit::AuditNote;
use crate::store::commit::Asker;
use crate::store::directory::{Entry, Outcome, Sight};

/// The preconditions of a put (RFC 9110, section 13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `If-Match`: what stands there must be one of these; `*` is anything at all.
    pub if_match: Option<IfMatch>,
    /// `If-None-Match`: what stands there must be none of these; `*` allows nothing, so the row is only made.
    pub if_none_match: Option<IfMatch>,
}

impl Condition {
    /// Holds it against the version of what stands there.
    ///
    /// # Errors
    /// 412 where it does not hold.
    pub fn check(&self, version: i32) -> Result<(), Problem> {
        if self.holds(Some(version)) { Ok(()) } else { Err(mismatch(Some(version))) }
    }

    /// Whether a row of that version may be there; none is no row.
    fn holds(&self, version: Option<i32>) -> bool {
        let is = |tags: &IfMatch| version.is_some_and(|version| tags.names(version));
        self.if_match.as_ref().is_none_or(is) && !self.if_none_match.as_ref().is_some_and(is)
    }
}

/// What a put came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Put<T> {
    /// As it stands now.
    pub row: T,
    /// Whether it was not there before.
    pub created: bool,
}

/// What is to be done about a put.
#[derive(Clone, Debug, PartialEq)]
enum Decision<T> {
    /// Nothing: it stands like that already.
    Stands(T),
    /// Make it.
    Make,
    /// Put it in place of this.
    Replace(T),
}

/// Decides on what was seen. The order is API.md's: a clinic named in the body, a row in the path, then its state.
fn decide<T: Entry>(entry: &T, sight: Sight<T>, condition: &Condition) -> Result<Decision<T>, Problem> {
    if !sight.clinic {
        return Err(Code::Forbidden.into());
    }
    if sight.row.is_none() && !sight.vacant {
        return Err(Code::NotFound.into());
    }
    let version = sight.row.as_ref().map(T::version);
    if !condition.holds(version) {
        return Err(mismatch(version));
    }
    Ok(match sight.row {
        None => Decision::Make,
        Some(row) if entry.clone().at_version(row.version()) == row => Decision::Stands(row),
        Some(row) => Decision::Replace(row),
    })
}

fn mismatch(version: Option<i32>) -> Problem {
    match version {
        None => Problem::new(Code::VersionMismatch, "There is no such thing yet."),
        Some(version) => {
            Problem::new(Code::VersionMismatch, format!("It is at version {version}.")).with("version", version)
        }
    }
}

impl Commands {
    /// Puts something into the directory.
    ///
    /// # Errors
    /// 403 for a clinic in the body, 404 for a row in the path, 412 for a precondition, 409 for a move of booked rows, 503
    /// past the deadline.
    pub async fn put<T: Entry>(&self, asker: &Asker, entry: T, condition: &Condition) -> Result<Put<T>, Problem> {
        let deadline = Instant::now() + self.bounds.deadline;
        let mut pauses = Pauses::new(PAUSE_MILLIS);
        // The row as a try wrote it whose answer was lost, if it wrote it.
        let mut in_doubt: Option<T> = None;
        loop {
            let entry = &entry;
            let sight = self.insist(deadline, |connection| entry.look(connection, &asker.caller).scope_boxed()).await?;
            if let (Some(row), Some(wrote)) = (&sight.row, &in_doubt)
                && row == wrote
            {
                return Ok(Put { row: row.clone(), created: wrote.version() == 1 });
            }
            let (seen, version) = match decide(entry, sight, condition)? {
                Decision::Stands(row) => return Ok(Put { row, created: false }),
                Decision::Make => (None, 1),
                Decision::Replace(row) => (Some(row.clone()), row.version() + 1),
            };
            match self.write_put(deadline, asker, entry, seen.as_ref()).await? {
                Some(Outcome::Done) => {
                    return Ok(Put { row: entry.clone().at_version(version), created: seen.is_none() });
                }
                Some(Outcome::InUse) => return Err(Code::InUse.into()),
                None => in_doubt = Some(entry.clone().at_version(version)),
                Some(Outcome::Stale) => {}
            }
            if Instant::now() >= deadline {
                return Err(Code::Unavailable.into());
            }
            sleep(pauses.draw(&self.ids)).await;
        }
    }

    /// One try to write. Nothing is known of it when the connection is lost: what it did shows in the next look.
    async fn write_put<T: Entry>(
        &self,
        deadline: Instant,
        asker: &Asker,
        entry: &T,
        seen: Option<&T>,
    ) -> Result<Option<Outcome>, Problem> {
        let at = self.clock.now();
        let note = &AuditNote { id: self.ids.uuid(at), at, operation: T::OPERATION, asker };
        match self.store.once(deadline, |connection| entry.write(connection, seen, note).scope_boxed()).await {
            Ok(written) => Ok(Some(written)),
            Err(StoreError::Again(_)) => Ok(Some(Outcome::Stale)),
            Err(StoreError::Gone(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::directory::Practitioner;

    fn row(name: &str, version: i32) -> Practitioner {
        Practitioner { id: Uuid::from_u128(1), name: name.to_owned(), active: true, version }
    }

    fn sees(row: Option<Practitioner>) -> Sight<Practitioner> {
        Sight { clinic: true, vacant: row.is_none(), row }
    }

    fn code(decided: Result<Decision<Practitioner>, Problem>) -> Option<Code> {
        decided.err().map(|problem| problem.code)
    }

    #[test]
    fn what_stands_already_is_left_alone() {
        let always = Condition::default();
        let asked = row("Mira", 0);
        assert_eq!(decide(&asked, sees(None), &always), Ok(Decision::Make));
        assert_eq!(decide(&asked, sees(Some(row("Mira", 3))), &always), Ok(Decision::Stands(row("Mira", 3))));
        assert_eq!(decide(&asked, sees(Some(row("Mila", 3))), &always), Ok(Decision::Replace(row("Mila", 3))));
    }

    #[test]
    fn a_clinic_in_the_body_is_refused_before_a_row_in_the_path() {
        let never = Condition { if_match: Some(IfMatch::Versions(vec![])), if_none_match: None };
        let unseen = |clinic| Sight { clinic, row: None, vacant: false };
        assert_eq!(code(decide(&row("Mira", 0), unseen(false), &never)), Some(Code::Forbidden));
        assert_eq!(code(decide(&row("Mira", 0), unseen(true), &never)), Some(Code::NotFound));
    }

    #[test]
    fn preconditions_are_http_s() {
        let any = || Some(IfMatch::Any);
        let is = |versions: &[i32]| Some(IfMatch::Versions(versions.to_vec()));
        let holds = |if_match, if_none_match, version| Condition { if_match, if_none_match }.holds(version);
        assert_eq!([None, Some(2)].map(|version| holds(None, None, version)), [true, true]);
        assert_eq!([None, Some(2), Some(3)].map(|version| holds(is(&[1, 2]), None, version)), [false, true, false]);
        assert_eq!([None, Some(2)].map(|version| holds(any(), None, version)), [false, true]);
        assert_eq!([None, Some(2)].map(|version| holds(None, any(), version)), [true, false]);
        assert_eq!([None, Some(2), Some(3)].map(|version| holds(None, is(&[2]), version)), [true, false, true]);
    }
}
