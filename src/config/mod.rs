//! The configuration: one YAML file with overrides from the environment. Reports every problem at once.
//! Creates no running parts; `app` builds those from a [`File`].

mod file;
mod form;
mod hint;
mod problem;
mod source;

pub use file::{Admin, Agents, Errors, File, Rule, Shutdown};
pub use problem::{Problem, Problems, plain};

use serde_json::Value;
use source::Source;
use std::{io::ErrorKind, path::Path};

/// A configuration that was read and is well formed.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub file: File,
    source: Source,
}

impl Loaded {
    /// Reads the file at `path` and applies the overrides of the process's environment.
    ///
    /// # Errors
    /// Every problem of form, each with its path and line.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let text = std::fs::read_to_string(path).map_err(|why| {
            whole(match why.kind() {
                ErrorKind::NotFound => format!("cannot be read ({why}; name the file with -c FILE)"),
                ErrorKind::InvalidData => "cannot be read (it is not text in UTF-8)".to_owned(),
                _ => format!("cannot be read ({why})"),
            })
        })?;
        let base = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        let told = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        // `std::env::vars` would panic on an unrelated variable that is not UTF-8.
        let environment = std::env::vars_os().map(|(name, value)| (told(name), told(value)));
        Self::parse(&text, &base.unwrap_or_default(), environment)
    }

    /// Parses `text`; relative paths are resolved against `base`.
    ///
    /// # Errors
    /// As [`LoadedConfig::read`].
    pub fn parse(
        text: &str,
        base: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, Problems> {
        let mut source = Source::parse(text).map_err(|problem| Problems(vec![problem]))?;
        source.overlay(environment);
        match form::read(&source, base) {
            Ok(file) => Ok(Self { file, source }),
            Err(problems) => Err(Problems(problems)),
        }
    }

    /// Locates problems that were found after parsing, each formatted as `path: message`.
    pub fn problems(&self, found: Vec<String>) -> Problems {
        let placed = found.into_iter().map(|text| match text.split_once(": ") {
            Some((path, message)) if !path.contains(' ') => placed(&self.source, path, message.to_owned()),
            _ => placed(&self.source, "", text),
        });
        Problems(placed.collect())
    }
}

/// Returns the JSON Schema of the file, which editors and the validation use.
pub fn schema() -> Value {
    serde_json::to_value(schemars::schema_for!(File)).unwrap_or_default()
}

/// Formats a JSON Pointer as a path: `/agents/from/0` becomes `agents.from[0]`.
fn dotted(pointer: &str, within: &Value) -> String {
    let mut path = String::new();
    let mut value = Some(within);
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match value {
            Some(Value::Array(items)) => {
                path.push_str(&format!("[{step}]"));
                value = step.parse::<usize>().ok().and_then(|at| items.get(at));
            }
            Some(other) => {
                path = source::join(&path, &step);
                value = other.get(&step);
            }
            None => path = source::join(&path, &step),
        }
    }
    path
}

fn placed(source: &Source, path: &str, message: String) -> Problem {
    let (line, variable) = source.locate(path);
    let message = hint::added(path, message);
    let message = match variable {
        Some(variable) => format!("{message} (set by the environment variable {variable})"),
        None => message,
    };
    Problem { path: path.to_owned(), line, message }
}

fn whole(message: String) -> Problems {
    Problems(vec![Problem { path: String::new(), line: None, message }])
}

#[cfg(test)]
mod tests;
