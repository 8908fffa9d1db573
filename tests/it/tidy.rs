//! The shape of the source (src/lib.rs, "The map"): who may know whom, how long a file may be, and words that are
//! not for it. What clippy can say, clippy says.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines.
const LONGEST: usize = 400;

/// A part of the source, and the parts of it that it may name.
const KNOWS: [(&str, &[&str]); 5] = [
    ("domain", &["domain", "clock"]),
    ("store", &["store", "domain", "clock"]),
    ("command", &["command", "hint", "store", "domain", "clock", "trace"]),
    ("app", &["app", "outbound", "sealed", "command", "store", "domain", "clock", "config", "pulse"]),
    ("http", &["http", "app", "command", "store", "domain", "clock", "pulse", "trace"]),
];

/// What only one part may use, and which: the start of a name in the source, the parts.
const ONLY_IN: [(&str, &[&str]); 9] = [
    ("axum", &["http", "ops", "simulator"]),
    ("query!", &["store"]),
    ("query_as!", &["store"]),
    ("query_scalar!", &["store"]),
    ("query_file", &["store"]),
    // The black-box suite looks at the tables from outside, with no part of the service between.
    ("sqlx::query", &["store", "conformance/database"]),
    ("raw_sql", &["store", "conformance/database"]),
    ("env::var", &["config"]),
    ("getrandom", &["clock"]),
];

/// A source file: its path from the crate's root, and its text.
struct File {
    path: PathBuf,
    text: String,
}

impl File {
    /// The part of the source it belongs to: `http` for `src/http.rs` and `src/http/ask.rs`.
    fn part(&self) -> &str {
        let inside = self.path.strip_prefix("src").ok().and_then(|path| path.components().next());
        let name = inside.and_then(|name| name.as_os_str().to_str()).unwrap_or_default();
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// Its lines of code, with their numbers; a comment may name anything, and so may the tests at a file's end.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .take_while(|line| *line != "#[cfg(test)]")
            .zip(1..)
            .map(|(line, n)| (n, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path.display())
    }
}

/// Everything with that ending under a folder of the crate.
fn files(folder: &str, ending: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                let text = fs::read_to_string(&path).expect("text");
                files.push(File { path: path.strip_prefix(root).expect("inside").to_path_buf(), text });
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has files");
    files
}

#[test]
fn every_part_knows_only_what_lies_beneath_it() {
    let mut faults = Vec::new();
    for file in files("src", "rs") {
        let Some((_, known)) = KNOWS.iter().find(|(part, _)| *part == file.part()) else { continue };
        for (line, text) in file.code() {
            let named = text
                .split("crate::")
                .skip(1)
                .map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default());
            // `use crate::{…}` would hide what it names.
            let unknown = named.filter(|name| !known.contains(name));
            faults.extend(unknown.map(|name| file.at(line, &format!("{} must not know `{name}`", file.part()))));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn what_has_one_home_is_used_only_there() {
    let mut faults = Vec::new();
    for file in files("src", "rs") {
        for (line, text) in file.code() {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_:!".contains(c));
            for word in words {
                let banned = ONLY_IN.iter().find(|(name, parts)| {
                    let begins = word.starts_with(name) || word.contains(&format!("::{name}"));
                    begins && !parts.iter().any(|part| file.path.to_string_lossy().contains(part))
                });
                faults.extend(banned.map(|(name, parts)| file.at(line, &format!("{name} is for {parts:?}"))));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn files_are_a_page_of_the_story_and_hold_no_leftovers() {
    // Put together here, or this file would be its own fault.
    let banned = [["#[", "allow"], ["to", "do!"], ["db", "g!("], ["FIX", "ME"], ["/wo", "rk/"], ["/ro", "ot/"]]
        .map(|it| it.concat());
    let mut faults = Vec::new();
    let sources = [("src", "rs"), ("src", "sql"), ("tests", "rs"), ("migrations", "sql")];
    for file in sources.iter().flat_map(|(folder, ending)| files(folder, ending)) {
        let lines = file.text.lines().count();
        // A migration, once applied, is never split.
        if lines > LONGEST && !file.path.starts_with("migrations") {
            faults.push(file.at(lines, "more than a page"));
        }
        for (line, n) in file.text.lines().zip(1..) {
            faults.extend(banned.iter().filter(|word| line.contains(word.as_str())).map(|word| file.at(n, word)));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_file_says_what_it_owns() {
    let files = ["src", "tests"].into_iter().flat_map(|folder| files(folder, "rs"));
    let silent = files.filter(|file| !file.text.starts_with("//!"));
    let faults: Vec<_> = silent.map(|file| file.at(1, "no word on what it is for")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The metrics that lines of text name in quotes.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let named = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    text.split('"').skip(1).step_by(2).filter(move |name| name.strip_prefix("oncebook_").is_some_and(named))
}

/// Those that telemetry.rs has words for.
fn described() -> Vec<&'static str> {
    let described = include_str!("../../src/telemetry.rs");
    described.split("describe_").skip(1).filter_map(|description| metrics_in(description).next()).collect()
}

/// Without words of its own, a metric comes without HELP, and whoever scrapes it has to guess.
#[test]
fn every_metric_says_what_it_counts() {
    let described = described();
    let (mut faults, mut used) = (Vec::new(), Vec::new());
    for file in files("src", "rs").iter().filter(|file| !file.path.ends_with("telemetry.rs")) {
        for (line, text) in file.code() {
            let silent = metrics_in(text).filter(|name| !described.contains(name));
            faults.extend(silent.map(|name| file.at(line, &format!("{name} is not described in telemetry.rs"))));
            used.extend(metrics_in(text).map(str::to_owned));
        }
    }
    faults.extend(described.iter().filter(|it| !used.iter().any(|name| name == **it)).map(|it| format!("no {it}")));
    assert!(faults.is_empty(), "{faults:#?}");
}

/// An alert on what nobody counts never comes; one without a word on what to do wakes somebody for nothing.
#[test]
fn every_alert_names_what_is_counted_and_says_what_to_do() {
    let (alerts, described) = (include_str!("../../docs/alerts.yaml"), described());
    let words = alerts.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let named: Vec<_> = words.filter(|word| word.starts_with("oncebook_")).collect();
    let whole = |name: &str| {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        parts.chain([name]).any(|name| described.contains(&name))
    };
    let unknown: Vec<_> = named.iter().filter(|name| !whole(name)).collect();
    assert!(named.len() > 10 && unknown.is_empty(), "{unknown:?}");
    for alert in alerts.split("- alert: ").skip(1) {
        let has = ["\n        expr: ", "\n          summary: ", "\n          runbook: ", "severity: "];
        let missing: Vec<_> = has.iter().filter(|part| !alert.contains(**part)).collect();
        assert!(missing.is_empty(), "{missing:?} in {alert}");
    }
}

#[test]
fn every_module_is_on_the_map() {
    let source = include_str!("../../src/lib.rs");
    let (_, map) = source.split_once("# The map").expect("a map");
    let modules = source.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let missing: Vec<_> = modules.filter(|name| !map.contains(&format!("[`{name}`]"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A file that a comment sends its reader to: by its whole path, or by the end of it.
#[test]
fn every_file_that_a_comment_names_exists() {
    let top = fs::read_dir(env!("CARGO_MANIFEST_DIR")).expect("a folder").flatten().map(|entry| entry.path());
    let below = [("src", "rs"), ("src", "sql"), ("src", "md"), ("tests", "rs"), ("migrations", "sql"), ("docs", "md")];
    let below = below.iter().flat_map(|(folder, ending)| files(folder, ending)).map(|file| file.path);
    let there: Vec<PathBuf> = top.chain(below).collect();
    let mut faults = Vec::new();
    for file in ["src", "tests"].into_iter().flat_map(|folder| files(folder, "rs")) {
        for (line, n) in file.text.lines().zip(1..).filter(|(line, _)| line.trim_start().starts_with("//")) {
            let quoted = line.split('`').skip(1).step_by(2);
            let named = quoted.map(Path::new).filter(|path| {
                path.extension().is_some_and(|ending| ["rs", "sql", "md", "toml"].iter().any(|known| ending == *known))
            });
            let missing = named.filter(|path| !there.iter().any(|file| file.ends_with(path)));
            faults.extend(missing.map(|path| file.at(n, &format!("there is no {}", path.display()))));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
