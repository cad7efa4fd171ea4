//! Records in the audit log what changes while the gateway runs: the configuration, key files and certificates.

use crate::{
    audit::{AuditAction, AuditEntry, AuditLog},
    auth::{Authorizer, KeyFileState},
    http_server::CertificateReload,
    values::{encode_hex, sha256},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Maximum number of keys that an entry names for each kind of change.
const MAX_NAMED_KEYS: usize = 10;

/// Compares what is in force with what was in force before.
pub(super) struct ChangeRecorder {
    log: Option<Arc<AuditLog>>,
    config: PathBuf,
    in_force: Mutex<InForce>,
}

struct InForce {
    config_digest: Option<String>,
    key_files: HashMap<PathBuf, KeyFileState>,
}

impl ChangeRecorder {
    /// Creates a recorder of changes after this state, and records that the gateway started with it. Blocks.
    pub(super) fn start(log: Option<Arc<AuditLog>>, config: &Path, digest: Option<String>, auth: &Authorizer) -> Self {
        if let Some(log) = &log {
            let entry = AuditEntry::by_gateway(AuditAction::GatewayStarted, config.display().to_string());
            log.record(entry.with_digests(None, digest.clone()).with_detail(version()));
        }
        let key_files = auth.key_files().into_iter().map(|state| (state.path.clone(), state)).collect();
        let in_force = Mutex::new(InForce { config_digest: digest, key_files });
        Self { log, config: config.to_owned(), in_force }
    }

    /// Records that a configuration with this digest was put in force, or refused for these problems. Blocks.
    pub(super) fn record_reload(&self, digest: Option<String>, refusal: Option<String>) {
        let Some(log) = &self.log else { return };
        let entry = AuditEntry::by_gateway(AuditAction::ConfigLoaded, self.config.display().to_string());
        let mut in_force = self.in_force.lock();
        let entry = entry.with_digests(in_force.config_digest.clone(), digest.clone());
        match refusal {
            Some(refusal) => log.record(entry.refused(refusal)),
            None => {
                in_force.config_digest = digest;
                log.record(entry);
            }
        }
    }

    /// Records the certificates that were reloaded and the key files that differ from those in force before, and writes
    /// what waits. Blocks.
    pub(super) fn record_periodically(&self, certificates: Vec<CertificateReload>, auth: &Authorizer) {
        let Some(log) = &self.log else { return };
        for reload in certificates {
            let entry = AuditEntry::by_gateway(AuditAction::CertificateLoaded, reload.listener);
            let entry = entry.with_digests(Some(encode_hex(&reload.before)), Some(encode_hex(&reload.after)));
            log.record(if reload.problems.is_empty() { entry } else { entry.refused(reload.problems.join("; ")) });
        }
        self.record_key_files(log, auth);
        log.maintain(false);
    }

    fn record_key_files(&self, log: &AuditLog, auth: &Authorizer) {
        let mut in_force = self.in_force.lock();
        let files = auth.key_files();
        let entry_for = |path: &Path| AuditEntry::by_gateway(AuditAction::KeyFileLoaded, path.display().to_string());
        in_force.key_files.retain(|path, former| {
            let is_named = files.iter().any(|file| file.path == *path);
            if !is_named {
                let entry = entry_for(path).with_digests(Some(encode_hex(&former.digest)), None);
                log.record(entry.with_detail("the configuration names the file no more"));
            }
            is_named
        });
        for file in files {
            let former = in_force.key_files.get(&file.path);
            let before = former.map(|former| encode_hex(&former.digest));
            let is_changed = former.is_none_or(|former| former.digest != file.digest);
            let is_newly_refused = former.is_none_or(|former| former.refusal != file.refusal);
            if let Some(refusal) = file.refusal.as_ref().filter(|_| is_newly_refused) {
                let after = std::fs::read(&file.path).ok().map(|content| encode_hex(&sha256(&content)));
                log.record(entry_for(&file.path).with_digests(before.clone(), after).refused(refusal.as_str()));
            }
            if is_changed {
                let entry = entry_for(&file.path).with_digests(before, Some(encode_hex(&file.digest)));
                log.record(match former {
                    Some(former) => entry.with_detail(describe_changes(&file, former)),
                    None => entry,
                });
            }
            in_force.key_files.insert(file.path.clone(), file);
        }
    }

    /// Deletes old files of the log. Blocks.
    pub(super) fn delete_old_files(&self) {
        if let Some(log) = &self.log {
            log.maintain(true);
        }
    }

    /// Records that the gateway stopped, and signs what it recorded. Blocks.
    pub(super) fn stop(&self, reason: &str) {
        let Some(log) = &self.log else { return };
        let entry = AuditEntry::by_gateway(AuditAction::GatewayStopped, self.config.display().to_string());
        let digest = self.in_force.lock().config_digest.clone();
        log.record(entry.with_digests(digest, None).with_detail(reason));
        log.finish();
    }
}

fn version() -> String {
    format!("gatepost {}, process {}", env!("CARGO_PKG_VERSION"), std::process::id())
}

/// Names the keys that a changed file added, removed or changed.
fn describe_changes(file: &KeyFileState, former: &KeyFileState) -> String {
    let changes = file.changes_since(former);
    let describe = |(what, keys): (&str, &Vec<String>)| {
        let named = keys.iter().take(MAX_NAMED_KEYS).map(String::as_str).collect::<Vec<_>>().join(", ");
        let others = keys.len().saturating_sub(MAX_NAMED_KEYS);
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        (!keys.is_empty()).then(|| format!("{what}: {named}{others}"))
    };
    let kinds = [("added", &changes.added), ("removed", &changes.removed), ("changed", &changes.changed)];
    let described: Vec<String> = kinds.into_iter().filter_map(describe).collect();
    if described.is_empty() { "no key".to_owned() } else { described.join("; ") }
}
