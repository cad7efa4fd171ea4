//! What is wrong with a configuration: where, and what would be right.

use std::fmt;

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path inside the file, such as `limits.per_caller`; empty for the whole.
    pub path: String,
    /// The line, where the file has one for it.
    pub line: Option<u64>,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(to, "line {line}: ")?;
        }
        if !self.path.is_empty() {
            write!(to, "{}: ", self.path)?;
        }
        to.write_str(&self.message)
    }
}

/// Every problem of a configuration.
#[derive(Debug)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        writeln!(to, "the configuration has {count} problem{}", if count == 1 { "" } else { "s" })?;
        for problem in &self.0 {
            writeln!(to, "  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
