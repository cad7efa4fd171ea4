//! Each way to tamper with the files is found, and the first broken line is named.

use super::*;
use std::fs;

/// A log whose lines can be changed.
struct Tampered(TestLog);

impl Tampered {
    fn with_lines(count: usize) -> Self {
        let test = TestLog::open();
        for at in 0..count {
            test.record(&[&format!("agent-{at}")]);
        }
        Self(test)
    }

    /// Rewrites the lines of the current file.
    fn edit(&self, edit: impl FnOnce(&mut Vec<String>)) {
        let mut lines: Vec<String> = fs::read_to_string(self.0.path()).unwrap().lines().map(str::to_owned).collect();
        edit(&mut lines);
        fs::write(self.0.path(), lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }

    fn expect_problem(&self, line: u64, text: &str) {
        let problem = self.0.verify().unwrap_err();
        assert!(problem.starts_with(&format!("{}:{line}: ", self.0.path().display())), "{problem}");
        assert!(problem.contains(text), "{problem}");
    }
}

#[test]
fn r8_a_changed_line_is_named_also_the_last_one() {
    let log = Tampered::with_lines(5);
    log.edit(|lines| lines[2] = lines[2].replace("agent-2", "agent-9"));
    log.expect_problem(3, "line 3 was changed: line 4 has another hash of it");
    let log = Tampered::with_lines(5);
    log.edit(|lines| lines[4] = lines[4].replace("agent-4", "agent-9"));
    log.expect_problem(5, "line 5 was changed: the head of the log");
    // The next entry refers to the line that was written, and not to the one that is there.
    log.0.record(&["later"]);
    log.expect_problem(5, "line 5 was changed: line 6 has another hash of it");
    let log = Tampered::with_lines(2);
    log.edit(|lines| lines[1] = "{}".to_owned());
    log.expect_problem(2, "is not an entry");
}

#[test]
fn r8_numbers_that_no_line_has_are_found_and_do_not_end_the_log() {
    for number in [0, u64::MAX] {
        let log = Tampered::with_lines(2);
        log.edit(|lines| {
            lines[0] = lines[0].replace("\"sequence\":1", &format!("\"sequence\":{number}"));
            lines[1] = lines[1].replace("\"sequence\":2", &format!("\"sequence\":{number}"));
        });
        log.expect_problem(1, "is not an entry");
        let head = format!("{{\"sequence\":{number},\"hash\":\"{}\"}}", "0".repeat(64));
        fs::write(log.0.path().with_extension("log.head"), head).unwrap();
        log.0.record(&["later"]);
        assert_eq!(log.0.lines().len(), 3);
    }
}

#[test]
fn r8_a_removed_line_is_named_also_the_first_and_the_last_one() {
    for (removed, line, text) in [
        (2, 3, "line 3 is missing before line 4"),
        (0, 1, "line 1 is missing before line 2"),
        (4, 4, "line 5 is missing at the end"),
    ] {
        let log = Tampered::with_lines(5);
        log.edit(|lines| drop(lines.remove(removed)));
        log.expect_problem(line, text);
    }
    // A line that follows does not hide that the end was cut off.
    let log = Tampered::with_lines(5);
    log.edit(|lines| lines.truncate(3));
    log.0.record(&["later"]);
    log.expect_problem(4, "lines 4 to 5 are missing before line 6");
    let log = Tampered::with_lines(3);
    fs::write(log.0.path(), "").unwrap();
    assert!(log.0.verify().unwrap_err().contains("lines 1 to 3 are missing"));
}

#[test]
fn r8_moved_and_repeated_lines_are_named() {
    let log = Tampered::with_lines(5);
    log.edit(|lines| lines.swap(1, 2));
    log.expect_problem(2, "line 2 is missing before line 3");
    let log = Tampered::with_lines(5);
    log.edit(|lines| lines.insert(3, lines[1].clone()));
    log.expect_problem(4, "line 2 comes after line 3");
}

#[test]
fn r8_a_line_that_was_cut_off_is_named_and_the_next_entry_does_not_hide_it() {
    let log = Tampered::with_lines(3);
    let text = fs::read_to_string(log.0.path()).unwrap();
    fs::write(log.0.path(), &text[..text.len() - 10]).unwrap();
    log.expect_problem(3, "not complete");
    log.0.record(&["later"]);
    log.expect_problem(3, "line 3 is missing before line 4");
}

#[test]
fn r8_a_process_that_died_while_it_wrote_a_line_breaks_nothing() {
    let log = Tampered::with_lines(2);
    let head = fs::read(head_file::head_path(&log.0.path())).unwrap();
    let text = fs::read_to_string(log.0.path()).unwrap();
    fs::write(log.0.path(), format!("{text}{{\"sequence\":3,\"time\"")).unwrap();
    log.0.record(&["later"]);
    assert_eq!(log.0.verify().unwrap().lines, 3);
    // Or between the line and the head.
    fs::write(head_file::head_path(&log.0.path()), head).unwrap();
    assert_eq!(log.0.verify().unwrap().lines, 3);
    log.0.record(&["last"]);
    assert_eq!(log.0.verify().unwrap().lines, 4);
}

#[test]
fn r8_a_head_that_is_missing_or_broken_fails_and_the_next_entry_makes_it_again() {
    let log = Tampered::with_lines(2);
    let (head, last) = (head_file::head_path(&log.0.path()), log.0.verify().unwrap().last);
    let expect_missing = |verified: Result<ChainProof, String>| {
        let problem = verified.unwrap_err();
        assert!(
            problem.starts_with(&format!("{}: the head of the log is missing or broken", head.display())),
            "{problem}"
        );
    };
    fs::remove_file(&head).unwrap();
    expect_missing(log.0.verify());
    // A line that is known from elsewhere makes up for it, if it is there.
    let knows = |last: &KnownLine| ChainVerification { known_line: Some(last.clone()), ..ChainVerification::default() };
    assert_eq!(log.0.verify_with(knows(&last)).unwrap().lines, 2);
    log.0.verify_with(knows(&KnownLine { sequence: 3, ..last })).unwrap_err();
    log.0.record(&["third"]);
    assert_eq!(log.0.verify().unwrap().lines, 3);
    for text in ["broken", ""] {
        fs::write(&head, text).unwrap();
        expect_missing(log.0.verify());
    }
    // A gateway that starts makes it again too: its next entry would.
    drop(log.0.of_another_process());
    assert_eq!(log.0.verify().unwrap().lines, 3);
}

#[test]
fn r8_files_without_the_current_one_are_not_valid_unless_their_last_line_is_known() {
    let log = Tampered::with_lines(2);
    let last = log.0.verify().unwrap().last;
    let renamed = log.0.folder.path().join("audit.log.000000000001");
    fs::rename(log.0.path(), &renamed).unwrap();
    let verify = |known_line| {
        ChainVerification { known_line, ..ChainVerification::default() }.verify(std::slice::from_ref(&renamed))
    };
    let problem = verify(None).unwrap_err();
    assert!(problem.contains("the current file is not named"), "{problem}");
    assert_eq!(verify(Some(last)).unwrap().lines, 2);
}

#[test]
fn r8_a_gateway_that_runs_notices_that_its_log_and_head_were_cut_off() {
    for cut in [2, 0] {
        let log = Tampered::with_lines(5);
        log.edit(|lines| lines.truncate(cut));
        fs::remove_file(head_file::head_path(&log.0.path())).unwrap();
        drop(log.0.of_another_process());
        log.0.record(&["later"]);
        let problem = log.0.verify().unwrap_err();
        assert!(problem.contains("missing before line 6"), "{problem}");
    }
}

#[test]
fn r8_a_log_that_was_written_anew_is_not_signed_and_lacks_the_known_line() {
    let log = Tampered::with_lines(3);
    let key = signing_key();
    log.0.log.set_signing_key(Some(Arc::clone(&key)));
    log.0.log.maintain(false);
    let files = list_files(&log.0.path()).unwrap();
    let with_keys = |keys, known_line| ChainVerification { keys, known_line, anchor_file: None }.verify(&files);
    let verify = |known_line| with_keys(Some(keys_of(&key)), known_line);
    let proof = verify(None).unwrap();
    assert_eq!((proof.lines, proof.signed_up_to), (4, Some(3)));
    assert_eq!(verify(Some(proof.last.clone())).unwrap(), proof);

    // Who can write the file can write a chain, but not sign it.
    let forged = Tampered::with_lines(3);
    forged.edit(|lines| lines.truncate(0));
    fs::remove_file(head_file::head_path(&forged.0.path())).unwrap();
    let forger = forged.0.of_another_process();
    for id in ["a", "b", "c"] {
        forger.record(AuditEntry::new(AuditAction::DocumentPublished, "key:team-a", id));
    }
    forged.0.verify().unwrap();
    let signature = log.0.lines()[3]["signature"].as_str().unwrap().to_owned();
    fs::copy(forged.0.path(), log.0.path()).unwrap();
    fs::copy(head_file::head_path(&forged.0.path()), head_file::head_path(&log.0.path())).unwrap();
    assert!(verify(None).unwrap_err().contains("no checkpoint is signed"));
    assert!(verify(Some(proof.last)).unwrap_err().contains("line 4, which is known, is missing"));
    // A signature of another line does not help.
    let last = forged.0.verify().unwrap().last;
    let line = serde_json::json!({"sequence": 4, "time": "2026-01-01T00:00:00Z", "actor": "gateway", "action": "checkpoint",
        "subject": "", "outcome": "done", "signature": signature, "prev": last.hash});
    fs::remove_file(head_file::head_path(&log.0.path())).unwrap();
    log.edit(|lines| lines.push(line.to_string()));
    let problem = verify(None).unwrap_err();
    assert!(problem.contains(":4: the signature of the checkpoint is of another line"), "{problem}");
    let others = Some(keys_of(&signing_key()));
    let problem = with_keys(others, None).unwrap_err();
    assert!(problem.contains(":4: the checkpoint is not signed with a trusted key"), "{problem}");
}

#[test]
fn r8_a_known_line_is_written_as_its_number_and_its_hash() {
    let hash = "ab".repeat(32);
    let known: KnownLine = format!("12:{}", hash.to_uppercase()).parse().unwrap();
    assert_eq!(known, KnownLine { sequence: 12, hash });
    for text in ["", "12", "12:", "12:ab", "x:ab", ":"] {
        assert!(text.parse::<KnownLine>().is_err(), "{text}");
    }
}
