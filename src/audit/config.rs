//! The section `audit` of the configuration.

use super::chained_file::folder_of;
use crate::{
    telemetry::{AccessLogConfig, LogPrivacy, LoggedAddresses, LoggedCallers},
    values::{ByteSize, ConfigDuration, ConfigPath, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Bounds on the size of one file.
const FILE_SIZES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 30;
/// Shortest retention.
const MIN_RETENTION: ConfigDuration = ConfigDuration::from_secs(86_400);

/// The audit log.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    /// The file to which the gateway and its commands append. Each day, and at `max_file_size`, it is renamed to its name
    /// with the number of its first line, and a new file begins. FILE.head beside it has the number and the hash of the
    /// last line. Required.
    pub file: ConfigPath,
    /// A file in another folder, at best on another disk or machine, with a copy of FILE.head and the last signed
    /// checkpoint. `gatepost audit verify` compares the log with it, so that lines at the end of the log cannot be cut off
    /// together with FILE.head. Its folder must exist. Default: no copy.
    #[serde(default)]
    pub anchor_file: Option<ConfigPath>,
    /// How long a renamed file is kept after its last line; at least 1d. null keeps it until `max_size`. Default 365d.
    #[serde(default = "default_retention")]
    pub retention: Option<ConfigDuration>,
    /// The size at which a file is renamed; 64KiB to 1GiB. Default 16MiB.
    #[serde(default = "default_max_file_size")]
    pub max_file_size: ByteSize,
    /// The size of all files together; beyond it the oldest renamed files are deleted. null for no limit. Default 1GiB.
    #[serde(default = "default_max_size")]
    pub max_size: Option<ByteSize>,
    /// How the log names callers and the users of commands: plain, or pseudonym (a keyed hash of the name). Default:
    /// `access_log.callers`.
    #[serde(default)]
    pub callers: Option<LoggedCallers>,
    /// How the log gives addresses: full, truncated, pseudonym or omitted. Default: `access_log.addresses`.
    #[serde(default)]
    pub addresses: Option<LoggedAddresses>,
    /// Key of the pseudonyms, at least 16 bytes. Default: `access_log.pseudonym_key`; one of them is required where the
    /// audit log has pseudonyms, because nobody could tell later who made a change.
    #[serde(default)]
    pub pseudonym_key: Option<SecretRef>,
}

/// The retention, also for what is computed from it where there is none.
pub(super) const DEFAULT_RETENTION: ConfigDuration = ConfigDuration::from_secs(365 * 86_400);
/// The size of all files, also for what is computed from it where there is no limit.
pub(super) const DEFAULT_MAX_SIZE: ByteSize = ByteSize::from_kib(1 << 20);

fn default_retention() -> Option<ConfigDuration> {
    Some(DEFAULT_RETENTION)
}

fn default_max_file_size() -> ByteSize {
    ByteSize::from_kib(16 << 10)
}

fn default_max_size() -> Option<ByteSize> {
    Some(DEFAULT_MAX_SIZE)
}

fn is_in_same_folder(one: &Path, other: &Path) -> bool {
    let canonical = |path: &Path| folder_of(path).canonicalize().unwrap_or_else(|_| folder_of(path).to_owned());
    canonical(one) == canonical(other)
}

impl AuditConfig {
    /// Returns what is wrong with the values, each by its path in the section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.retention.is_some_and(|retention| retention < MIN_RETENTION) {
            problems.push("retention: must be at least 1d, or null".to_owned());
        }
        if !FILE_SIZES.contains(&self.max_file_size.get()) {
            problems.push("max_file_size: is out of bounds (64KiB to 1GiB)".to_owned());
        }
        if self.max_size.is_some_and(|max_size| max_size < self.max_file_size) {
            problems.push("max_size: must be at least max_file_size".to_owned());
        }
        for (name, path) in self.paths() {
            if path.file_name().is_none() || path.is_dir() {
                problems.push(format!("{name}: {} is not the path of a file", path.display()));
            }
        }
        if self.anchor_file.as_ref().is_some_and(|anchor| is_in_same_folder(anchor, &self.file)) {
            problems.push("anchor_file: must be in another folder than file (a program that can cut the log off there could change the copy too)".to_owned());
        }
        problems
    }

    /// Returns the files, each with the name of its setting.
    fn paths(&self) -> impl Iterator<Item = (&'static str, &ConfigPath)> {
        [("file", &self.file)].into_iter().chain(self.anchor_file.as_ref().map(|anchor| ("anchor_file", anchor)))
    }

    /// Checks everything that needs no file of the log: its folder exists, and the key of pseudonyms can be used.
    ///
    /// # Errors
    /// Every problem, by its path in the section.
    pub fn check(&self, access_log: &AccessLogConfig) -> Result<(), Vec<String>> {
        let mut problems = self.problems();
        problems.extend(self.privacy(access_log).err());
        for (name, path) in self.paths() {
            let folder = folder_of(path);
            if !folder.is_dir() {
                let (path, folder) = (path.display(), folder.display());
                problems.push(format!("{name}: {path} cannot be created ({folder} is not a folder)"));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Loads what the log says of persons. Settings that the section leaves out are those of the access log.
    ///
    /// # Errors
    /// The key is missing, cannot be loaded, is too short or is not used.
    pub(super) fn privacy(&self, access_log: &AccessLogConfig) -> Result<LogPrivacy, String> {
        let callers = self.callers.unwrap_or(access_log.callers);
        let addresses = self.addresses.unwrap_or(access_log.addresses);
        let has_pseudonyms = callers == LoggedCallers::Pseudonym || addresses == LoggedAddresses::Pseudonym;
        let shared = access_log.pseudonym_key.as_ref().filter(|_| has_pseudonyms);
        let key = self.pseudonym_key.as_ref().or(shared);
        if has_pseudonyms && key.is_none() {
            return Err(
                "pseudonym_key: is required with pseudonyms (nobody could tell later who made a change)".to_owned()
            );
        }
        LogPrivacy::new(callers, addresses, key)
    }
}
