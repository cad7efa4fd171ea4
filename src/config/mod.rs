//! The configuration: one YAML file with overrides from the environment. Reports every problem at once. `app` builds
//! the gateway from a [`GatewayConfig`].

mod config_problem;
mod deserialization;
mod environment_overrides;
mod format_hint;
mod gateway_config;
mod key_migration;
mod renamed_keys;
mod yaml_text;

pub use config_problem::{ConfigProblem, ConfigProblems, strip_os_error_codes};
pub use gateway_config::{AdminConfig, AgentRule, AgentsConfig, ErrorsConfig, GatewayConfig, ShutdownConfig};
pub use key_migration::{MigratedConfig, migrate_file, migrate_text};

use serde_json::Value;
use std::{io::ErrorKind, path::Path};
use yaml_text::ConfigText;

/// A well-formed configuration.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: GatewayConfig,
    config_text: ConfigText,
}

impl LoadedConfig {
    /// Reads the file at `path` and applies the overrides of the process's environment.
    ///
    /// # Errors
    /// Every problem of form, each with its path and line.
    pub fn read(path: &Path) -> Result<Self, ConfigProblems> {
        let text = read_text(path)?;
        let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        let to_lossy_string = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        // `std::env::vars` would panic on an unrelated variable that is not UTF-8.
        let environment = std::env::vars_os().map(|(name, value)| (to_lossy_string(name), to_lossy_string(value)));
        Self::parse(&text, &folder.unwrap_or_default(), environment)
    }

    /// Parses `text`, and resolves its relative paths against `folder`.
    ///
    /// # Errors
    /// As [`LoadedConfig::read`].
    pub fn parse(
        text: &str,
        folder: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigProblems> {
        let mut config_text = ConfigText::parse(text).map_err(|problem| ConfigProblems(vec![problem]))?;
        config_text.apply_environment(environment);
        for warning in config_text.warnings() {
            tracing::warn!("configuration key has a former name: {warning}");
        }
        match deserialization::deserialize(&config_text, folder) {
            Ok(file) => Ok(Self { config: file, config_text }),
            Err(problems) => Err(ConfigProblems(problems)),
        }
    }

    /// Locates problems that were found after parsing, each formatted as `path: message`.
    pub fn locate_problems(&self, problems: Vec<String>) -> ConfigProblems {
        let located = problems.into_iter().map(|text| match text.split_once(": ") {
            Some((path, message)) if !path.contains(' ') => locate_problem(&self.config_text, path, message.to_owned()),
            _ => locate_problem(&self.config_text, "", text),
        });
        ConfigProblems(located.collect())
    }
}

/// Returns the JSON Schema of the file, which editors and the validation use.
pub fn json_schema() -> Value {
    serde_json::to_value(schemars::schema_for!(GatewayConfig)).unwrap_or_default()
}

/// Formats a JSON Pointer into `root` as a path: `/agents/sources/0` becomes `agents.sources[0]`.
fn pointer_to_path(pointer: &str, root: &Value) -> String {
    let mut path = String::new();
    let mut value = Some(root);
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match value {
            Some(Value::Array(items)) => {
                path.push_str(&format!("[{step}]"));
                value = step.parse::<usize>().ok().and_then(|at| items.get(at));
            }
            Some(object) => {
                path = yaml_text::join_path(&path, &step);
                value = object.get(&step);
            }
            None => path = yaml_text::join_path(&path, &step),
        }
    }
    path
}

/// Adds to a problem its line or the variable that set the value, and a hint about the format.
fn locate_problem(config_text: &ConfigText, path: &str, message: String) -> ConfigProblem {
    let (line, variable) = config_text.locate(path);
    let message = format_hint::add_format_hint(path, message);
    let message = match variable {
        Some(variable) => format!("{message} (set by the environment variable {variable})"),
        None => message,
    };
    ConfigProblem { path: path.to_owned(), line, message }
}

fn read_text(path: &Path) -> Result<String, ConfigProblems> {
    std::fs::read_to_string(path).map_err(|why| {
        file_problem(match why.kind() {
            ErrorKind::NotFound => format!("cannot be read ({why}; name the file with -c FILE)"),
            ErrorKind::InvalidData => "cannot be read (it is not text in UTF-8)".to_owned(),
            _ => format!("cannot be read ({why})"),
        })
    })
}

fn file_problem(message: String) -> ConfigProblems {
    ConfigProblems(vec![ConfigProblem { path: String::new(), line: None, message }])
}

#[cfg(test)]
mod tests;
