//! Reading of the configuration file and of the environment.

use super::config_problem::{ConfigProblem, ConfigProblems};
use std::{ffi::OsString, io::ErrorKind, path::Path};

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

/// Returns the environment of the process.
pub(super) fn process_environment() -> impl Iterator<Item = (String, String)> {
    let to_lossy_string = |text: OsString| text.to_string_lossy().into_owned();
    // `std::env::vars` would panic on an unrelated variable that is not UTF-8.
    std::env::vars_os().map(move |(name, value)| (to_lossy_string(name), to_lossy_string(value)))
}
