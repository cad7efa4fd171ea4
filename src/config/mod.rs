//! The configuration: one YAML file with overrides from the environment. Reports every problem at once. `app` builds
//! the gateway from a [`GatewayConfig`].

mod config_file;
mod config_problem;
mod deserialization;
mod environment_overrides;
mod format_hint;
mod gateway_config;
mod key_path;
mod line_index;
mod operator_addresses;
mod renamed_keys;
mod setting_locations;
mod yaml_text;

pub use config_problem::{ConfigProblem, ConfigProblems, strip_os_error_codes};
pub use gateway_config::{
    AdminConfig, AgentRule, AgentsConfig, ConsoleConfig, ErrorsConfig, GatewayConfig, HealthConfig, InspectionScope,
    ShutdownConfig, json_schema,
};
pub use line_index::LineIndex;
pub use operator_addresses::OperatorAddresses;

pub use setting_locations::SettingLocations;

use crate::values::{FileStamp, encode_hex, sha256};
use std::path::Path;
use yaml_text::ConfigText;

/// A well-formed configuration.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: GatewayConfig,
    /// The stamp of the file before it was read: a change during the start is noticed afterwards. `None` for a text.
    pub file_stamp: Option<FileStamp>,
    /// SHA-256 of the file. `None` for a text.
    pub file_digest: Option<String>,
    config_text: ConfigText,
    /// The name of the file; empty for a text.
    file_name: String,
}

impl LoadedConfig {
    /// Reads the file at `path` and applies the overrides of the process's environment.
    ///
    /// # Errors
    /// Every problem of form, each with its path and line.
    pub fn read(path: &Path) -> Result<Self, ConfigProblems> {
        Self::read_with_environment(path, config_file::process_environment())
    }

    /// Reads the file at `path` and applies the overrides of `environment`.
    ///
    /// # Errors
    /// As [`LoadedConfig::read`].
    pub fn read_with_environment(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigProblems> {
        let file_stamp = FileStamp::read(path);
        let text = config_file::read_text(path)?;
        let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file_digest = Some(encode_hex(&sha256(text.as_bytes())));
        Ok(Self { file_stamp, file_digest, file_name, ..Self::parse(&text, &folder.unwrap_or_default(), environment)? })
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
        environment_overrides::apply_environment(&mut config_text, environment);
        match deserialization::deserialize(&config_text, folder) {
            Ok(file) => {
                Ok(Self { config: file, file_stamp: None, file_digest: None, config_text, file_name: String::new() })
            }
            Err(problems) => Err(ConfigProblems(problems)),
        }
    }

    /// Returns the name of the file; empty for a text.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// Returns where each setting is written, for explanations.
    pub fn setting_locations(&self) -> SettingLocations {
        let (lines, variables) = (self.config_text.setting_lines(), self.config_text.overriding_variables.clone());
        SettingLocations::new(self.file_name.clone(), lines, variables)
    }

    /// Locates problems that were found after parsing, each formatted as `path: message`.
    pub fn locate_problems(&self, problems: Vec<String>) -> ConfigProblems {
        let located = problems.into_iter().map(|text| match text.split_once(": ") {
            Some((path, message)) if !path.contains(' ') => self.config_text.locate_problem(path, message.to_owned()),
            _ => self.config_text.locate_problem("", text),
        });
        ConfigProblems(located.collect())
    }

    /// Returns the line of a setting that the file has; `None` where the default or the environment sets it.
    pub fn line_of_setting(&self, path: &str) -> Option<u64> {
        self.config_text.line_of_setting(path)
    }

    /// Returns the environment variables that look like overrides, such as `GATEPOST_LIMITS__PER_CALLER`, and are none.
    pub fn ignored_variables(&self) -> &[String] {
        &self.config_text.ignored_variables
    }
}

#[cfg(test)]
mod tests;
