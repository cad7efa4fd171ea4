//! Prunings that the gateway signs, and those that a program with access to the files forges.

use super::{
    files::{renamed, with_days},
    *,
};
use std::fs;
use time::OffsetDateTime;

/// A log of four days that have a signed checkpoint, and its key.
fn signed_days() -> (TestLog, Arc<SigningKey>) {
    let (test, key) = (with_days(4), signing_key());
    test.log.set_signing_key(Some(Arc::clone(&key)));
    test.log.maintain(false);
    (test, key)
}

fn with_keys_of(test: &TestLog, key: &SigningKey) -> Result<ChainProof, String> {
    test.verify_with(ChainVerification { keys: Some(keys_of(key)), ..ChainVerification::default() })
}

/// Deletes the renamed files, after an entry that says so, as a program does that has no key.
fn forge_pruning(test: &TestLog) {
    let before = test.lines()[0]["prev"].as_str().unwrap().to_owned();
    let entry = AuditEntry::by_gateway(AuditAction::LogPruned, "audit.log").with_digests(Some(before), None);
    test.of_another_process().record(entry);
    renamed(test).iter().for_each(|file| fs::remove_file(file).unwrap());
}

#[test]
fn r8_a_pruning_is_signed_and_proves_the_beginning() {
    let (test, key) = signed_days();
    test.log.delete_old_files(OffsetDateTime::now_utc()).unwrap();
    assert_eq!(renamed(&test).len(), 0);
    assert!(test.lines().last().unwrap()["signature"].is_string());
    let proof = with_keys_of(&test, &key).unwrap();
    assert_eq!((proof.first_sequence, proof.signed_up_to), (5, Some(6)));
    assert!(!proof.unproven.iter().any(|what| what.contains("beginning")), "{proof:?}");
    let unproven = test.verify().unwrap().unproven;
    let expected = "lines before 5 were pruned by an entry whose signature was not verified";
    assert!(unproven.iter().any(|what| what.contains(expected)), "{unproven:?}");
    let problem = with_keys_of(&test, &signing_key()).unwrap_err();
    assert!(problem.contains("not signed with a trusted key"), "{problem}");
}

#[test]
fn r8_a_forged_pruning_does_not_remove_the_beginning() {
    let (test, key) = signed_days();
    forge_pruning(&test);
    let problem = with_keys_of(&test, &key).unwrap_err();
    assert!(problem.contains("audit.log:3: the pruning is not signed with a trusted key"), "{problem}");
    // Nor does a checkpoint that the gateway signs over it later.
    test.log.finish();
    test.record(&["later"]);
    test.log.finish();
    assert!(with_keys_of(&test, &key).unwrap_err().contains("the pruning is not signed"));
    let proof = test.verify().unwrap();
    let expected = "the beginning is not proven: lines before 5 were pruned by an unsigned entry";
    assert!(proof.unproven.iter().any(|what| what == expected), "{proof:?}");
}

#[test]
fn r8_the_signature_of_another_line_proves_no_pruning() {
    // Of a checkpoint over the same line, of another pruning, and of another key.
    let (test, key) = signed_days();
    let last = test.verify().unwrap().last;
    let first_prev = test.lines()[0]["prev"].clone();
    let claims = |before: Option<&Value>| {
        let mut claims = serde_json::json!({"sequence": last.sequence, "hash": last.hash});
        if let (Some(before), Some(claims)) = (before, claims.as_object_mut()) {
            claims.insert("before".to_owned(), before.clone());
        }
        claims
    };
    let sign = |key: &SigningKey, before| key.sign_token(audit_log::CHECKPOINT_TYPE, &claims(before)).unwrap();
    let other = Value::from("ab".repeat(32));
    forge_pruning(&test);
    let text = fs::read_to_string(test.path()).unwrap();
    for (signature, is_valid) in [
        (sign(&key, None), false),
        (sign(&key, Some(&other)), false),
        (sign(&signing_key(), Some(&first_prev)), false),
        (String::new(), false),
        ("x".repeat(10_000), false),
        (sign(&key, Some(&first_prev)), true),
    ] {
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let pruning = lines.last_mut().unwrap().as_object_mut().unwrap();
        pruning.insert("signature".to_owned(), signature.clone().into());
        let last = lines.last().unwrap().to_string();
        let unchanged: String = text.split_inclusive('\n').take(lines.len() - 1).collect();
        fs::write(test.path(), format!("{unchanged}{last}\n")).unwrap();
        let head = audit_line::ChainPosition {
            sequence: lines.last().unwrap()["sequence"].as_u64().unwrap(),
            hash: audit_line::hash_line(last.as_bytes()),
        };
        fs::write(head_file::head_path(&test.path()), serde_json::to_string(&head).unwrap()).unwrap();
        let verified = with_keys_of(&test, &key);
        assert_eq!(verified.is_ok(), is_valid, "{signature}: {verified:?}");
    }
}

#[test]
fn r8_a_pruning_without_a_key_is_not_signed_and_verify_says_so() {
    let test = with_days(2);
    test.log.delete_old_files(OffsetDateTime::now_utc()).unwrap();
    assert_eq!(test.lines().last().unwrap().get("signature"), None);
    let unproven = test.verify().unwrap().unproven;
    assert!(
        unproven.iter().any(|what| what.contains("lines before 3 were pruned by an unsigned entry")),
        "{unproven:?}"
    );
    assert!(unproven.iter().any(|what| what.starts_with("signatures not verified")), "{unproven:?}");
}
