//! The configuration that is examined, with the places of its settings.

use super::{
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
};
use crate::config::{GatewayConfig, LoadedConfig};
use std::path::Path;

/// Returns a path as operators read it: relative to the current folder where it is in it.
pub(super) fn shown_path(file: &Path) -> String {
    let current_folder = std::env::current_dir().unwrap_or_default();
    file.strip_prefix(&current_folder).unwrap_or(file).display().to_string()
}

/// The configuration that is examined.
#[derive(Clone, Copy, Debug)]
pub struct ExaminedConfig<'a> {
    /// The configuration.
    pub loaded: &'a LoadedConfig,
    /// Its file, as the operator named it.
    pub file: &'a Path,
}

impl<'a> ExaminedConfig<'a> {
    /// Returns the settings.
    pub fn config(&self) -> &'a GatewayConfig {
        &self.loaded.config
    }

    /// Returns the place of a setting, or of the nearest section above it that the file has.
    pub(super) fn place(&self, path: &str) -> Place {
        let located = self.loaded.locate_problems(vec![format!("{path}: ")]).0.into_iter().next();
        let line = located.and_then(|problem| problem.line);
        Place { file: self.file.display().to_string(), line, path: path.to_owned() }
    }

    /// Returns the place of a setting that the file has; `None` where the default or the environment sets it.
    pub(super) fn exact_place(&self, path: &str) -> Option<Place> {
        let line = self.loaded.line_of_setting(path)?;
        Some(Place { file: self.file.display().to_string(), line: Some(line), path: path.to_owned() })
    }

    /// Returns a finding about a setting.
    pub(super) fn finding(&self, code: FindingCode, subject: SubjectKind, path: &str, problem: &str) -> Finding {
        Finding::new(code, subject, path, problem, self.place(path))
    }
}
