//! Problems of a configuration, each with its position and the required form.

use std::fmt;

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The path in the file, such as `limits.per_caller`; empty for the whole file.
    pub path: String,
    /// The line, unless the environment sets the path.
    pub line: Option<u64>,
    /// What is wrong and what is required.
    pub message: String,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(formatter, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&strip_os_error_codes(&self.message))
    }
}

/// All problems of a configuration. Formatted in one line if there is one problem, otherwise with one line for each
/// problem in the order of the file.
#[derive(Debug)]
pub struct ConfigProblems(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return problem.fmt(formatter);
        }
        write!(formatter, "{} problems", self.0.len())?;
        let mut problems: Vec<&ConfigProblem> = self.0.iter().collect();
        problems.sort_by_key(|problem| problem.line);
        problems.iter().try_for_each(|problem| write!(formatter, "\n  {problem}"))
    }
}

impl std::error::Error for ConfigProblems {}

/// Removes the error numbers that the standard library appends to messages of the operating system.
pub fn strip_os_error_codes(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut stripped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        stripped.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    stripped
}
