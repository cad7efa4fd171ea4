//! Several writers, rotation, retention, and files that cannot be written.

use super::*;
use std::{fs, os::unix::fs::PermissionsExt as _};
use time::{Duration, OffsetDateTime};

pub(super) fn renamed(log: &TestLog) -> Vec<PathBuf> {
    let mut files = list_files(&log.path()).unwrap();
    files.pop();
    files
}

/// Records an entry of a time.
fn record_at(test: &TestLog, time: OffsetDateTime, id: &str) {
    test.log.record(AuditEntry { time, ..AuditEntry::new(AuditAction::DocumentPublished, "key:team-a", id) });
}

/// Writes entries of some days before today, each of which ends in a renamed file.
pub(super) fn with_days(days: i64) -> TestLog {
    let (test, now) = (TestLog::open(), OffsetDateTime::now_utc());
    for day in (1..=days).rev() {
        record_at(&test, now - Duration::days(day) - Duration::HOUR, &format!("day-{day}"));
    }
    record_at(&test, now, "today");
    test
}

#[test]
fn r8_writers_of_several_processes_keep_one_chain() {
    let test = TestLog::open();
    let config = config(&test.path());
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let config = &config;
            scope.spawn(move || {
                // A log of its own, as in another process: locks of open files keep them apart.
                let log = AuditLog::open(config, &AccessLogConfig::default(), None).unwrap();
                for at in 0..20 {
                    log.record(AuditEntry::new(AuditAction::KeyCreated, format!("os:{writer}"), format!("{at}")));
                }
            });
        }
    });
    assert_eq!(test.verify().unwrap().lines, 160);
    for writer in 0..8 {
        let own = test.lines().into_iter().filter(|line| line["actor"] == format!("os:{writer}"));
        assert_eq!(
            own.map(|line| line["subject"].as_str().unwrap().parse().unwrap()).collect::<Vec<u32>>(),
            Vec::from_iter(0..20)
        );
    }
}

#[test]
fn r8_a_file_of_another_day_or_of_its_maximum_size_is_renamed_and_the_chain_goes_on() {
    let test = with_days(2);
    let names: Vec<_> = renamed(&test).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["audit.log.000000000001", "audit.log.000000000002"]);
    assert_eq!((test.lines().len(), test.verify().unwrap().lines), (1, 3));
    let detail = "x".repeat(500);
    for _ in 0..200 {
        test.log.record(AuditEntry::new(AuditAction::DocumentPublished, "key:team-a", "echo").with_detail(&*detail));
    }
    assert!(renamed(&test).len() >= 3, "{:?}", renamed(&test));
    assert_eq!(test.verify().unwrap().lines, 203);
}

#[test]
fn r8_swapped_missing_and_renamed_files_are_named() {
    let test = with_days(4);
    let files = renamed(&test);
    let swap = |one: &Path, other: &Path| {
        let aside = test.folder.path().join("aside");
        fs::rename(one, &aside).unwrap();
        fs::rename(other, one).unwrap();
        fs::rename(aside, other).unwrap();
    };
    swap(&files[0], &files[1]);
    let problem = test.verify().unwrap_err();
    assert!(problem.contains("000000000002:1: the file begins with line 1, and its name says line 2"), "{problem}");
    swap(&files[0], &files[1]);
    // The order of the arguments does not count.
    let mut arguments = list_files(&test.path()).unwrap();
    arguments.reverse();
    assert_eq!(ChainVerification::default().verify(&arguments).unwrap().lines, 5);
    fs::remove_file(&files[2]).unwrap();
    assert!(test.verify().unwrap_err().contains("line 3 is missing before line 4"));
    fs::remove_file(&files[0]).unwrap();
    fs::remove_file(&files[1]).unwrap();
    assert!(test.verify().unwrap_err().contains("lines 1 to 3 are missing before line 4"));
    let nowhere = ChainVerification::default().verify(&[test.folder.path().join("nowhere")]).unwrap_err();
    assert!(nowhere.contains("nowhere: cannot be read"), "{nowhere}");
}

#[test]
fn r8_old_files_are_deleted_by_age_and_size_and_the_chain_survives() {
    let test = with_days(4);
    test.log.delete_old_files(OffsetDateTime::now_utc()).unwrap();
    // A day and an hour is older than the retention of a day.
    assert_eq!(renamed(&test).len(), 0);
    let lines = test.lines();
    let pruned = lines.last().unwrap();
    assert_eq!(
        (&pruned["action"], &pruned["before"], &pruned["detail"]),
        (&"log_pruned".into(), &lines[0]["prev"], &"4 files with the lines 1 to 4".into())
    );
    let proof = test.verify().unwrap();
    assert_eq!((proof.first_sequence, proof.lines), (5, 2));
    test.log.delete_old_files(OffsetDateTime::now_utc()).unwrap();
    assert_eq!(test.lines().len(), 2, "nothing is deleted, and nothing is recorded");

    let by_size = with_days(4);
    let size = fs::metadata(by_size.path()).unwrap().len();
    let config =
        AuditConfig { retention: None, max_size: Some(ByteSize::from_bytes(64 << 10)), ..config(&by_size.path()) };
    let log = AuditLog::open(&config, &AccessLogConfig::default(), None).unwrap();
    log.delete_old_files(OffsetDateTime::now_utc()).unwrap();
    assert_eq!(renamed(&by_size).len(), 4, "{size}");
    // A file that is as large as all may be together.
    fs::write(by_size.folder.path().join("padding"), vec![b' '; 64 << 10]).unwrap();
    let first = &renamed(&by_size)[0];
    let mut padded = vec![b' '; 64 << 10];
    padded.push(b'\n');
    padded.extend(fs::read(first).unwrap());
    fs::write(first, padded).unwrap();
    log.delete_old_files(OffsetDateTime::now_utc()).unwrap();
    assert_eq!(renamed(&by_size).len(), 3);
    assert_eq!(by_size.verify().unwrap().first_sequence, 2);
}

#[test]
fn r8_files_that_are_deleted_without_an_entry_are_missing() {
    let test = with_days(4);
    for file in &renamed(&test)[..2] {
        fs::remove_file(file).unwrap();
    }
    assert!(test.verify().unwrap_err().contains("lines 1 to 2 are missing before line 3"));
}

#[test]
fn r8_entries_wait_while_the_file_cannot_be_written_and_are_written_in_their_order() {
    let test = TestLog::open();
    test.record(&["first"]);
    // A folder takes the place of the file: nobody can write it, not even the superuser.
    let aside = test.folder.path().join("aside");
    fs::rename(test.path(), &aside).unwrap();
    fs::create_dir(test.path()).unwrap();
    test.record(&["second", "third"]);
    assert_eq!(test.metric("gatepost_audit_entries_waiting"), 2);
    assert_eq!(test.log.require_writable(), Err(AuditLogUnavailable));
    let fault = crate::fault::Fault::from(AuditLogUnavailable);
    assert_eq!((fault.http_status(), fault.code().row().retryable), (503, true));
    for _ in 0..1_010 {
        test.record(&["more"]);
    }
    assert_eq!(test.metric("gatepost_audit_entries_waiting"), 1_000);
    assert_eq!(test.metric("gatepost_audit_entries_total{result=\"lost\"}"), 12);
    fs::remove_dir(test.path()).unwrap();
    fs::rename(aside, test.path()).unwrap();
    test.log.maintain(false);
    assert_eq!(test.log.require_writable(), Ok(()));
    let subjects: Vec<_> = test.lines().iter().take(3).map(|line| line["subject"].clone()).collect();
    assert_eq!(subjects, ["first", "second", "third"]);
    assert_eq!((test.verify().unwrap().lines, test.metric("gatepost_audit_entries_waiting")), (1_001, 0));
}

#[test]
fn r8_a_symbolic_link_is_refused_and_the_files_are_not_for_other_users() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("audit.log")).unwrap();
    let problems = AuditLog::open(&config(&folder.path().join("audit.log")), &AccessLogConfig::default(), None);
    assert!(problems.unwrap_err()[0].starts_with("file: "));
    let log = TestLog::open();
    assert_eq!(fs::metadata(log.path()).unwrap().permissions().mode() & 0o777 & !0o640, 0, "not for other users");
}

#[test]
fn r8_a_process_that_holds_the_lock_delays_others_only_so_long() {
    let test = TestLog::open();
    let held = head_file::LockedHead::open(&test.path(), head_file::LOCK_TIMEOUT).unwrap();
    test.record(&["waits"]);
    assert_eq!(test.metric("gatepost_audit_entries_waiting"), 1);
    // Callers that follow do not wait one after the other.
    let began = std::time::Instant::now();
    test.record(&["waits"; 19]);
    assert_eq!(test.log.require_writable(), Err(AuditLogUnavailable));
    assert!(began.elapsed() < head_file::LOCK_TIMEOUT, "{:?}", began.elapsed());
    drop(held);
    assert_eq!(test.log.require_writable(), Ok(()));
    assert_eq!(test.lines().len(), 20);
}
