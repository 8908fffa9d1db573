//! Pages of a list: so many rows, and a cursor to what follows them. A cursor is a place in the order (a sort key and an id
//! to tell equal keys apart), not a count of rows, so rows that come and go elsewhere neither repeat nor hide others.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::domain::problem::{Code, Problem};
use crate::domain::time::{Written, canonical_text, parse_written};

/// Rows on a page when the caller does not say.
const USUAL: u16 = 50;

/// Rows on a page at the most (API.md, "Appointments").
const MOST: u16 = 200;

/// First byte of a cursor; another form of cursor would get another.
const FORM: u8 = 1;

/// Longest sort key that is taken back, in bytes: the longest name there is, four bytes a character, and some.
const LONGEST_KEY: usize = 1024;

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The page's rows, in the list's order.
    pub items: Vec<T>,
    /// What to send as `after` for the page that follows; null on the last one.
    #[schema(required, example = "AQGV88BrHn1Cmlc_HC6NS2BhZGEgYmVja2Vy")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A page of what a statement found that was asked for one row more than the page holds ([`Wanted::rows`]). `place` is
    /// where a row stands in the order, `view` what the caller sees of it.
    pub fn of<R>(
        mut rows: Vec<R>,
        wanted: &Wanted,
        place: impl FnOnce(&R) -> Cursor,
        view: impl FnMut(R) -> T,
    ) -> Self {
        let limit = usize::from(wanted.limit);
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|last| place(last).encode());
        Self { items: rows.into_iter().map(view).collect(), next }
    }
}

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Rows on a page at most, 1 to 200; 50 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came, with the other parameters unchanged. Left out: the first page. One
    /// that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
}

impl PageParams {
    /// The page.
    ///
    /// # Errors
    /// As [`Wanted::read`].
    pub fn wanted(&self) -> Result<Wanted, Problem> {
        Wanted::read(self.limit.as_deref(), self.after.as_deref())
    }
}

/// Which page of a list that may be of one clinic.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ClinicPageParams {
    /// What is of this clinic only; left out, of all clinics within the credential's reach. One that does not exist or
    /// is outside the credential's clinics: 403.
    pub clinic_id: Option<Uuid>,
    /// Rows on a page at most, 1 to 200; 50 when left out. Anything else: 400.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
    /// The `next` of the page before, as it came, with the other parameters unchanged. Left out: the first page. One
    /// that we did not give out: 400 `cursor_invalid`.
    after: Option<String>,
}

impl ClinicPageParams {
    /// The page.
    ///
    /// # Errors
    /// As [`Wanted::read`].
    pub fn wanted(&self) -> Result<Wanted, Problem> {
        Wanted::read(self.limit.as_deref(), self.after.as_deref())
    }
}

/// Which page a caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Rows on it at the most.
    limit: u16,
    /// It begins after this place, or at the beginning.
    pub after: Option<Cursor>,
}

impl Wanted {
    /// Reads the parameters `limit` and `after`.
    ///
    /// # Errors
    /// 400: a limit outside 1 to 200, or a cursor that is not one of ours.
    pub fn read(limit: Option<&str>, after: Option<&str>) -> Result<Self, Problem> {
        Ok(Self { limit: self::limit(limit)?, after: after.map(Cursor::decode).transpose()? })
    }

    /// How many rows to ask the database for: one more than the page holds tells whether another page follows.
    #[must_use]
    pub fn rows(&self) -> i64 {
        i64::from(self.limit) + 1
    }
}

fn limit(text: Option<&str>) -> Result<u16, Problem> {
    let Some(text) = text else { return Ok(USUAL) };
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| digits && (1..=MOST).contains(limit));
    limit.ok_or_else(|| Problem::malformed("limit", format!("A limit from 1 to {MOST} is wanted.")))
}

/// A place in the order of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// What the list is ordered by.
    pub key: String,
    /// Tells equal keys apart.
    pub id: Uuid,
}

impl Cursor {
    /// A place in an order by name.
    #[must_use]
    pub fn by_name((name, id): (&str, Uuid)) -> Self {
        Self { key: name.to_owned(), id }
    }

    /// A place in an order by time.
    #[must_use]
    pub fn at(instant: Timestamp, id: Uuid) -> Self {
        Self { key: canonical_text(instant), id }
    }

    /// The time of such a place. Four-digit years only: Postgres fails at some of jiff's others.
    ///
    /// # Errors
    /// 400 `cursor_invalid` for a place in another order.
    pub fn instant(&self) -> Result<Timestamp, Problem> {
        match parse_written(&self.key) {
            Ok(Written::Instant(instant)) => Ok(instant),
            _ => Err(Code::CursorInvalid.into()),
        }
    }

    /// A place in the history of a row.
    #[must_use]
    pub fn at_version(row: Uuid, version: i32) -> Self {
        Self { key: version.to_string(), id: row }
    }

    /// The version of such a place.
    ///
    /// # Errors
    /// 400 `cursor_invalid` for a place elsewhere, in another row's history included.
    pub fn version(&self, row: Uuid) -> Result<i32, Problem> {
        let version = self.key.parse().ok().filter(|_| self.id == row);
        version.ok_or_else(|| Code::CursorInvalid.into())
    }

    /// As it travels: opaque to callers.
    #[must_use]
    pub fn encode(&self) -> String {
        let bytes = [&[FORM], self.id.as_bytes().as_slice(), self.key.as_bytes()].concat();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads one that we gave out.
    ///
    /// # Errors
    /// 400 `cursor_invalid` for anything else.
    pub fn decode(text: &str) -> Result<Self, Problem> {
        Self::read(text).ok_or_else(|| Code::CursorInvalid.into())
    }

    fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (id, key) = bytes.strip_prefix(&[FORM])?.split_first_chunk::<16>()?;
        let key = std::str::from_utf8(key).ok()?;
        // Postgres cannot take a NUL, and none of our keys has one.
        let ours = key.len() <= LONGEST_KEY && !key.contains('\0');
        ours.then(|| Self { key: key.to_owned(), id: Uuid::from_bytes(*id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(key: &str) -> Cursor {
        Cursor { key: key.to_owned(), id: Uuid::from_u128(7) }
    }

    #[test]
    fn a_cursor_comes_back_as_it_went() {
        for key in ["", "ada becker", "Ärzte & Söhne/+", "2026-12-01T08:00:00Z", &"𝔞".repeat(200)] {
            assert_eq!(Cursor::decode(&cursor(key).encode()), Ok(cursor(key)), "{key}");
        }
    }

    #[test]
    fn what_we_did_not_give_out_is_refused() {
        let good = cursor("ada").encode();
        let (short, other_form) = (URL_SAFE_NO_PAD.encode([FORM; 16]), URL_SAFE_NO_PAD.encode([2; 20]));
        let not_text = URL_SAFE_NO_PAD.encode([&[FORM], [0; 16].as_slice(), &[0xff]].concat());
        let (nul, long) = (cursor("a\0").encode(), cursor(&"a".repeat(LONGEST_KEY + 1)).encode());
        for text in ["", "1", "null", "%", &good[1..], &format!("{good}="), &short, &other_form, &not_text, &nul, &long]
        {
            assert_eq!(Cursor::decode(text).map_err(|problem| problem.code), Err(Code::CursorInvalid), "{text}");
        }
    }

    #[test]
    fn a_place_in_time_is_one_postgres_can_take() {
        let at: Timestamp = "2026-12-01T08:00:00.000001Z".parse().expect("a time");
        assert_eq!(Cursor::at(at, Uuid::nil()).instant(), Ok(at));
        for key in ["", "ada", "-009999-01-01T00:00:00Z", "2026-12-01T08:00:00"] {
            assert_eq!(cursor(key).instant().map_err(|problem| problem.code), Err(Code::CursorInvalid), "{key}");
        }
    }

    #[test]
    fn a_place_in_a_history_is_of_that_history() {
        let (row, other) = (Uuid::from_u128(7), Uuid::from_u128(8));
        assert_eq!(Cursor::at_version(row, 12).version(row), Ok(12));
        for (cursor, row) in [(Cursor::at_version(row, 12), other), (cursor("ada"), row), (cursor("2147483648"), row)] {
            assert_eq!(cursor.version(row).map_err(|problem| problem.code), Err(Code::CursorInvalid), "{cursor:?}");
        }
    }

    #[test]
    fn a_limit_is_from_1_to_200() {
        assert_eq!([None, Some("1"), Some("200")].map(|text| limit(text).ok()), [Some(50), Some(1), Some(200)]);
        for text in ["", "0", "201", "-1", "+5", "5.0", "1e2", "many", "99999999999999999999"] {
            assert_eq!(limit(Some(text)).map_err(|problem| problem.code), Err(Code::MalformedRequest), "{text}");
        }
    }

    #[test]
    fn only_a_page_with_more_behind_it_has_a_next() {
        let wanted = Wanted::read(Some("2"), None).expect("a page");
        assert_eq!(wanted.rows(), 3);
        let page = |keys: &[&str]| Page::of(keys.to_vec(), &wanted, |key| cursor(key), str::len);
        assert_eq!((page(&["a", "bb"]).items, page(&["a", "bb"]).next), (vec![1, 2], None));
        let full = page(&["a", "bb", "ccc"]);
        assert_eq!((full.items, full.next), (vec![1, 2], Some(cursor("bb").encode())));
    }
}
