//! The copy of the head and of the last checkpoint in another folder: what was cut off together with the head is found.

use super::*;
use std::fs;

/// A log with an anchor, five lines and a signed checkpoint.
struct AnchoredLog {
    test: TestLog,
    anchors: TempDir,
    key: Arc<SigningKey>,
}

impl AnchoredLog {
    fn open() -> Self {
        let (anchors, key) = (tempfile::tempdir().unwrap(), signing_key());
        let anchor_file = Some(anchors.path().join("anchor").into());
        let test = TestLog::open_with(|config| AuditConfig { anchor_file, ..config });
        test.log.set_signing_key(Some(Arc::clone(&key)));
        test.record(&["a", "b", "c", "d", "e"]);
        test.log.finish();
        Self { test, anchors, key }
    }

    fn anchor(&self) -> PathBuf {
        self.anchors.path().join("anchor")
    }

    fn verify(&self) -> Result<ChainProof, String> {
        self.verify_with_key(&self.key)
    }

    fn verify_with_key(&self, key: &SigningKey) -> Result<ChainProof, String> {
        let keys = Some(keys_of(key));
        self.test.verify_with(ChainVerification { keys, anchor_file: Some(self.anchor()), known_line: None })
    }

    /// Cuts the log back to its first lines, with a head that fits them.
    fn cut_back(&self, lines: usize) {
        let text = fs::read_to_string(self.test.path()).unwrap();
        let rest: Vec<&str> = text.lines().take(lines).collect();
        fs::write(self.test.path(), rest.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        let hash = audit_line::hash_line(rest[lines - 1].as_bytes());
        let head = serde_json::json!({"sequence": lines, "hash": hash});
        fs::write(head_file::head_path(&self.test.path()), head.to_string()).unwrap();
    }

    fn change_anchor(&self, change: impl FnOnce(&mut Value)) {
        let mut anchor: Value = serde_json::from_slice(&fs::read(self.anchor()).unwrap()).unwrap();
        change(&mut anchor);
        fs::write(self.anchor(), anchor.to_string()).unwrap();
    }

    fn expect_problem(&self, text: &str) {
        let problem = self.verify().unwrap_err();
        assert!(problem.contains(text), "{problem}");
    }
}

#[test]
fn r8_the_anchor_has_the_head_and_the_last_checkpoint() {
    let log = AnchoredLog::open();
    log.test.record(&["f"]);
    let proof = log.verify().unwrap();
    assert_eq!((proof.lines, proof.anchored_up_to, proof.signed_up_to), (7, Some(7), Some(5)));
    assert_eq!(proof.unproven, [""; 0]);
    let anchor: Value = serde_json::from_slice(&fs::read(log.anchor()).unwrap()).unwrap();
    assert_eq!((&anchor["head"]["sequence"], &anchor["checkpoint"]["sequence"]), (&7.into(), &5.into()));
    assert_eq!(anchor["checkpoint"]["signature"], log.test.lines()[5]["signature"]);
    let without = log.test.verify().unwrap();
    assert!(without.unproven.iter().any(|what| what.starts_with("the end is not proven: ")), "{without:?}");
}

#[test]
fn r8_a_log_and_its_head_that_are_cut_back_behind_a_checkpoint_are_found() {
    for lines in [3, 5] {
        let log = AnchoredLog::open();
        log.cut_back(lines);
        log.test.verify().unwrap();
        log.expect_problem("missing at the end: the anchor knows line 6");
        // Neither a process that knows only the files nor the gateway hides it.
        drop(AuditLog::open(
            &AuditConfig { anchor_file: Some(log.anchor().into()), ..config(&log.test.path()) },
            &AccessLogConfig::default(),
            None,
        ));
        log.expect_problem("missing at the end: the anchor knows line 6");
        log.test.record(&["later"]);
        log.expect_problem("missing before line 7");
    }
}

#[test]
fn r8_a_log_that_is_cut_back_while_no_gateway_runs_is_found_after_its_start() {
    let log = AnchoredLog::open();
    log.cut_back(2);
    let config = AuditConfig { anchor_file: Some(log.anchor().into()), ..config(&log.test.path()) };
    let restarted = AuditLog::open(&config, &AccessLogConfig::default(), None).unwrap();
    restarted.record(AuditEntry::by_gateway(AuditAction::GatewayStarted, "gatepost.yaml"));
    log.expect_problem("lines 3 to 6 are missing before line 7");
    assert!(log.test.verify().unwrap_err().contains("missing before line 7"), "also without the anchor");
}

#[test]
fn r8_a_log_that_was_written_anew_is_not_that_of_the_anchor() {
    let log = AnchoredLog::open();
    fs::write(log.test.path(), "").unwrap();
    fs::remove_file(head_file::head_path(&log.test.path())).unwrap();
    let forger = log.test.of_another_process();
    for id in 0..8 {
        forger.record(AuditEntry::new(AuditAction::DocumentPublished, "key:team-a", id.to_string()));
    }
    log.test.verify().unwrap();
    let problem = log
        .test
        .verify_with(ChainVerification { anchor_file: Some(log.anchor()), ..ChainVerification::default() })
        .unwrap_err();
    assert!(problem.contains("line 5 was changed: the checkpoint of the anchor has another hash of it"), "{problem}");
}

#[test]
fn r8_an_anchor_that_is_missing_broken_forged_or_behind_is_named() {
    let log = AnchoredLog::open();
    let original = fs::read(log.anchor()).unwrap();
    fs::remove_file(log.anchor()).unwrap();
    log.expect_problem("anchor: the anchor cannot be read");
    for text in ["", "{}", "no anchor", r#"{"head":{"sequence":18446744073709551615,"hash":""}}"#] {
        fs::write(log.anchor(), text).unwrap();
        log.expect_problem("anchor: the file is not an anchor of an audit log");
    }
    fs::write(log.anchor(), &original).unwrap();
    let problem = log.verify_with_key(&signing_key()).unwrap_err();
    assert!(problem.contains("the checkpoint of the anchor is not signed with a trusted key"), "{problem}");
    log.change_anchor(|anchor| anchor["checkpoint"]["sequence"] = 4.into());
    log.expect_problem("the checkpoint of the anchor has the signature of another line");
    fs::write(log.anchor(), &original).unwrap();
    log.change_anchor(|anchor| anchor["head"]["hash"] = "ab".repeat(32).into());
    log.expect_problem("line 6 was changed: the anchor has another hash of it");
    let second = audit_line::hash_line(fs::read_to_string(log.test.path()).unwrap().lines().nth(1).unwrap().as_bytes());
    log.change_anchor(|anchor| *anchor = serde_json::json!({"head": {"sequence": 2, "hash": second}}));
    let unproven = log.verify().unwrap().unproven;
    assert!(unproven.iter().any(|what| what.contains("lines after 2 are not in the anchor")), "{unproven:?}");
}

#[test]
fn r8_an_anchor_that_cannot_be_written_is_named_and_entries_wait_for_it() {
    let anchors = tempfile::tempdir().unwrap();
    let anchor = anchors.path().join("anchor");
    let test = TestLog::open_with(|config| AuditConfig { anchor_file: Some(anchor.clone().into()), ..config });
    test.record(&["a"]);
    fs::rename(&anchor, anchors.path().join("aside")).unwrap();
    fs::create_dir(&anchor).unwrap();
    test.record(&["b"]);
    assert_eq!(test.log.require_writable(), Err(AuditLogUnavailable));
    fs::remove_dir(&anchor).unwrap();
    fs::rename(anchors.path().join("aside"), &anchor).unwrap();
    assert_eq!(test.log.require_writable(), Ok(()));
    assert_eq!(test.lines().len(), 2);

    let nowhere = AuditConfig { anchor_file: Some(anchors.path().join("no/anchor").into()), ..config(&test.path()) };
    let problems = nowhere.check(&AccessLogConfig::default()).unwrap_err();
    assert!(problems[0].starts_with("anchor_file: ") && problems[0].contains("is not a folder"), "{problems:?}");
    let problems = AuditLog::open(&nowhere, &AccessLogConfig::default(), None).unwrap_err();
    assert!(problems[0].contains("anchor_file "), "{problems:?}");
}
