//! A notification in words: the mail with text, HTML and the visit for a calendar, or the text message.

use jiff::Timestamp;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, Message, MultiPart, SinglePart};
use lettre::{Address, message::header};

use crate::domain::calendar::Invitation;
use crate::domain::notification::Kind;
use crate::domain::template::{Names, Rendered, Values, one_line};
use crate::store::notifications::Claimed;

/// A mail, ready to be sent.
#[derive(Clone, Debug)]
pub struct Mailed {
    /// The sender's address.
    pub from: Address,
    /// The patient's address.
    pub to: Address,
    /// The message, as it goes over the wire.
    pub bytes: Vec<u8>,
}

/// What is told, in the clinic's words or the default ones.
#[must_use]
pub fn rendered(claimed: &Claimed) -> Rendered {
    let names = Names {
        patient: &claimed.patient,
        practitioner: &claimed.practitioner,
        clinic: &claimed.clinic,
        service: &claimed.service,
        language: claimed.language.as_deref(),
    };
    let values = Values::of(names, claimed.during, &claimed.time_zone);
    let (rendered, gave_way) = claimed.settings.templates.render(claimed.kind, &values);
    if gave_way {
        tracing::warn!(clinic = %claimed.settings.clinic_id, kind = claimed.kind.as_str(), "a template does not render: the default is sent");
    }
    rendered
}

/// The mail; none where the patient's address is none.
#[must_use]
pub fn mail(claimed: &Claimed, address: &str, sender: &Mailbox, now: Timestamp) -> Option<Mailed> {
    let to: Address = address.trim().parse().ok()?;
    let from = sender.email.clone();
    let rendered = rendered(claimed);
    let (patient, clinic) = (one_line(&claimed.patient), one_line(&claimed.clinic));
    let invitation = Invitation {
        appointment: claimed.appointment_id,
        schedule_version: claimed.schedule_version,
        cancelled: claimed.kind == Kind::Cancellation,
        written_at: now,
        during: claimed.during,
        summary: &format!("{}, {}", one_line(&claimed.service), clinic),
        location: &clinic,
        organizer: (&clinic, from.as_ref()),
        attendee: (&patient, to.as_ref()),
    };
    let sender_name = sender.name.as_deref().map(one_line).unwrap_or(clinic.clone());
    let message = Message::builder()
        .from(Mailbox::new(Some(sender_name), from.clone()))
        .to(Mailbox::new(Some(patient.clone()), to.clone()))
        .subject(rendered.subject.clone())
        .date(now.into())
        // The same at every try, so that a server or a reader that knows it takes it once.
        .message_id(Some(format!("<{}@{}>", claimed.id, from.domain())))
        // RFC 3834: no out-of-office notes in answer to it.
        .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned()))
        .multipart(parts(rendered, &invitation)?)
        .ok()?;
    Some(Mailed { from, to, bytes: message.formatted() })
}

/// Text and HTML to choose from, with the invitation beside them for readers that know what it is, and attached for the rest.
fn parts(rendered: Rendered, invitation: &Invitation<'_>) -> Option<MultiPart> {
    let calendar = invitation.text();
    let inline = format!("text/calendar; charset=utf-8; method={}", invitation.method());
    let attached = ContentType::parse("application/ics").ok()?;
    let mut choice = MultiPart::alternative().singlepart(SinglePart::plain(rendered.text));
    if let Some(html) = rendered.html {
        choice = choice.singlepart(SinglePart::html(html));
    }
    let inline = SinglePart::builder()
        .header(header::ContentType::parse(&inline).ok()?)
        // Its lines end as the RFC wants: quoted-printable might end them otherwise.
        .header(header::ContentTransferEncoding::Base64)
        .body(calendar.clone().into_bytes());
    let attachment = Attachment::new("invite.ics".to_owned()).body(calendar.into_bytes(), attached);
    Some(MultiPart::mixed().multipart(choice.singlepart(inline)).singlepart(attachment))
}
