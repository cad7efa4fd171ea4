//! Refused changes have a budget of their own, wait in a bounded queue, and push out no change.

use super::{refusal_queue::RefusalQueue, *};
use time::{Duration, OffsetDateTime};

fn login(at: OffsetDateTime) -> AuditEntry {
    let entry = AuditEntry::by_stranger(AuditAction::OperatorLoggedIn, "").refused("the credential is not valid");
    AuditEntry { time: at, address: Some("192.0.2.7".parse().unwrap()), ..entry }
}

fn publishing(actor: &str, at: OffsetDateTime) -> AuditEntry {
    let entry = AuditEntry::new(AuditAction::DocumentPublished, actor, "echo").refused("Conflict: no");
    AuditEntry { time: at, ..entry }
}

fn omitted(test: &TestLog) -> u64 {
    test.metric("gatepost_audit_entries_total{result=\"omitted\"}")
}

#[test]
fn r8_refused_changes_beyond_ten_in_a_second_are_counted_and_others_are_always_recorded() {
    let test = TestLog::open();
    let now = OffsetDateTime::now_utc();
    for _ in 0..50 {
        test.log.record_refusal(publishing("key:team-a", now));
    }
    test.record(&["echo"]);
    test.log.record_refusal(publishing("key:team-a", now + Duration::SECOND));
    test.log.maintain(false);
    assert_eq!((test.lines().len(), omitted(&test)), (12, 40));
    test.verify().unwrap();
}

#[test]
fn r8_the_refused_changes_of_one_publisher_do_not_hide_those_of_others() {
    let test = TestLog::open();
    let now = OffsetDateTime::now_utc();
    (0..1_000).for_each(|_| test.log.record_refusal(publishing("key:team-a", now)));
    (0..1_000).for_each(|_| test.log.record_refusal(login(now)));
    test.log.record_refusal(publishing("key:team-b", now));
    test.log.maintain(false);
    let lines = test.lines();
    assert_eq!(lines.iter().filter(|line| line["actor"] == "key:team-b").count(), 1, "{lines:?}");
    assert_eq!(lines.len(), 21);
    // All together have fifty.
    (0..1_000).for_each(|number| test.log.record_refusal(publishing(&format!("key:{number}"), now)));
    test.log.maintain(false);
    assert_eq!(test.lines().len(), 50);
}

/// Refuses twenty changes in each minute of some days, and returns the bytes of the lines that are recorded.
fn bytes_of_days(queue: &mut RefusalQueue, days: i64, refuse: impl Fn(OffsetDateTime) -> AuditEntry) -> usize {
    let privacy = LogPrivacy::new(LoggedCallers::Plain, LoggedAddresses::Full, None).unwrap();
    let (begin, mut bytes) = (OffsetDateTime::now_utc(), 0);
    for minute in 0..days * 24 * 60 {
        let now = begin + Duration::minutes(minute);
        for _ in 0..20 {
            queue.add(refuse(now), &privacy);
        }
        let lines = queue.take(now).into_iter();
        let length = |entry| audit_line::format_line(&entry, &privacy, &audit_line::ChainPosition::start()).len() + 1;
        bytes += lines.map(length).sum::<usize>();
    }
    bytes
}

#[test]
fn r8_strangers_fill_an_eighth_of_the_log_at_most_and_callers_as_much() {
    let days: i64 = 10;
    let config = AuditConfig {
        max_size: Some(ByteSize::from_kib(80 << 10)),
        retention: Some(ConfigDuration::from_secs(days.unsigned_abs() * 86_400)),
        ..config(Path::new("audit.log"))
    };
    let mut queue = RefusalQueue::new(&config);
    // 1 MiB a day, those of the first day at once, and an entry an hour about the others: 4 MiB would come each day.
    let by_strangers = bytes_of_days(&mut queue, days, login);
    assert!((10 << 20..12 << 20).contains(&by_strangers), "{by_strangers}");
    let by_callers = bytes_of_days(&mut queue, 1, |at| publishing(&format!("key:team-{}", at.minute() % 8), at));
    assert!((1 << 20..3 << 20).contains(&by_callers), "{by_callers}");
}

#[test]
fn r8_one_publisher_does_not_use_up_the_day_of_all_callers() {
    let config = AuditConfig {
        max_size: Some(ByteSize::from_kib(80 << 10)),
        retention: Some(ConfigDuration::from_secs(10 * 86_400)),
        ..config(Path::new("audit.log"))
    };
    let mut queue = RefusalQueue::new(&config);
    // A quarter of 1 MiB at once, and as much in the course of the day; the users of a client count as one.
    let of_client = |at: OffsetDateTime| publishing(&format!("oauth:client|sub=user-{}", at.minute()), at);
    let by_one = bytes_of_days(&mut queue, 1, of_client);
    assert!((500 << 10..600 << 10).contains(&by_one), "{by_one}");
    let privacy = LogPrivacy::new(LoggedCallers::Plain, LoggedAddresses::Full, None).unwrap();
    let tomorrow = OffsetDateTime::now_utc() + Duration::days(1);
    assert!(queue.add(publishing("key:team-b", tomorrow), &privacy));
    assert!(!(0..600).all(|second| queue.add(of_client(tomorrow + Duration::seconds(second)), &privacy)));
}

#[test]
fn r8_with_the_default_settings_a_day_of_refusals_has_less_than_a_mebibyte() {
    let settings: AuditConfig = serde_json::from_value(serde_json::json!({"file": "audit.log"})).unwrap();
    for config in [settings.clone(), AuditConfig { max_size: None, retention: None, ..settings }] {
        let bytes = bytes_of_days(&mut RefusalQueue::new(&config), 1, login);
        assert!(bytes < 1 << 20, "{bytes}");
    }
}

#[test]
fn r8_refusals_beyond_the_budget_are_counted_in_an_entry_an_hour() {
    let test = TestLog::open_with(|config| AuditConfig { max_size: Some(ByteSize::from_kib(64)), ..config });
    let begin = OffsetDateTime::now_utc() - Duration::HOUR - Duration::SECOND;
    (0..500).for_each(|_| test.log.record_refusal(login(begin)));
    test.log.record_refusal(publishing("key:team-a", begin));
    test.log.maintain(false);
    let lines = test.lines();
    let summary = lines.iter().find(|line| line["action"] == "refusals_omitted").unwrap();
    let detail = summary["detail"].as_str().unwrap();
    assert!(detail.ends_with("Z: operator_logged_in: 490; of strangers: 490"), "{detail}");
    assert_eq!((&summary["actor"], &summary["outcome"]), (&"gateway".into(), &"refused".into()));
    // Those that follow are in the entry of the next hour, or of the end.
    (0..500).for_each(|_| test.log.record_refusal(login(OffsetDateTime::now_utc())));
    test.log.maintain(false);
    let summaries = || test.lines().iter().filter(|line| line["action"] == "refusals_omitted").count();
    assert_eq!(summaries(), 1);
    test.log.finish();
    assert_eq!(summaries(), 2);
    test.log.finish();
    assert_eq!(summaries(), 2, "nothing was omitted since");
    test.verify().unwrap();
}

#[test]
fn r8_refusals_wait_in_a_bounded_queue_and_take_no_place_of_changes_while_the_log_cannot_be_written() {
    let test = TestLog::open();
    test.record(&["first"]);
    let aside = test.folder.path().join("aside");
    std::fs::rename(test.path(), &aside).unwrap();
    std::fs::create_dir(test.path()).unwrap();
    test.record(&["second"]);
    let now = OffsetDateTime::now_utc();
    // Nothing here waits for the disk.
    for second in 0..1_000 {
        (0..20).for_each(|_| test.log.record_refusal(login(now + Duration::seconds(second))));
    }
    test.log.maintain(false);
    assert_eq!(test.metric("gatepost_audit_entries_waiting"), 1, "only the change");
    assert_eq!(omitted(&test), 20_000 - 128);
    std::fs::remove_dir(test.path()).unwrap();
    std::fs::rename(aside, test.path()).unwrap();
    test.log.maintain(false);
    test.log.maintain(false);
    assert_eq!(test.lines().len(), 2 + 128);
    test.verify().unwrap();
}

#[test]
fn r8_a_clock_that_is_set_back_gives_no_further_budget() {
    let test = TestLog::open_with(|config| AuditConfig { max_size: Some(ByteSize::from_kib(64)), ..config });
    let now = OffsetDateTime::now_utc();
    for second in 0..2_000 {
        test.log.record_refusal(login(now - Duration::seconds(second)));
        test.log.maintain(false);
    }
    // 8 KiB, and one entry beyond.
    let lines = test.lines().len();
    assert!((15..60).contains(&lines), "{lines}");
}
