//! Configuration of local runtimes.

use super::runtime_folder::RuntimeFolder;
use crate::values::{ConfigDuration, ConfigPath};

/// Where runtimes on this machine register.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Local")]
#[serde(deny_unknown_fields)]
pub struct LocalRuntimeConfig {
    /// The folder in which a runtime places its socket and its descriptor, NAME.json: an object of at most 64KiB with
    /// `socket`, a file of this folder (default: NAME.sock), and `path`, the HTTP path (default: /). The folder, the
    /// descriptor and the socket belong to the owner, are not links, and are not writable by other users.
    pub folder: ConfigPath,
    /// The numeric id of the user that owns the folder and its files. Default: the user that runs the gateway.
    #[serde(default)]
    pub owner_uid: Option<u32>,
    /// The longest lease that the admin listener grants (PUT /local/NAME); 1s to 24h. Default: 1h.
    #[serde(default = "default_max_lease")]
    pub max_lease: ConfigDuration,
}

fn default_max_lease() -> ConfigDuration {
    ConfigDuration::from_secs(3600)
}

impl LocalRuntimeConfig {
    /// Returns every value that cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let is_valid = (1..=86_400).contains(&self.max_lease.get().as_secs());
        let max_lease = (!is_valid).then(|| format!("max_lease: is {} (must be 1s to 24h)", self.max_lease));
        max_lease
            .into_iter()
            .chain(self.runtime_folder().problem().map(|problem| format!("folder: {problem}")))
            .collect()
    }

    /// The folder, with the owner that its files must have.
    pub(super) fn runtime_folder(&self) -> RuntimeFolder<'_> {
        RuntimeFolder { path: &self.folder, owner_uid: self.owner_uid }
    }
}
