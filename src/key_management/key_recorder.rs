//! The entries of changed keys in the audit log.

use super::key_change_error::KeyChangeError;
use crate::{
    agent::AuthenticationMethod,
    audit::{AuditAction, AuditEntry, AuditLog},
    auth::KeyFileError,
    values::{encode_hex, sha256},
};
use std::{cell::OnceCell, net::IpAddr, path::Path};

/// Who changes keys, and where that is recorded.
pub struct KeyRecorder<'a> {
    /// The audit log; `None` records nothing.
    pub log: Option<&'a AuditLog>,
    /// The actor in the log.
    pub actor: String,
    /// The address of the operator's request, if there is one.
    pub address: Option<IpAddr>,
}

impl KeyRecorder<'_> {
    /// Checks that a change can be recorded, before one that gives access.
    ///
    /// # Errors
    /// The audit log cannot be written.
    pub(super) fn require_writable(&self) -> Result<(), KeyChangeError> {
        let Some(log) = self.log else { return Ok(()) };
        log.require_writable_file().map_err(|_| KeyChangeError::NotRecordable)
    }

    /// Begins a change of a key file. The digests of its entry are those of the file before and after.
    pub(super) fn begin<'a>(&'a self, action: AuditAction, file: &'a Path) -> KeyChange<'a> {
        KeyChange { recorder: self, action, file, digest_before: digest_of(file), digest_after: OnceCell::new() }
    }

    /// Records an entry, and returns whether it is on disk. Otherwise it waits in memory.
    fn record(&self, mut entry: AuditEntry) -> bool {
        let Some(log) = self.log else { return true };
        entry.address = self.address;
        log.record(entry);
        log.require_writable().is_ok()
    }
}

/// A change of a key file that is recorded when it was made.
pub(super) struct KeyChange<'a> {
    recorder: &'a KeyRecorder<'a>,
    action: AuditAction,
    file: &'a Path,
    digest_before: Option<String>,
    digest_after: OnceCell<Option<String>>,
}

/// The key that a change concerns.
pub(super) struct ChangedKey<'a> {
    pub(super) prefix: &'a str,
    /// The name of its caller, without `key:`.
    pub(super) caller: &'a str,
    /// The prefix of the key that it replaces.
    pub(super) replaces: Option<&'a str>,
}

impl KeyChange<'_> {
    /// Records that a change whose entry did not reach the disk was undone, or was not, and returns the error for it.
    pub(super) fn undone(&self, key: &ChangedKey<'_>, undo: Result<(), KeyFileError>) -> KeyChangeError {
        let (is_undone, outcome) = match &undo {
            Ok(()) => (true, "undone: the entry of the change could not be written".to_owned()),
            Err(why) => (false, format!("could not be undone: {why}")),
        };
        let entry = AuditEntry::new(self.action, self.recorder.actor.clone(), key.prefix).refused(&outcome);
        self.recorder.record(entry);
        KeyChangeError::NotRecorded { prefix: key.prefix.to_owned(), is_undone }
    }

    /// Records the change of one key, after the file was changed. Returns whether the entry is on disk.
    pub(super) fn record(&self, key: &ChangedKey<'_>) -> bool {
        let file = self.file.display();
        let detail = key.replaces.map_or_else(|| file.to_string(), |previous| format!("replaces {previous} in {file}"));
        let caller = format!("{}{}", AuthenticationMethod::ApiKey.caller_id_prefix(), key.caller);
        let entry = AuditEntry::new(self.action, self.recorder.actor.clone(), key.prefix).with_detail(detail);
        let after = self.digest_after.get_or_init(|| digest_of(self.file)).clone();
        let entry = entry.with_digests(self.digest_before.clone(), after).with_caller(caller);
        self.recorder.record(entry)
    }
}

/// Returns the SHA-256 of a file, with which the gateway records that it read the file.
fn digest_of(file: &Path) -> Option<String> {
    std::fs::read(file).ok().map(|content| encode_hex(&sha256(&content)))
}
