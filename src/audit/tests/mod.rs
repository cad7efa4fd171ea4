//! The audit log on a real file system: the chain, each way to tamper with it, several writers, rotation and retention.

mod anchor;
mod files;
mod pruning;
mod reading;
mod refusals;
mod tampering;

use super::*;
use crate::{
    signing::{SigningKey, TrustedKeys},
    telemetry::{AccessLogConfig, LogPrivacy, LoggedAddresses, LoggedCallers, Metrics},
    values::{ByteSize, ConfigDuration, SecretRef},
};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

fn config(file: &Path) -> AuditConfig {
    AuditConfig {
        file: file.to_path_buf().into(),
        anchor_file: None,
        retention: Some(ConfigDuration::from_secs(86_400)),
        max_file_size: ByteSize::from_kib(64),
        max_size: None,
        callers: None,
        addresses: None,
        pseudonym_key: None,
    }
}

struct TestLog {
    folder: TempDir,
    log: AuditLog,
    metrics: Arc<Metrics>,
}

impl TestLog {
    fn open() -> Self {
        Self::open_with(|config| config)
    }

    /// Opens a log whose settings are changed.
    fn open_with(change: impl FnOnce(AuditConfig) -> AuditConfig) -> Self {
        let (folder, metrics) = (tempfile::tempdir().unwrap(), Metrics::new().unwrap());
        let config = change(config(&folder.path().join("audit.log")));
        let log = AuditLog::open(&config, &AccessLogConfig::default(), Some(Arc::clone(&metrics))).unwrap();
        Self { folder, log, metrics }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }

    /// Records changes of agents with these ids.
    fn record(&self, ids: &[&str]) {
        for id in ids {
            self.log.record(AuditEntry::new(AuditAction::DocumentPublished, "key:team-a", *id));
        }
    }

    /// Returns the log as another process opens it, which knows nothing but the files.
    fn of_another_process(&self) -> AuditLog {
        AuditLog::open(&config(&self.path()), &AccessLogConfig::default(), None).unwrap()
    }

    fn verify_with(&self, verification: ChainVerification) -> Result<ChainProof, String> {
        verification.verify(&list_files(&self.path()).unwrap())
    }

    fn lines(&self) -> Vec<Value> {
        lines_of(&self.path())
    }

    fn verify(&self) -> Result<ChainProof, String> {
        verify(&self.path())
    }

    fn metric(&self, name: &str) -> u64 {
        let page = self.metrics.render(crate::telemetry::ExpositionFormat::Text);
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        value.parse().unwrap()
    }
}

fn lines_of(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn verify(log: &Path) -> Result<ChainProof, String> {
    ChainVerification::default().verify(&list_files(log).unwrap())
}

fn signing_key() -> Arc<SigningKey> {
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
    Arc::new(SigningKey::from_pem(&pem).unwrap())
}

fn keys_of(key: &SigningKey) -> TrustedKeys {
    TrustedKeys::from_jwks(&key.jwks()).unwrap()
}

#[test]
fn r8_each_entry_has_its_number_and_the_hash_of_the_line_before() {
    let test = TestLog::open();
    let mut entry = AuditEntry::new(AuditAction::DocumentPublished, "key:team-a", "echo")
        .with_digests(Some("aa".to_owned()), Some("bb".to_owned()))
        .with_caller("key:team-b");
    (entry.request_id, entry.address) = (Some("req-1".to_owned()), Some("192.0.2.7".parse().unwrap()));
    test.log.record(entry);
    test.log.record(AuditEntry::by_gateway(AuditAction::ConfigLoaded, "gatepost.yaml").refused("line 3: no"));
    let [first, second] = test.lines().try_into().unwrap();
    for (member, value) in [
        ("actor", "key:team-a"),
        ("action", "document_published"),
        ("subject", "echo"),
        ("caller", "key:team-b"),
        ("before", "aa"),
        ("after", "bb"),
        ("request_id", "req-1"),
        ("address", "192.0.2.7"),
        ("outcome", "done"),
    ] {
        assert_eq!(first[member], value, "{member}");
    }
    assert_eq!((&first["sequence"], &second["sequence"]), (&1.into(), &2.into()));
    assert_eq!(first["prev"], "0".repeat(64));
    let text = std::fs::read_to_string(test.path()).unwrap();
    assert_eq!(second["prev"], audit_line::hash_line(text.lines().next().unwrap().as_bytes()));
    assert_eq!(
        (&second["actor"], &second["outcome"], &second["detail"]),
        (&"gateway".into(), &"refused".into(), &"line 3: no".into())
    );
    let proof = test.verify().unwrap();
    assert_eq!((proof.lines, proof.first_sequence, proof.last.sequence), (2, 1, 2));
    assert_eq!(test.metric("gatepost_audit_entries_total{result=\"written\"}"), 2);
}

#[test]
fn r8_names_and_addresses_are_pseudonyms_with_the_key_of_the_access_log_and_credentials_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "0123456789abcdef").unwrap();
    let access_log = AccessLogConfig {
        callers: LoggedCallers::Pseudonym,
        addresses: LoggedAddresses::Truncated,
        pseudonym_key: Some(SecretRef::File(key)),
        ..AccessLogConfig::default()
    };
    let open = |config: &AuditConfig, access_log: &AccessLogConfig| AuditLog::open(config, access_log, None);
    let entry = || {
        let mut entry = AuditEntry::new(AuditAction::KeyCreated, "key:alice", "0123456789ab").with_caller("key:alice");
        entry.address = Some("192.0.2.7".parse().unwrap());
        entry.request_id = Some(format!("gp_0123456789ab_{}", "x".repeat(32)));
        entry
    };
    let shared = config(&folder.path().join("shared.log"));
    open(&shared, &access_log).unwrap().record(entry());
    let own = AuditConfig { callers: Some(LoggedCallers::Plain), ..config(&folder.path().join("own.log")) };
    open(&own, &access_log).unwrap().record(entry());
    let [shared, own] = ["shared.log", "own.log"].map(|name| lines_of(&folder.path().join(name)).remove(0));
    // printf key:alice | openssl dgst -sha256 -hmac 0123456789abcdef
    assert_eq!((&shared["actor"], &shared["caller"]), (&"pseudonym:7e59d1724cf25a6b".into(), &shared["actor"]));
    assert_eq!((&own["actor"], &own["address"]), (&"key:alice".into(), &"192.0.2.0".into()));
    assert!(!shared.to_string().contains("xxxx"), "{shared}");
    let keyless = AccessLogConfig { pseudonym_key: None, ..access_log };
    let problems = open(&config(&folder.path().join("no.log")), &keyless).unwrap_err();
    assert!(problems[0].starts_with("pseudonym_key: is required"), "{problems:?}");
    assert!(!folder.path().join("no.log").exists());
}

#[test]
fn r8_settings_out_of_bounds_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let valid = config(&folder.path().join("audit.log"));
    let short = Some(ConfigDuration::from_secs(60));
    for (config, path) in [
        (AuditConfig { retention: short, ..valid.clone() }, "retention: "),
        (AuditConfig { max_file_size: ByteSize::from_kib(1), ..valid.clone() }, "max_file_size: "),
        (AuditConfig { max_size: Some(ByteSize::from_kib(1)), ..valid.clone() }, "max_size: "),
        (
            AuditConfig { anchor_file: Some(folder.path().join("anchor").into()), ..valid.clone() },
            "anchor_file: must be in another folder",
        ),
        (
            AuditConfig { anchor_file: Some(PathBuf::from("/").into()), ..valid.clone() },
            "anchor_file: / is not the path",
        ),
        (AuditConfig { file: folder.path().to_path_buf().into(), ..valid.clone() }, "file: "),
        (AuditConfig { file: folder.path().join("absent/audit.log").into(), ..valid.clone() }, "file: "),
    ] {
        let checked = config.check(&AccessLogConfig::default()).unwrap_err();
        assert!(checked.len() == 1 && checked[0].starts_with(path), "{checked:?}");
        let opened = AuditLog::open(&config, &AccessLogConfig::default(), None).unwrap_err();
        assert!(opened.len() == 1 && opened[0].starts_with(path), "{opened:?}");
    }
    assert!(valid.check(&AccessLogConfig::default()).is_ok());
    assert!(!folder.path().join("audit.log").exists(), "a check creates no file");
}

#[test]
fn r8_texts_of_any_length_and_content_stay_one_line_of_bounded_length() {
    let test = TestLog::open();
    let hostile = "\n{\"sequence\":9}\u{0}\"\\".repeat(10_000);
    let mut entry = AuditEntry::new(AuditAction::DocumentPublished, &*hostile, &*hostile).with_caller(&*hostile);
    entry.request_id = Some(hostile.clone());
    test.log.record(entry.refused(&*hostile));
    test.record(&["echo"]);
    let text = std::fs::read_to_string(test.path()).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().all(|line| line.len() < audit_line::MAX_LINE_BYTES), "{}", text.len());
    test.verify().unwrap();
}

#[test]
fn r8_the_page_about_the_audit_log_has_every_action() {
    let page = include_str!("../../../docs/audit.md");
    for action in AuditAction::ALL {
        let row = format!("| `{}` | {} |", action.name(), action.meaning());
        assert!(page.contains(&row), "docs/audit.md lacks {row}");
    }
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `") && !line.contains("When") && line.matches('|').count() == 4)
        .count();
    assert_eq!(rows, AuditAction::ALL.len(), "docs/audit.md has an action that does not exist");
}
