//! The texts of notifications: a clinic's own, or the defaults. A template can name what is known of the visit and ask
//! whether something is there, and nothing else: no loops, no arithmetic, no functions. So what it comes to is no longer
//! than it and the names in it, and what was taken in once renders for every visit. What goes into HTML is escaped.

use jiff::tz::TimeZone;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::notification::Kind;
use super::time::{self, Span};
use defaults::default_of;

mod defaults;

/// Longest subject and text message, text and HTML of a template, in characters.
const LONGEST: [(&str, usize); 4] = [("subject", 200), ("text", 5000), ("html", 10_000), ("sms", 500)];

/// A clinic's own words, by kind of notification; a kind that is left out has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Templates {
    /// Of a visit that is booked, or booked again.
    pub confirmation: Option<Template>,
    /// Of a visit that has moved.
    pub change: Option<Template>,
    /// Of a visit that is called off.
    pub cancellation: Option<Template>,
    /// Of a visit that is near.
    pub reminder: Option<Template>,
}

/// What one kind of notification says. Between `{{` and `}}` stands a name: `patient`, `practitioner`, `clinic`,
/// `service`; `start` ("Tuesday, 2 November 2027, 09:00 (CET, Europe/Berlin)"), `date`, `time`, `end_time`,
/// `zone` ("CET") and `time_zone` ("Europe/Berlin"), all in the clinic's zone; `language`, empty where it is not known.
/// `{% if language == "de" %}…{% else %}…{% endif %}` tells cases apart. Anything else in such tags: 400.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The mail's subject, one line: 1 to 200 characters.
    #[schema(example = "Your appointment on {{ date }}", min_length = 1, max_length = 200)]
    pub subject: String,
    /// The mail's text: 1 to 5000 characters.
    #[schema(example = "Hello {{ patient }}, see you on {{ start }}.", min_length = 1, max_length = 5000)]
    pub text: String,
    /// The same as HTML, for readers that show it, at most 10000 characters; what is put in is escaped. Left out: text only.
    #[schema(example = "<p>Hello {{ patient }}, see you on {{ start }}.</p>", max_length = 10_000)]
    pub html: Option<String>,
    /// The text message, at most 500 characters. Left out: the default's.
    #[schema(example = "{{ clinic }}: {{ start }}", max_length = 500)]
    pub sms: Option<String>,
}

/// What a template can name, by that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values([(&'static str, String); 11]);

/// Who and what a visit is about, by name.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The patient's.
    pub patient: &'a str,
    /// The practitioner's.
    pub practitioner: &'a str,
    /// The clinic's.
    pub clinic: &'a str,
    /// The service's.
    pub service: &'a str,
    /// The language to address the patient in.
    pub language: Option<&'a str>,
}

impl Values {
    /// Of a visit, its times in the clinic's zone.
    #[must_use]
    pub fn of(names: Names<'_>, during: Span, time_zone: &str) -> Self {
        let zone = time::zone(time_zone).unwrap_or(TimeZone::UTC);
        let (start, end) = (during.start.to_zoned(zone.clone()), during.end.to_zoned(zone));
        let abbreviation = start.strftime("%Z").to_string();
        Self([
            ("patient", one_line(names.patient)),
            ("practitioner", one_line(names.practitioner)),
            ("clinic", one_line(names.clinic)),
            ("service", one_line(names.service)),
            ("start", format!("{} ({abbreviation}, {time_zone})", start.strftime("%A, %-d %B %Y, %H:%M"))),
            ("date", start.strftime("%A, %-d %B %Y").to_string()),
            ("time", start.strftime("%H:%M").to_string()),
            ("end_time", end.strftime("%H:%M").to_string()),
            ("zone", abbreviation),
            ("time_zone", time_zone.to_owned()),
            ("language", one_line(names.language.unwrap_or_default())),
        ])
    }

    /// What stands under a name; nothing under one that is not known.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn example() -> Self {
        let names = Names {
            patient: "Ada Becker",
            practitioner: "Dr. Mira Novak",
            clinic: "Spree Dental Mitte",
            service: "Check-up",
            language: Some("de"),
        };
        let start = jiff::Timestamp::constant(1_825_142_400, 0);
        Self::of(names, Span::from_length(start, 30), "Europe/Berlin")
    }
}

/// What a notification comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The mail's subject, one line.
    pub subject: String,
    /// The mail's text.
    pub text: String,
    /// The same as HTML.
    pub html: Option<String>,
    /// The text message.
    pub sms: String,
}

impl Templates {
    /// The clinic's own of that kind.
    #[must_use]
    pub fn own(&self, kind: Kind) -> Option<&Template> {
        match kind {
            Kind::Confirmation => self.confirmation.as_ref(),
            Kind::Change => self.change.as_ref(),
            Kind::Cancellation => self.cancellation.as_ref(),
            Kind::Reminder => self.reminder.as_ref(),
        }
    }

    /// What is told. One of the clinic's own that does not render, which only an older release can have let in, gives way to
    /// the default: the second value says so.
    #[must_use]
    pub fn render(&self, kind: Kind, values: &Values) -> (Rendered, bool) {
        match self.own(kind).map(|own| own.render(kind, values)) {
            Some(Ok(rendered)) => (rendered, false),
            own => (default_of(kind).render(kind, values).unwrap_or_else(|_| in_a_word(values)), own.is_some()),
        }
    }

    /// What is wrong with the clinic's own, if anything: where it is (an RFC 6901 pointer below the templates), and what.
    #[must_use]
    pub fn fault(&self) -> Option<(String, String)> {
        Kind::ALL.into_iter().find_map(|kind| {
            let (part, fault) = self.own(kind)?.fault()?;
            Some((format!("/{}/{part}", kind.as_str()), fault))
        })
    }
}

/// A test renders every default, so this is never used; it is here since a patient is to be told all the same.
fn in_a_word(values: &Values) -> Rendered {
    let text = [values.get("clinic"), values.get("start")].map(Option::unwrap_or_default).join(": ");
    Rendered { subject: text.clone(), text: text.clone(), html: None, sms: text }
}

impl Template {
    fn parts(&self) -> [(&'static str, Option<&String>); 4] {
        [
            ("subject", Some(&self.subject)),
            ("text", Some(&self.text)),
            ("html", self.html.as_ref()),
            ("sms", self.sms.as_ref()),
        ]
    }

    fn fault(&self) -> Option<(&'static str, String)> {
        let values = Values::example();
        self.parts().into_iter().zip(LONGEST).find_map(|((part, source), (_, most))| {
            let source = source?;
            let fault = if source.chars().count() > most {
                Some(format!("at most {most} characters are wanted"))
            } else if source.contains('\0') {
                Some("a text without NUL is wanted".to_owned())
            } else {
                tame(source).and_then(|()| render(part, source, &values)).map_or_else(Some, |rendered| {
                    let empty = rendered.trim().is_empty();
                    empty.then(|| "a text that is not empty is wanted".to_owned())
                })
            };
            fault.map(|fault| (part, fault))
        })
    }

    fn render(&self, kind: Kind, values: &Values) -> Result<Rendered, String> {
        let part = |name: &'static str, source: &str| tame(source).and_then(|()| render(name, source, values));
        let sms = match &self.sms {
            Some(sms) => part("sms", sms)?,
            None => part("sms", default_of(kind).sms.as_deref().unwrap_or_default())?,
        };
        Ok(Rendered {
            subject: one_line(&part("subject", &self.subject)?),
            text: part("text", &self.text)?,
            html: self.html.as_deref().map(|html| part("html", html)).transpose()?,
            sms,
        })
    }
}

/// Renders a part; its name says whether it is HTML.
fn render(part: &'static str, source: &str, values: &Values) -> Result<String, String> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| if name == "html" { AutoEscape::Html } else { AutoEscape::None });
    let said = |error: minijinja::Error| {
        let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        error.line().map_or_else(|| what.clone(), |line| format!("line {line}: {what}"))
    };
    let template = environment.template_from_named_str(part, source).map_err(said)?;
    // In a branch that the example does not take, too.
    let mut asked: Vec<String> = template.undeclared_variables(false).into_iter().collect();
    asked.sort_unstable();
    if let Some(unknown) = asked.iter().find(|name| values.get(name).is_none()) {
        let known = values.0.each_ref().map(|(name, _)| *name);
        return Err(format!("{unknown} is not known; {} are", known.join(", ")));
    }
    let known = values.0.iter().map(|(name, value)| (*name, value.as_str()));
    template.render(minijinja::Value::from_pairs(known)).map_err(said)
}

/// Whether every tag is a name or a plain condition.
fn tame(source: &str) -> Result<(), String> {
    let mut rest = source;
    while let Some(open) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (tag, inside) = rest[open..].split_at(2);
        let close = if tag == "{{" { "}}" } else { "%}" };
        let end = inside.find(close).filter(|_| tag != "{#");
        let Some(end) = end else { return Err(format!("{tag} is no tag, or has no end")) };
        let inside_tag = inside[..end].trim_matches('-').trim();
        let word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let condition = |text: &str| text.chars().all(|it| it.is_alphanumeric() || "_ =!\"'-.".contains(it));
        let first = inside_tag.split(' ').next().unwrap_or_default();
        let fine = match tag {
            "{{" => word(inside_tag) && !inside_tag.is_empty(),
            _ => ["if", "elif", "else", "endif"].contains(&first) && condition(inside_tag),
        };
        if !fine {
            return Err("a name between {{ and }}, or if, elif, else, endif between {% and %}, is wanted".to_owned());
        }
        rest = &inside[end + 2..];
    }
    Ok(())
}

/// A text in one line, so that it ends no header and begins none.
#[must_use]
pub fn one_line(text: &str) -> String {
    let breaks = |it: char| it.is_control() || matches!(it, '\u{2028}' | '\u{2029}');
    text.split(breaks).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(part: &str, source: &str) -> Templates {
        let mut template = Template { subject: "S".to_owned(), text: "T".to_owned(), html: None, sms: None };
        match part {
            "subject" => template.subject = source.to_owned(),
            "text" => template.text = source.to_owned(),
            "html" => template.html = Some(source.to_owned()),
            _ => template.sms = Some(source.to_owned()),
        }
        Templates { reminder: Some(template), ..Templates::default() }
    }

    #[test]
    fn every_default_renders_and_names_the_zone() {
        for kind in Kind::ALL {
            assert_eq!(default_of(kind).fault(), None, "{kind:?}");
            let (rendered, gave_way) = Templates::default().render(kind, &Values::example());
            assert!(!gave_way);
            for part in [&rendered.text, rendered.html.as_ref().expect("HTML"), &rendered.sms] {
                let named = "Tuesday, 2 November 2027, 09:00 (CET, Europe/Berlin)";
                assert!(part.replace("&#x2f;", "/").contains(named), "{part}");
            }
            assert!(rendered.subject.contains("2 November 2027 at 09:00"), "{}", rendered.subject);
        }
    }

    #[test]
    fn html_is_escaped_and_text_is_not() {
        let names = Names {
            patient: "<b>O'Hara & Co</b>\r\nBcc: all@example.org",
            practitioner: "",
            clinic: "",
            service: "",
            language: None,
        };
        let during = Span::from_length(jiff::Timestamp::UNIX_EPOCH, 30);
        let values = Values::of(names, during, "UTC");
        let templates = Templates {
            change: Some(Template {
                subject: "{{ patient }}\n{{ patient }}".to_owned(),
                text: "{{ patient }}".to_owned(),
                html: Some("<i>{{ patient }}</i>".to_owned()),
                sms: None,
            }),
            ..Templates::default()
        };
        let (rendered, _) = templates.render(Kind::Change, &values);
        let line = "<b>O'Hara & Co</b> Bcc: all@example.org";
        assert_eq!(rendered.text, line);
        assert_eq!(rendered.subject, format!("{line} {line}"));
        let html = rendered.html.expect("HTML");
        assert!(html.starts_with("<i>&lt;b&gt;O") && html.contains(" &amp; Co&lt;") && !html.contains("<b>"), "{html}");
    }

    #[test]
    fn what_cannot_render_is_told_with_its_place() {
        for (part, source) in [
            ("subject", "{{ birth_date }}"),
            ("text", "{% if language %}{{ birth_date }}{% endif %}"),
            ("text", "{% if language == \"de\" %}Hallo{% else %}{{ nobody }}{% endif %}"),
            ("text", "{{ patient"),
            ("text", "{% if patient %}"),
            ("text", "{% for x in patient %}{{ x }}{% endfor %}"),
            ("text", "{% set x = patient %}"),
            ("text", "{{ 'x' * 100000000 }}"),
            ("text", "{{ patient.name }}"),
            ("text", "{{ patient|upper }}"),
            ("text", "{{ range(9) }}"),
            ("text", "{% include 'x' %}"),
            ("text", "{# a comment #}"),
            ("text", "{% if 'x' * 9 %}{% endif %}"),
            ("text", "{% if patient() %}{% endif %}"),
            ("text", "  "),
            ("text", "a\0b"),
            ("html", "{{ debug }}"),
            ("html", "{{ }}"),
            ("sms", "{{ loop }}"),
        ] {
            let fault = own(part, source).fault();
            assert_eq!(
                fault.as_ref().map(|(place, _)| place.as_str()),
                Some(format!("/reminder/{part}").as_str()),
                "{source}: {fault:?}"
            );
        }
        let long = own("sms", &"x".repeat(501)).fault();
        assert_eq!(long, Some(("/reminder/sms".to_owned(), "at most 500 characters are wanted".to_owned())));
    }

    #[test]
    fn names_and_conditions_are_taken() {
        let templates = own(
            "text",
            "{% if language == \"de\" %}Hallo{%- else -%}Hello{% endif %} {{ patient }}, {{- time -}} { % }",
        );
        assert_eq!(templates.fault(), None);
        let (rendered, gave_way) = templates.render(Kind::Reminder, &Values::example());
        assert_eq!((rendered.text.as_str(), gave_way), ("Hallo Ada Becker,09:00{ % }", false));
        assert!(rendered.sms.starts_with("Spree Dental Mitte: a reminder"), "the default's");
        let (rendered, gave_way) = own("text", "{{ gone }}").render(Kind::Reminder, &Values::example());
        assert!(gave_way && rendered.text.contains("we look forward"), "{rendered:?}");
    }

    #[test]
    fn a_line_stays_one() {
        assert_eq!(one_line("a\r\nb\u{2028}c\u{85}\td"), "a b c d");
        assert_eq!(one_line(" \n "), "");
    }
}
