//! Pages of entries, read from the end of the log.

use super::*;
use std::fmt::Write as _;

/// Writes a file with the entries of these numbers, of which every third one was refused.
fn write_entries(file: &Path, numbers: std::ops::RangeInclusive<u64>) {
    let mut text = String::new();
    for number in numbers {
        let outcome = if number % 3 == 0 { "refused" } else { "done" };
        let padding = "x".repeat(usize::try_from(number % 400).unwrap());
        writeln!(
            text,
            r#"{{"sequence":{number},"time":"2026-11-26T10:00:00Z","actor":"key:team-{}","action":"key_created","subject":"{padding}","outcome":"{outcome}","prev":""}}"#,
            number % 7
        )
        .unwrap();
    }
    std::fs::write(file, text).unwrap();
}

fn sequences(page: &AuditPage) -> Vec<u64> {
    let number = |line: &AuditLine| match line {
        AuditLine::Entry(entry) => Some(entry.sequence),
        AuditLine::Broken(_) => None,
    };
    page.lines.iter().filter_map(number).collect()
}

/// Reads all pages, and returns the numbers of their entries and the number of pages.
fn read_all(log: &Path, query: AuditQuery) -> (Vec<u64>, usize) {
    let (mut query, mut found, mut pages) = (query, Vec::new(), 0);
    loop {
        let page = read_newest(log, &query).unwrap();
        found.extend(sequences(&page));
        pages += 1;
        assert!(page.next.is_none() || page.next != query.before, "the next page begins elsewhere");
        query.before = page.next;
        if query.before.is_none() {
            return (found, pages);
        }
    }
}

fn log_of_three_files() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    write_entries(&folder.path().join("audit.log.000000000001"), 1..=6_000);
    write_entries(&folder.path().join("audit.log.000000006001"), 6_001..=6_010);
    write_entries(&log, 6_011..=9_000);
    (folder, log)
}

#[test]
fn r8_pages_have_each_entry_once_from_the_newest_to_the_oldest() {
    let (_folder, log) = log_of_three_files();
    let (found, pages) = read_all(&log, AuditQuery { limit: 100, ..AuditQuery::default() });
    assert!(found.iter().copied().eq((1..=9_000).rev()), "{} entries", found.len());
    assert_eq!(pages, 90);
}

#[test]
fn r8_a_page_of_a_rare_kind_of_entry_reads_a_bounded_part_and_continues() {
    let (_folder, log) = log_of_three_files();
    let rare = AuditQuery {
        actor: Some("team-5".to_owned()),
        outcome: Some("refused".to_owned()),
        limit: 1_000,
        ..AuditQuery::default()
    };
    let (found, pages) = read_all(&log, rare);
    let expected = (1..=9_000_u64).rev().filter(|number| number % 7 == 5 && number % 3 == 0);
    assert!(found.iter().copied().eq(expected), "{} entries", found.len());
    assert!(pages > 1, "3 MiB are not read at once");
    let absent = AuditQuery { action: Some("checkpoint".to_owned()), limit: 10, ..AuditQuery::default() };
    assert_eq!(read_all(&log, absent).0, [0_u64; 0]);
}

#[test]
fn r8_a_broken_line_is_shown_and_an_incomplete_one_at_the_end_is_not() {
    let test = TestLog::open();
    test.record(&["one", "two"]);
    let text = std::fs::read_to_string(test.path()).unwrap();
    let [first, second] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    std::fs::write(test.path(), format!("{first}\nno entry\n{second}\n{{\"sequence\":3,")).unwrap();
    let page = read_newest(&test.path(), &AuditQuery { limit: 10, ..AuditQuery::default() }).unwrap();
    assert_eq!(sequences(&page), [2, 1]);
    assert_eq!(page.lines.get(1), Some(&AuditLine::Broken("audit.log".to_owned())));
    // A file without a line feed has no line.
    std::fs::write(test.path(), "x".repeat(3 << 20)).unwrap();
    let page = read_newest(&test.path(), &AuditQuery { limit: 10, ..AuditQuery::default() }).unwrap();
    assert!(page.lines.len() <= 11, "{}", page.lines.len());
    std::fs::remove_file(test.path()).unwrap();
    let page = read_newest(&test.path(), &AuditQuery { limit: 10, ..AuditQuery::default() }).unwrap();
    assert_eq!((page.lines.len(), page.next), (0, None), "a log that is not there yet has no entry");
}

#[test]
fn r8_a_verification_ends_at_its_deadline() {
    let test = TestLog::open();
    let privacy = LogPrivacy::new(LoggedCallers::Plain, LoggedAddresses::Full, None).unwrap();
    let path = test.path();
    let files = anchor_file::LogFiles { log: path.clone(), anchor: None };
    let mut locked = chained_file::LockedLog::open(&files, None, std::time::Duration::from_secs(5)).unwrap();
    for _ in 0..1_100 {
        locked.append(&AuditEntry::by_admin(AuditAction::SourceRefreshed, "files"), &privacy).unwrap();
    }
    locked.commit().unwrap();
    drop(locked);
    let verify_until = |deadline| ChainVerification::default().verify_until(&list_files(&path).unwrap(), deadline);
    assert_eq!(verify_until(None).unwrap().unwrap().lines, 1_100);
    assert_eq!(verify_until(Some(std::time::Instant::now())), Ok(None));
}
