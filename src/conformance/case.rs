//! One check: its number and name, what it needs, and what it came to.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::Target;
use super::world::World;

/// What a case cannot do without; where it is missing, the case is skipped and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The demo group's credentials, from `--dev-json`.
    Credentials,
    /// The service's database, from `--database-url`.
    Database,
    /// A base URL without TLS: the request is written byte by byte.
    PlainHttp,
}

/// How a broken promise shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the contract promises.
    pub expected: String,
    /// What came instead.
    pub came: String,
    /// The request that shows it; empty where no single request does.
    pub request: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected  {}\ncame      {}", self.expected, self.came)?;
        if self.request.is_empty() { Ok(()) } else { write!(f, "\nrequest   {}", self.request) }
    }
}

/// What a case came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The promise held.
    Passed,
    /// It did not.
    Failed(Failure),
    /// Not run, and why.
    Skipped(String),
}

/// Why a check ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Failed(Failure),
    Skipped(String),
}

/// A check's result, or a step's within it.
pub(super) type Verdict<T = ()> = Result<T, Stop>;

/// A check on its way.
pub(super) type Running<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// One case of `docs/CONFORMANCE.md`, or one kind of it.
pub struct Case {
    /// The number in `docs/CONFORMANCE.md`; several cases share it where it stands for several kinds.
    pub number: u16,
    /// What it promises, in a line.
    pub name: &'static str,
    /// What it cannot do without.
    pub needs: &'static [Need],
    /// Reports on the answers of all cases before it, so it runs last.
    pub(super) watches: bool,
    check: for<'a> fn(&'a World) -> Running<'a>,
}

impl Case {
    /// A case that any server can be held to.
    pub(super) const fn new(number: u16, name: &'static str, check: for<'a> fn(&'a World) -> Running<'a>) -> Self {
        Self { number, name, needs: &[], watches: false, check }
    }

    /// The same, for servers where these needs are met.
    pub(super) const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    /// The same, after all others.
    pub(super) const fn watching(mut self) -> Self {
        self.watches = true;
        self
    }

    /// Whether `--only` means this case: its number, or a part of its name, any of several between commas.
    pub(super) fn chosen(&self, only: Option<&str>) -> bool {
        let Some(only) = only else { return true };
        only.split(',').map(str::trim).any(|wanted| {
            wanted.parse::<u16>().map_or_else(
                |_| self.name.to_lowercase().contains(&wanted.to_lowercase()),
                |number| number == self.number,
            )
        })
    }

    /// Runs it within a run of many: what [`World::noticed`] collects is left for the watching case to report.
    pub(super) async fn run(&self, world: &World) -> Outcome {
        for need in self.needs {
            if let Some(why) = world.lacks(*need) {
                return Outcome::Skipped(why);
            }
        }
        (self.check)(world).await.map_or_else(Outcome::from, |()| Outcome::Passed)
    }

    /// Runs it alone: it also fails if any answer on its way broke what holds for every answer (headers, the shape of
    /// a problem, `/openapi.json`).
    pub async fn check(&self, target: &Target) -> Outcome {
        let world = match World::new(target.clone()) {
            Ok(world) => world,
            Err(error) => {
                return failed::<()>("a client", format!("{error:#}")).map_or_else(Outcome::from, |()| Outcome::Passed);
            }
        };
        match self.run(&world).await {
            Outcome::Passed => world.noticed().await.map_or_else(Outcome::from, |()| Outcome::Passed),
            other => other,
        }
    }
}

impl From<Stop> for Outcome {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Failed(failure) => Self::Failed(failure),
            Stop::Skipped(why) => Self::Skipped(why),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>3}  {}", self.number, self.name)?;
        for need in self.needs {
            f.write_str(match need {
                Need::Credentials => "  [--dev-json]",
                Need::Database => "  [--database-url]",
                Need::PlainHttp => "  [http://]",
            })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A failure that no single answer shows.
pub(super) fn failed<T>(expected: impl Into<String>, came: impl Into<String>) -> Verdict<T> {
    Err(Stop::Failed(Failure { expected: expected.into(), came: came.into(), request: String::new() }))
}

/// Passes if `holds`; for facts that no single answer shows.
pub(super) fn ensure(holds: bool, expected: impl Into<String>, came: impl Into<String>) -> Verdict {
    if holds { Ok(()) } else { failed(expected, came) }
}

/// Gives up without a verdict, and says why.
pub(super) fn skip<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Stop::Skipped(why.into()))
}

/// Says which of many variants a failure is about.
pub(super) trait About<T> {
    /// Puts `what` before what was expected.
    fn about(self, what: impl fmt::Display) -> Verdict<T>;
}

impl<T> About<T> for Verdict<T> {
    fn about(self, what: impl fmt::Display) -> Self {
        self.map_err(|stop| match stop {
            Stop::Failed(failure) => {
                Stop::Failed(Failure { expected: format!("[{what}] {}", failure.expected), ..failure })
            }
            skipped @ Stop::Skipped(_) => skipped,
        })
    }
}

impl From<sqlx::Error> for Stop {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(Failure {
            expected: "the database to answer the check's own question".to_owned(),
            came: error.to_string(),
            request: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_number_or_a_part_of_the_name() {
        let case = Case::new(4, "No key: 400", |_| Box::pin(async { Ok(()) }));
        assert!(case.chosen(None) && case.chosen(Some("4")) && case.chosen(Some("9, no KEY")));
        assert!(!case.chosen(Some("40")) && !case.chosen(Some("other")));
    }

    #[test]
    fn a_variant_is_named_in_its_failure() {
        let stop = failed::<()>("201", "500").about("note left out");
        assert!(matches!(stop, Err(Stop::Failed(failure)) if failure.expected == "[note left out] 201"));
    }
}
