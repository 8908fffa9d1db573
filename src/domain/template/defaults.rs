//! What is said where a clinic has said nothing: plain, short, and with the zone named.

use super::Template;
use crate::domain::notification::Kind;

/// What is said where a clinic has said nothing.
pub(super) fn default_of(kind: Kind) -> Template {
    let (subject, lead, last, sms) = match kind {
        Kind::Confirmation => (
            "Your appointment on {{ date }} at {{ time }}",
            "your appointment is booked:",
            "If you cannot come, please let us know.",
            "{{ clinic }}: your appointment is booked for {{ start }}, {{ service }} with {{ practitioner }}.",
        ),
        Kind::Change => (
            "Your appointment has changed: {{ date }} at {{ time }}",
            "your appointment has changed. It is now:",
            "If you cannot come, please let us know.",
            "{{ clinic }}: your appointment has changed. It is now on {{ start }}, {{ service }} with {{ practitioner }}.",
        ),
        Kind::Cancellation => (
            "Your appointment on {{ date }} at {{ time }} is cancelled",
            "your appointment is cancelled. It was to be:",
            "Please contact us if you did not expect this.",
            "{{ clinic }}: your appointment on {{ start }} is cancelled.",
        ),
        Kind::Reminder => (
            "Reminder: your appointment on {{ date }} at {{ time }}",
            "we look forward to seeing you:",
            "If you cannot come, please let us know.",
            "{{ clinic }}: a reminder of your appointment on {{ start }}, {{ service }} with {{ practitioner }}.",
        ),
    };
    let text = format!(
        "Hello {{{{ patient }}}},\n\n{lead}\n\n  {{{{ service }}}} with {{{{ practitioner }}}}\n  {{{{ start }}}}\n  \
         {{{{ clinic }}}}\n\n{last}\n\n{{{{ clinic }}}}\n"
    );
    let html = format!(
        "<p>Hello {{{{ patient }}}},</p>\n<p>{lead}</p>\n<p>{{{{ service }}}} with {{{{ practitioner }}}}<br>\
         <strong>{{{{ start }}}}</strong><br>{{{{ clinic }}}}</p>\n<p>{last}</p>\n<p>{{{{ clinic }}}}</p>\n"
    );
    Template { subject: subject.to_owned(), text, html: Some(html), sms: Some(sms.to_owned()) }
}
