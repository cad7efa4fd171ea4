//! Changes of keys with their entries in the audit log, and what happens while the log or a file cannot be written.

use super::*;
use crate::{
    audit::{AuditConfig, AuditLog},
    auth::{ApiKeyState, ApiKeysConfig, KeyFileError, KeyRotation, NewApiKey, StoredApiKey, list_api_keys},
    telemetry::AccessLogConfig,
};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};
use tempfile::TempDir;
use time::OffsetDateTime;

struct Fixture {
    folder: TempDir,
    keys: ManagedKeys,
    log: AuditLog,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, log) = (folder.path().join("keys.jsonl"), folder.path().join("audit.log"));
        std::fs::write(&file, "").unwrap();
        let config = ApiKeysConfig { files: vec![file.into()], ..ApiKeysConfig::default() };
        let audit: AuditConfig = serde_json::from_value(json!({"file": log})).unwrap();
        let log = AuditLog::open(&audit, &AccessLogConfig::default(), None).unwrap();
        Self { folder, keys: (&config).into(), log }
    }

    fn recorder(&self) -> KeyRecorder<'_> {
        KeyRecorder { log: Some(&self.log), actor: "key:ada".to_owned(), address: None }
    }

    fn create(&self, caller: &str) -> Result<NewKey, KeyChangeError> {
        self.keys.create(NewApiKey { caller: caller.to_owned(), ..NewApiKey::default() }, &self.recorder())
    }

    fn key_file(&self) -> PathBuf {
        self.folder.path().join("keys.jsonl")
    }

    fn stored(&self) -> Vec<StoredApiKey> {
        list_api_keys(&self.key_file()).unwrap().keys
    }

    fn entries(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Makes the audit log unwritable, also for the superuser: a folder has its name.
    fn break_audit_log(&self) {
        let path = self.folder.path().join("audit.log");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(path).unwrap();
    }
}

#[test]
fn r101_each_change_of_a_key_has_one_entry_and_no_entry_has_the_secret() {
    let fixture = Fixture::new();
    let first = fixture.create("team-a").unwrap();
    let prefix = fixture.stored()[0].prefix.clone();
    let rotation = KeyRotation { overlap: Duration::from_secs(60), expires: None };
    let second = fixture.keys.rotate(&prefix, &rotation, &fixture.recorder()).unwrap();
    assert!(first.is_recorded && second.is_recorded && second.caller == "team-a");
    let disabled = fixture.keys.disable(&KeySelection::OfCaller("team-a".to_owned()), &fixture.recorder()).unwrap();
    assert_eq!((disabled.disabled.len(), disabled.is_recorded), (2, true));
    let entries = fixture.entries();
    let actions: Vec<&str> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["key_created", "key_rotated", "key_disabled", "key_disabled"]);
    for entry in &entries {
        assert_eq!((&entry["actor"], &entry["caller"]), (&json!("key:ada"), &json!("key:team-a")));
        assert_ne!(entry["before"], entry["after"], "{entry}");
        for secret in [&first.secret, &second.secret] {
            assert!(!entry.to_string().contains(secret.expose()), "{entry}");
        }
    }
}

#[test]
fn r101_no_key_is_created_or_rotated_while_the_audit_log_cannot_record_it() {
    let fixture = Fixture::new();
    fixture.create("team-a").unwrap();
    let stored = fixture.stored();
    fixture.break_audit_log();
    assert!(matches!(fixture.create("team-b"), Err(KeyChangeError::NotRecordable)));
    let rotation = KeyRotation { overlap: Duration::ZERO, expires: None };
    let refused = fixture.keys.rotate(&stored[0].prefix, &rotation, &fixture.recorder());
    assert!(matches!(refused, Err(KeyChangeError::NotRecordable)));
    assert_eq!(fixture.stored(), stored);
    // A key that may be stolen is disabled all the same.
    let selection = KeySelection::WithPrefixes(vec![stored[0].prefix.clone()]);
    let disabled = fixture.keys.disable(&selection, &fixture.recorder()).unwrap();
    assert_eq!((disabled.disabled.len(), disabled.is_recorded), (1, false));
    assert_eq!(ApiKeyState::of(&fixture.stored()[0], OffsetDateTime::now_utc()), ApiKeyState::Disabled);
}

#[test]
fn r101_of_two_operators_who_disable_one_key_at_once_one_has_an_entry() {
    let fixture = Fixture::new();
    fixture.create("team-a").unwrap();
    let selection = KeySelection::WithPrefixes(vec![fixture.stored()[0].prefix.clone()]);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let disable = || fixture.keys.disable(&selection, &fixture.recorder()).unwrap().disabled.len();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(disable)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts.iter().sum::<usize>(), 1, "{counts:?}");
    assert_eq!(fixture.entries().len(), 2);
}

#[test]
fn r28_a_change_that_is_not_possible_says_why_and_changes_nothing() {
    let fixture = Fixture::new();
    fixture.create("team-a").unwrap();
    assert!(matches!(fixture.create("a\nb"), Err(KeyChangeError::InvalidKey(_))));
    let absent = KeySelection::WithPrefixes(vec!["absentabsent".to_owned()]);
    let refused = fixture.keys.disable(&absent, &fixture.recorder());
    assert!(matches!(refused, Err(KeyChangeError::NoSuchKey { is_in_config: false, .. })));
    std::fs::remove_file(fixture.key_file()).unwrap();
    std::fs::create_dir(fixture.key_file()).unwrap();
    assert!(matches!(fixture.create("team-b"), Err(KeyChangeError::File(KeyFileError::Unwritable { .. }))));
    assert!(matches!(fixture.keys.disable(&absent, &fixture.recorder()), Err(KeyChangeError::File(_))));
    assert_eq!(fixture.entries().len(), 1, "nothing changed, and nothing is recorded");
    let without_file = ManagedKeys::default().create(NewApiKey::default(), &fixture.recorder());
    assert!(matches!(without_file, Err(KeyChangeError::NoKeyFile)));
}
