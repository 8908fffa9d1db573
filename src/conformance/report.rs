//! What came of the cases: a line each, a summary, and XML in the form of `JUnit` for machines.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::case::{Case, Outcome};

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Promises that held.
    pub passed: usize,
    /// Promises that did not.
    pub failed: usize,
    /// Cases not run, each with its reason.
    pub skipped: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The run so far.
#[derive(Default)]
pub(super) struct Report {
    entries: Vec<Entry>,
}

struct Entry {
    number: u16,
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

impl Report {
    /// Keeps an outcome and prints its line.
    pub(super) fn add(&mut self, case: &Case, outcome: Outcome, took: Duration) {
        let entry = Entry { number: case.number, name: case.name, outcome, took };
        println!("{entry}");
        self.entries.push(entry);
    }

    /// The figures.
    pub(super) fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for entry in &self.entries {
            match entry.outcome {
                Outcome::Passed => summary.passed += 1,
                Outcome::Failed(_) => summary.failed += 1,
                Outcome::Skipped(_) => summary.skipped += 1,
            }
        }
        summary
    }

    /// The XML file.
    pub(super) fn junit(&self) -> String {
        let Summary { failed, skipped, .. } = self.summary();
        let total: Duration = self.entries.iter().map(|entry| entry.took).sum();
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"oncebook conformance\" \
             tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"{skipped}\" time=\"{:.3}\">\n",
            self.entries.len(),
            total.as_secs_f64()
        );
        for entry in &self.entries {
            let name = escaped(&format!("{:02} {}", entry.number, entry.name));
            let seconds = entry.took.as_secs_f64();
            let _ = write!(xml, "<testcase classname=\"conformance\" name=\"{name}\" time=\"{seconds:.3}\"");
            let _ = match &entry.outcome {
                Outcome::Passed => writeln!(xml, "/>"),
                Outcome::Skipped(why) => writeln!(xml, "><skipped message=\"{}\"/></testcase>", escaped(why)),
                Outcome::Failed(failure) => writeln!(
                    xml,
                    "><failure message=\"{}\">{}</failure></testcase>",
                    escaped(&failure.expected),
                    escaped(&failure.to_string())
                ),
            };
        }
        xml.push_str("</testsuite>\n</testsuites>\n");
        xml
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.outcome {
            Outcome::Passed => "pass",
            Outcome::Failed(_) => "FAIL",
            Outcome::Skipped(_) => "skip",
        };
        write!(f, "{:>3}  {:<92} {word} {:>6} ms", self.number, self.name, self.took.as_millis())?;
        match &self.outcome {
            Outcome::Passed => Ok(()),
            Outcome::Skipped(why) => write!(f, "\n       {why}"),
            Outcome::Failed(failure) => {
                for line in failure.to_string().lines() {
                    let headed = ["expected  ", "came      ", "request   "].iter().any(|head| line.starts_with(head));
                    let margin = if headed { "" } else { "          " };
                    write!(f, "\n       {margin}{line}")?;
                }
                Ok(())
            }
        }
    }
}

/// Text as it may stand in XML 1.0, in an attribute too. Control characters have no form there, so they are shown.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push_str("&#10;"),
            '\t' => safe.push_str("&#9;"),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                safe.extend(control.escape_unicode());
            }
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::case::Failure;
    use super::*;

    #[test]
    fn junit_escapes_what_xml_cannot_hold() {
        assert_eq!(escaped("a<b>&\"c\"\n\0\u{7f}é"), "a&lt;b&gt;&amp;&quot;c&quot;&#10;\\u{0}\\u{7f}é");
    }

    #[test]
    fn a_failure_is_told_to_people_and_to_machines() {
        let case = Case::new(3, "one & only", |_| Box::pin(async { Ok(()) }));
        let mut report = Report::default();
        let failure =
            Failure { expected: "409".to_owned(), came: "201".to_owned(), request: "POST /x\nA: b".to_owned() };
        report.add(&case, Outcome::Failed(failure), Duration::from_millis(12));
        report.add(&case, Outcome::Passed, Duration::from_millis(1));
        report.add(&case, Outcome::Skipped("why".to_owned()), Duration::ZERO);
        assert_eq!(report.summary().to_string(), "1 passed, 1 failed, 1 skipped");
        let line = report.entries[0].to_string();
        assert!(line.contains("FAIL") && line.ends_with("       request   POST /x\n                 A: b"), "{line}");
        let xml = report.junit();
        assert!(xml.contains("tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"0.013\""), "{xml}");
        assert!(xml.contains("name=\"03 one &amp; only\" time=\"0.012\"><failure message=\"409\">"), "{xml}");
        assert!(xml.contains("<skipped message=\"why\"/>"), "{xml}");
    }
}
