//! Where each setting of the configuration in force is written: its line in the file, or the environment variable.

use std::collections::HashMap;

/// The lines of a configuration file, and the variables that override it.
#[derive(Clone, Debug, Default)]
pub struct SettingLocations {
    file_name: String,
    lines: HashMap<String, u64>,
    variables: HashMap<String, String>,
}

impl SettingLocations {
    pub(super) fn new(file_name: String, lines: HashMap<String, u64>, variables: HashMap<String, String>) -> Self {
        Self { file_name, lines, variables }
    }

    /// Returns where the setting at `path`, such as `limits.per_caller`, is written: `gatepost.yaml:12`, or
    /// `environment variable GATEPOST__LIMITS__PER_CALLER`. `None` for a default.
    pub fn locate(&self, path: &str) -> Option<String> {
        if let Some(variable) = self.variables.get(path) {
            return Some(format!("environment variable {variable}"));
        }
        let line = self.lines.get(path).filter(|line| **line > 0)?;
        Some(format!("{}:{line}", self.file_name))
    }
}
