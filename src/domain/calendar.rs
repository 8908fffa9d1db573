//! A visit as an iCalendar object (RFC 5545), sent as an invitation or its cancellation (iTIP, RFC 5546). Its UID is the
//! appointment's and its SEQUENCE the schedule's version, so that a calendar moves what it has instead of adding to it.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::template::one_line;
use super::time::Span;

/// Octets of a line at the most, its break not counted (RFC 5545, section 3.1).
const LINE: usize = 75;

/// A visit, for a calendar.
#[derive(Clone, Copy, Debug)]
pub struct Invitation<'a> {
    /// The appointment.
    pub appointment: Uuid,
    /// The version of its schedule.
    pub schedule_version: i32,
    /// Whether it is called off.
    pub cancelled: bool,
    /// When this was written.
    pub written_at: Timestamp,
    /// The visit.
    pub during: Span,
    /// What it is.
    pub summary: &'a str,
    /// Where it is.
    pub location: &'a str,
    /// Who invites: the clinic's name and the address mails come from.
    pub organizer: (&'a str, &'a str),
    /// Who is invited: the patient's name and address.
    pub attendee: (&'a str, &'a str),
}

impl Invitation<'_> {
    /// The iTIP method: it stands in the object and in the part's content type.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        if self.cancelled { "CANCEL" } else { "REQUEST" }
    }

    /// The object, its lines folded and ended as the RFC wants them.
    #[must_use]
    pub fn text(&self) -> String {
        let person = |property: &str, (name, address): (&str, &str), more: &str| {
            format!("{property};CN=\"{}\"{more}:mailto:{}", quoted(name), one_line(address))
        };
        let lines = [
            "BEGIN:VCALENDAR".to_owned(),
            "VERSION:2.0".to_owned(),
            "PRODID:-//Oncebook//Oncebook//EN".to_owned(),
            format!("METHOD:{}", self.method()),
            "BEGIN:VEVENT".to_owned(),
            format!("UID:{}@oncebook", self.appointment),
            format!("SEQUENCE:{}", self.schedule_version),
            format!("DTSTAMP:{}", utc(self.written_at)),
            format!("DTSTART:{}", utc(self.during.start)),
            format!("DTEND:{}", utc(self.during.end)),
            format!("SUMMARY:{}", escaped(self.summary)),
            format!("LOCATION:{}", escaped(self.location)),
            format!("STATUS:{}", if self.cancelled { "CANCELLED" } else { "CONFIRMED" }),
            person("ORGANIZER", self.organizer, ""),
            person("ATTENDEE", self.attendee, ";ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED"),
            "END:VEVENT".to_owned(),
            "END:VCALENDAR".to_owned(),
        ];
        lines.iter().map(|line| folded(line)).collect()
    }
}

/// Form 2 of a date and time: in UTC.
fn utc(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// A value of type TEXT (section 3.3.11).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for it in text.replace("\r\n", "\n").chars() {
        match it {
            '\\' | ';' | ',' => escaped.extend(['\\', it]),
            '\n' => escaped.push_str("\\n"),
            it if it.is_control() => escaped.push(' '),
            it => escaped.push(it),
        }
    }
    escaped
}

/// A parameter's value, to stand in quotes: it has no way to write a quote (section 3.2).
fn quoted(text: &str) -> String {
    one_line(text).replace('"', "'")
}

/// A content line: no piece of it longer than the RFC allows, no character cut in two.
fn folded(line: &str) -> String {
    let (mut folded, mut length) = (String::with_capacity(line.len() + 4), 0);
    for it in line.chars() {
        if length + it.len_utf8() > LINE {
            folded.push_str("\r\n ");
            length = 1;
        }
        folded.push(it);
        length += it.len_utf8();
    }
    folded + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_what_the_rfc_wants() {
        let start: Timestamp = "2027-11-02T08:00:00.25Z".parse().expect("a time");
        let long = "Ärztehaus, Übergröße; \\ 1. Stock\nlinks ".repeat(6);
        let invitation = Invitation {
            appointment: Uuid::from_u128(7),
            schedule_version: 3,
            cancelled: false,
            written_at: start,
            during: Span::from_length(start, 30),
            summary: "Check-up\r\nATTACH:evil",
            location: &long,
            organizer: ("Spree \"Dental\"", "desk@example.org"),
            attendee: ("Ada\nBecker", "ada@example.org"),
        };
        let text = invitation.text();
        for line in text.split("\r\n") {
            assert!(line.len() <= LINE && !line.contains(['\r', '\n']), "{line:?}");
        }
        let unfolded = text.replace("\r\n ", "");
        for line in [
            "METHOD:REQUEST",
            "UID:00000000-0000-0000-0000-000000000007@oncebook",
            "SEQUENCE:3",
            "DTSTART:20271102T080000Z",
            "DTEND:20271102T083000Z",
            "SUMMARY:Check-up\\nATTACH:evil",
            "STATUS:CONFIRMED",
            "ORGANIZER;CN=\"Spree 'Dental'\":mailto:desk@example.org",
            "ATTENDEE;CN=\"Ada Becker\";ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED:mailto:ada@example.org",
        ] {
            assert!(unfolded.lines().any(|it| it == line), "{line} in {unfolded}");
        }
        assert!(unfolded.contains("LOCATION:Ärztehaus\\, Übergröße\\; \\\\ 1. Stock\\nlinks Ä"));
        let cancelled = Invitation { cancelled: true, ..invitation }.text();
        assert!(cancelled.contains("METHOD:CANCEL\r\n") && cancelled.contains("STATUS:CANCELLED\r\n"));
    }
}
