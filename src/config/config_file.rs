//! Reading of the configuration file.

use super::config_problem::{ConfigProblem, ConfigProblems};
use std::{io::ErrorKind, path::Path};

/// Reads the file at `path`.
///
/// # Errors
/// The file cannot be read, or is not text in UTF-8.
pub(super) fn read_text(path: &Path) -> Result<String, ConfigProblems> {
    std::fs::read_to_string(path).map_err(|why| {
        file_problem(match why.kind() {
            ErrorKind::NotFound => format!("cannot be read ({why}; name the file with -c FILE)"),
            ErrorKind::InvalidData => "cannot be read (it is not text in UTF-8)".to_owned(),
            _ => format!("cannot be read ({why})"),
        })
    })
}

/// Returns a problem of the file as a whole.
pub(super) fn file_problem(message: String) -> ConfigProblems {
    ConfigProblems(vec![ConfigProblem { path: String::new(), line: None, message }])
}
