//! Problems of a configuration: their position and what is required instead.

use std::fmt;

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The path in the file, such as `limits.per_caller`; empty for the whole file.
    pub path: String,
    /// The line, if the file contains the path.
    pub line: Option<u64>,
    /// What is wrong and what is required.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(to, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(to, "{}: ", self.path)?;
        }
        to.write_str(&strip_os_error_codes(&self.message))
    }
}

/// All problems of a configuration. A single one is formatted in one line, several one per line in file order.
#[derive(Debug)]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigProblems {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return problem.fmt(to);
        }
        write!(to, "{} problems", self.0.len())?;
        let mut problems: Vec<&ConfigProblem> = self.0.iter().collect();
        problems.sort_by_key(|problem| problem.line);
        problems.iter().try_for_each(|problem| write!(to, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigProblems {}

/// Removes the error numbers that the standard library appends to the system's messages.
pub fn strip_os_error_codes(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    plain
}
