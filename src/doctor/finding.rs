//! A finding: what is wrong with what, what to change, and in which line.

use super::{
    finding_codes::{FindingCode, Severity},
    plain_words::in_plain_words,
};
use crate::values::{json::truncate, redact_known_secrets, visible_text};
use serde_json::{Value, json};
use std::{borrow::Cow, fmt};

/// Maximum length of a text of a finding, in characters. Servers and publishers write a part of it.
const MAX_TEXT_LENGTH: usize = 600;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A setting.
    Setting,
    /// A listener of callers.
    Listener,
    /// A file with certificates or a key.
    Certificate,
    /// An issuer of tokens, or the introspection endpoint.
    Issuer,
    /// A store.
    Store,
    /// An MQTT broker.
    Broker,
    /// A source of agents.
    Source,
    /// An agent.
    Agent,
}

impl SubjectKind {
    /// Returns the word for this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setting => "setting",
            Self::Listener => "listener",
            Self::Certificate => "certificate",
            Self::Issuer => "issuer",
            Self::Store => "store",
            Self::Broker => "broker",
            Self::Source => "source",
            Self::Agent => "agent",
        }
    }
}

/// A line of a file that an operator writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file; empty where the configuration does not name one.
    pub file: String,
    /// The line, unless the file does not have it.
    pub line: Option<u64>,
    /// The path in the file, such as `listeners[0].tls.key`.
    pub path: String,
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.file)?;
        self.line.map_or(Ok(()), |line| write!(to, ":{line}"))
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of finding it is.
    pub code: FindingCode,
    /// What it is about.
    pub subject: SubjectKind,
    /// The name of the subject.
    pub name: String,
    /// What is wrong.
    pub problem: String,
    /// What to change.
    pub fix: String,
    /// The line to change.
    pub place: Place,
    /// Other lines that may be the ones to change.
    pub related: Vec<Place>,
}

impl Finding {
    /// Returns a finding whose fix is that of its code.
    pub fn new(code: FindingCode, subject: SubjectKind, name: impl Into<String>, problem: &str, place: Place) -> Self {
        let (name, problem, fix) = (name.into(), in_plain_words(problem), code.row().fix.to_owned());
        Self { code, subject, name, problem, fix, place, related: Vec::new() }
    }

    /// Takes the fix from the end of the problem, where it stands in parentheses.
    #[must_use]
    pub(super) fn with_fix_of_problem(mut self) -> Self {
        if let (problem, Some(fix)) = split_fix(&self.problem) {
            (self.fix, self.problem) = (fix.to_owned(), problem.to_owned());
        }
        self
    }

    /// Takes the fix from the end of the problem, where it says there what to do. Other texts in parentheses are causes.
    #[must_use]
    pub(super) fn with_instruction_of_problem(mut self) -> Self {
        // Which variable sets the value is no part of the fix.
        let (problem, variable) = match self.problem.split_once(" (set by the environment variable ") {
            Some((problem, variable)) => (problem, format!(" (set by the environment variable {variable}")),
            None => (&*self.problem, String::new()),
        };
        if let (problem, Some(fix)) = split_fix(problem)
            && is_instruction(fix)
        {
            (self.fix, self.problem) = (fix.to_owned(), format!("{problem}{variable}"));
        }
        self
    }

    /// Replaces the fix of the code by one that fits this case.
    #[must_use]
    pub(super) fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Adds a line that may be the one to change instead.
    #[must_use]
    pub fn with_related(mut self, places: impl IntoIterator<Item = Place>) -> Self {
        let own = self.place.clone();
        self.related.extend(places.into_iter().filter(|place| *place != own));
        self
    }

    /// Names another line as the one to change, and keeps the former one as related.
    #[must_use]
    pub(super) fn moved_to(mut self, place: Place) -> Self {
        let former = std::mem::replace(&mut self.place, place);
        self.with_related([former])
    }

    /// Returns how much the finding matters.
    pub fn severity(&self) -> Severity {
        self.code.row().severity
    }

    /// Returns the finding as one line, and one for the fix.
    pub fn to_text(&self) -> String {
        let related: String = self.related.iter().map(|place| format!("; see {place} ({})", place.path)).collect();
        let related = visible(&related);
        format!(
            "{}: {} {}: {} {}: {}\n    fix: {}{related}",
            visible(&self.place.to_string()),
            self.severity(),
            self.code,
            self.subject.as_str(),
            printable(&self.name),
            printable(&self.problem),
            printable(&self.fix),
        )
    }

    /// Returns the finding as JSON.
    pub fn to_json(&self) -> Value {
        let place =
            |place: &Place| json!({"file": visible(&place.file), "line": place.line, "path": visible(&place.path)});
        json!({
            "code": self.code.row().code,
            "severity": self.severity().as_str(),
            "subject": {"kind": self.subject.as_str(), "name": printable(&self.name)},
            "problem": printable(&self.problem),
            "fix": printable(&self.fix),
            "file": visible(&self.place.file),
            "line": self.place.line,
            "path": visible(&self.place.path),
            "related": self.related.iter().map(place).collect::<Vec<_>>(),
        })
    }
}

/// Splits `problem (what to do)`.
fn split_fix(text: &str) -> (&str, Option<&str>) {
    let Some(inner) = text.strip_suffix(')') else { return (text, None) };
    let mut depth = 1;
    for (at, character) in inner.char_indices().rev() {
        match character {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let problem = inner.get(..at).unwrap_or_default();
            let fix = inner.get(at + 1..).filter(|fix| !fix.is_empty() && problem.ends_with(' '));
            return fix.map_or((text, None), |fix| (problem.trim_end(), Some(fix)));
        }
    }
    (text, None)
}

/// The words with which instructions of problems begin.
const INSTRUCTIONS: &[&str] = &[
    "add",
    "after",
    "choose",
    "configure",
    "correct",
    "create",
    "give",
    "install",
    "keep",
    "leave",
    "let",
    "list",
    "lower",
    "name",
    "put",
    "raise",
    "remove",
    "replace",
    "set",
    "take",
    "turn",
    "use",
    "write",
];

fn is_instruction(text: &str) -> bool {
    let first = text.split([' ', ':']).next().unwrap_or_default();
    INSTRUCTIONS.contains(&first)
}

/// Returns a text without secrets of the configuration, and without characters that a terminal would interpret.
fn printable(text: &str) -> Cow<'_, str> {
    match redact_known_secrets(text) {
        Cow::Borrowed(text) => visible(text),
        Cow::Owned(text) => Cow::Owned(visible(&text).into_owned()),
    }
}

/// Returns a text without characters that a terminal would interpret. For places: a user name that is also a word of
/// file names is a secret of the configuration.
fn visible(text: &str) -> Cow<'_, str> {
    let is_line = |text: &str| text.len() <= MAX_TEXT_LENGTH && !text.contains(['\r', '\n', '\t']);
    match visible_text(text) {
        Cow::Borrowed(text) if is_line(text) => Cow::Borrowed(text),
        text => Cow::Owned(truncate(&text, MAX_TEXT_LENGTH).replace(['\r', '\n', '\t'], " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(problem: &str) -> Finding {
        let place = Place { file: "gatepost.yaml".to_owned(), line: Some(3), path: "admin.address".to_owned() };
        Finding::new(FindingCode::AdminExposed, SubjectKind::Setting, "admin.address", problem, place)
    }

    #[test]
    fn the_last_parenthesis_of_a_problem_is_its_fix() {
        assert_eq!(split_fix("a (b) c (use d (e))"), ("a (b) c", Some("use d (e)")));
        assert_eq!(split_fix("a b"), ("a b", None));
        assert_eq!(split_fix("f(x)"), ("f(x)", None));
        assert_eq!(finding("open").fix, FindingCode::AdminExposed.row().fix);
        assert_eq!(finding("open (close it)").with_fix_of_problem().fix, "close it");
    }

    #[test]
    fn a_finding_is_one_line_and_its_fix() {
        let text = finding("open (close it)").with_fix_of_problem().to_text();
        assert_eq!(text, "gatepost.yaml:3: warning GP0108: setting admin.address: open\n    fix: close it");
    }

    #[test]
    fn a_server_writes_no_control_characters_and_no_secrets_into_a_report() {
        crate::values::register_secret("a-secret-of-the-configuration");
        let text = finding("answered \u{1b}[2J\na-secret-of-the-configuration").to_text();
        assert!(!text.contains('\u{1b}') && !text.contains("a-secret") && text.lines().count() == 2, "{text}");
        let long = finding(&"x".repeat(10_000)).to_json();
        assert!(long["problem"].as_str().unwrap().len() <= MAX_TEXT_LENGTH + 4, "{long}");
    }
}
