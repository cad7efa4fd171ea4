//! The section `audit` of the configuration.

use crate::{
    telemetry::{AccessLogConfig, LogPrivacy, LoggedAddresses, LoggedCallers},
    values::{ByteSize, ConfigDuration, ConfigPath, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

fn default_retention() -> Option<ConfigDuration> {
    Some(ConfigDuration::from_secs(365 * 86_400))
}

fn default_max_file_size() -> ByteSize {
    ByteSize::from_kib(16 << 10)
}

fn default_max_size() -> Option<ByteSize> {
    Some(ByteSize::from_kib(1 << 20))
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
        let is_named = self.file.file_name().is_some() && !self.file.is_dir();
        if !is_named {
            problems.push(format!("file: {} is not the path of a file", self.file.display()));
        }
        problems
    }

    /// Checks everything that needs no file of the log: its folder exists, and the key of pseudonyms can be used.
    ///
    /// # Errors
    /// Every problem, by its path in the section.
    pub fn check(&self, access_log: &AccessLogConfig) -> Result<(), Vec<String>> {
        let mut problems = self.problems();
        problems.extend(self.privacy(access_log).err());
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
        if let Some(folder) = folder {
            let (file, folder) = (self.file.display(), folder.display());
            problems.push(format!("file: {file} cannot be created ({folder} is not a folder)"));
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
