//! Lists of visits and of blocks, by start, then id: a page, however much has to be looked through for it.

use jiff::Timestamp;
use scoped_futures::ScopedFutureExt;
use uuid::Uuid;

use super::page::{Cursor, Page, Wanted};
use crate::app::App;
use crate::domain::access::Caller;
use crate::domain::appointment::Appointment;
use crate::domain::problem::{Code, Problem};
use crate::store::appointments::{self, Filter, Place};

/// Strides to a page at the most. Only who asks for what hardly exists among more than 100,000 visits or standing blocks, of
/// the clinic and within the range, gets a page that ends short of its limit, with a cursor to go on from.
const STRIDES: usize = 50;

/// A page's rows, and how far was looked where they are fewer than wanted and the list may go on.
pub struct Found {
    rows: Vec<Appointment>,
    reached: Option<Place>,
}

impl Found {
    /// The page as callers see it.
    pub fn page<'a, T: From<&'a Appointment>>(&'a self, wanted: &Wanted) -> Page<T> {
        let page = Page::of(self.rows.iter().collect(), wanted, |row| cursor(Place::of(row)), T::from);
        Page { next: page.next.or_else(|| self.reached.map(|place| cursor(place).encode())), ..page }
    }
}

/// Finds the rows of a clinic for a page that begins at `from`, or at the caller's cursor if that lies further on.
///
/// # Errors
/// 400 for a cursor of another list; 403 for a clinic that does not exist or is out of reach.
pub async fn find(
    app: &App,
    caller: &Caller,
    clinic: Uuid,
    filter: &Filter,
    from: Option<Timestamp>,
    wanted: &Wanted,
) -> Result<Found, Problem> {
    let mut after = begin(from, wanted.after.as_ref())?;
    if !caller.reaches(clinic) {
        return Err(Code::Forbidden.into());
    }
    let mut rows = Vec::new();
    let mut missing = wanted.rows();
    for _ in 0..STRIDES {
        let stride = app
            .insist(|connection| {
                appointments::list(connection, caller.tenant_id, clinic, filter, after, missing).scope_boxed()
            })
            .await?
            .ok_or(Code::Forbidden)?;
        missing = missing.saturating_sub_unsigned(stride.rows.len() as u64);
        rows.extend(stride.rows);
        after = stride.reached;
        if missing == 0 || after.is_none() {
            return Ok(Found { rows, reached: None });
        }
    }
    Ok(Found { rows, reached: after })
}

/// The place a page begins after.
fn begin(from: Option<Timestamp>, after: Option<&Cursor>) -> Result<Option<Place>, Problem> {
    // No row has this id, so every row that starts at `from` comes after it.
    let from = from.map(|start| Place { start, id: Uuid::nil() });
    Ok(from.max(after.map(place).transpose()?))
}

fn cursor(place: Place) -> Cursor {
    Cursor::at(place.start, place.id)
}

fn place(cursor: &Cursor) -> Result<Place, Problem> {
    Ok(Place { start: cursor.instant()?, id: cursor.id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_at_the_later_of_range_and_cursor() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let [early, late] = ["2026-12-01T08:00:00Z", "2026-12-01T08:00:00.25Z"].map(at);
        let seen = Place { start: early, id: Uuid::from_u128(7) };
        assert_eq!(begin(None, None), Ok(None));
        assert_eq!(begin(None, Some(&cursor(seen))), Ok(Some(seen)));
        assert_eq!(begin(Some(early), Some(&cursor(seen))), Ok(Some(seen)));
        let from = Some(Place { start: late, id: Uuid::nil() });
        assert_eq!(begin(Some(late), Some(&cursor(seen))), Ok(from));
        assert_eq!(begin(Some(late), None), Ok(from));
    }

    #[test]
    fn the_cursor_of_another_list_is_refused() {
        for key in ["", "ada becker", "2026-12-01T08:00:00", "-009999-01-01T00:00:00Z"] {
            let foreign = Cursor { key: key.to_owned(), id: Uuid::nil() };
            assert_eq!(begin(None, Some(&foreign)).map_err(|problem| problem.code), Err(Code::CursorInvalid), "{key}");
        }
    }
}
