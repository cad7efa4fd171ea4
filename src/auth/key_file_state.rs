//! The keys of a file that are in force, for the audit log: which keys another version of the file added, removed or
//! changed.

use std::{fmt::Debug, path::PathBuf, sync::Arc};

/// Length of the public prefix of a key.
pub(super) const PREFIX_LENGTH: usize = 12;

/// Keys by prefix.
pub(super) trait StoredKeys: Debug + Send + Sync {
    /// Returns the prefixes of all keys.
    fn prefixes(&self) -> Vec<[u8; PREFIX_LENGTH]>;
    /// Returns a number that another secret, caller, state or expiry of the key changes; `None` if there is no such key.
    fn fingerprint(&self, prefix: [u8; PREFIX_LENGTH]) -> Option<u64>;
}

/// A file of API keys.
#[derive(Clone, Debug)]
pub struct KeyFileState {
    /// The file.
    pub path: PathBuf,
    /// SHA-256 of the content in force.
    pub digest: [u8; 32],
    /// Why a later content was refused, if it was.
    pub refusal: Option<String>,
    pub(super) keys: Arc<dyn StoredKeys>,
}

/// What another version of a file changed: prefixes of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFileChanges {
    /// Keys that are new.
    pub added: Vec<String>,
    /// Keys that are gone.
    pub removed: Vec<String>,
    /// Keys that were disabled or enabled, or have another expiry, caller or secret.
    pub changed: Vec<String>,
}

impl KeyFileState {
    /// Returns what this version changed. Takes a second for a million keys.
    pub fn changes_since(&self, previous: &Self) -> KeyFileChanges {
        let text = |prefix: [u8; PREFIX_LENGTH]| String::from_utf8_lossy(&prefix).into_owned();
        let mut changes = KeyFileChanges::default();
        for prefix in self.keys.prefixes() {
            match (previous.keys.fingerprint(prefix), self.keys.fingerprint(prefix)) {
                (None, _) => changes.added.push(text(prefix)),
                (before, after) if before != after => changes.changed.push(text(prefix)),
                _ => {}
            }
        }
        let is_gone = |prefix: &[u8; PREFIX_LENGTH]| self.keys.fingerprint(*prefix).is_none();
        changes.removed = previous.keys.prefixes().into_iter().filter(is_gone).map(text).collect();
        for prefixes in [&mut changes.added, &mut changes.removed, &mut changes.changed] {
            prefixes.sort_unstable();
        }
        changes
    }
}
