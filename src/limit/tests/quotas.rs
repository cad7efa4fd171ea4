//! Tests of daily and monthly quotas, and of their persistence across restarts.

use super::*;
use crate::limit::clock::CalendarTime;

#[test]
fn r5_a_daily_quota_ends_at_midnight_utc() {
    let limits = fixture(json!({"quota": {"per_day": 3}}));
    let agent = limits.agent("a");
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 3);
    let fault = assert_rate_limited(limits.call(&agent, "c"), "day");
    let seconds_left = limits.clock.calendar_now().until_day_end.as_secs();
    assert!(fault.retry_after_secs().unwrap().abs_diff(seconds_left) <= 1);
    assert_eq!(fault.headers().nth(1).unwrap().1, "\"day\";q=3;w=86400");
    assert_eq!(limits.admitted_calls(&agent, "d", 9), 3);
    limits.clock.advance(Duration::from_secs(seconds_left + 1));
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 3);
}

#[test]
fn r5_a_monthly_quota_spans_days() {
    let limits = fixture(json!({"quota": {"per_day": 2, "per_month": 3}}));
    let agent = limits.agent("a");
    let today = limits.clock.calendar_now();
    limits.clock.advance(today.until_month_end + Duration::from_secs(1));
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 2);
    limits.clock.advance(Duration::from_secs(86_400));
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 1);
    assert_rate_limited(limits.call(&agent, "c"), "month");
    limits.clock.advance(limits.clock.calendar_now().until_month_end + Duration::from_secs(1));
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 2);
}

#[test]
fn calendar_periods_are_correct_at_their_boundaries() {
    let day = Duration::from_secs(86_400);
    let leap = CalendarTime::from_unix(1_709_164_799);
    assert_eq!(
        (leap.until_day_end, leap.until_month_end, leap.month_length),
        (Duration::from_secs(1), day + Duration::from_secs(1), day * 29)
    );
    let new_year = CalendarTime::from_unix(1_767_225_600);
    assert_eq!(
        (new_year.day, new_year.month, new_year.until_day_end, new_year.until_month_end),
        (20_454, 2026 * 12 + 1, day, day * 31)
    );
    assert_eq!(CalendarTime::from_unix(1_767_225_599).month + 1, new_year.month);
}

#[test]
fn r5_a_refused_quota_refunds_the_rates_and_counts_nothing() {
    let limits = fixture(json!({"per_agent": "10/h", "quota": {"per_day": 2}}));
    let agent = limits.agent("a");
    assert_eq!(limits.admitted_calls(&agent, "c", 50), 2);
    assert_eq!(limits.admitted_calls(&agent, "d", 50), 2);
    assert_eq!(limits.admitted_calls(&agent, "e", 50), 2);
    let refusal = assert_rate_limited(limits.batch(&agent, "f", 3), "day");
    assert_eq!(refusal.retry_after_secs(), None);
    assert_eq!(limits.batch(&agent, "f", 2).unwrap().unwrap().remaining, 0);
}

#[test]
fn r5_a_tier_has_its_own_quota() {
    let limits = fixture(
        json!({"quota": {"per_day": 1}, "tiers": {"gold": {"quota": {"per_day": 5}}, "silver": {"per_caller": "9/s"}}}),
    );
    let agent = limits.agent("a");
    let admitted = |caller, tier| {
        let key = RateLimitKey::for_caller(caller, Some(tier));
        (0..20).filter(|_| ready(limits.limits.acquire_for_calls(&agent, &key, NonZeroU32::MIN)).is_ok()).count()
    };
    assert_eq!((admitted("g", "gold"), admitted("s", "silver")), (5, 1));
}

#[test]
fn callers_are_evicted_when_their_periods_end_and_excess_callers_share_one_count() {
    let limits = fixture(json!({"quota": {"per_day": 2}, "max_tracked_keys": 10}));
    let agent = limits.agent("a");
    let admitted: usize = (0..30).map(|n| limits.admitted_calls(&agent, &n.to_string(), 1)).sum();
    assert_eq!(admitted, 12, "ten from their own counts, and two from the shared one");
    assert_eq!(limits.limits.tracked_keys(), 10);
    limits.clock.advance(Duration::from_secs(86_400));
    limits.evict_all_idle();
    assert_eq!(limits.limits.tracked_keys(), 0);
}

#[test]
fn monthly_counts_are_not_evicted_overnight() {
    let limits = fixture(json!({"quota": {"per_month": 2}}));
    let agent = limits.agent("a");
    limits.clock.advance(limits.clock.calendar_now().until_month_end + Duration::from_secs(1));
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 2);
    limits.clock.advance(Duration::from_secs(86_400 * 3));
    limits.evict_all_idle();
    assert_eq!(limits.admitted_calls(&agent, "c", 9), 0);
}

#[test]
fn quotas_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quotas.json");
    let config_json = json!({"quota": {"per_day": 3}, "quota_state_file": path});
    let limits = fixture(config_json.clone());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "opening a configuration writes nothing");
    limits.limits.save_quotas(false).unwrap();
    assert!(path.exists());
    let agent = limits.agent("a");
    let caller = "te\"am\n-ä";
    let anonymous = RateLimitKey::for_address("2001:db8::1".parse().unwrap());
    assert_eq!(limits.admitted_calls(&agent, caller, 2), 2);
    assert_eq!(
        (0..9).filter(|_| ready(limits.limits.acquire_for_calls(&agent, &anonymous, NonZeroU32::MIN)).is_ok()).count(),
        3
    );
    limits.limits.save_quotas(true).unwrap();

    let restarted = fixture(config_json);
    let agent = restarted.agent("a");
    assert_eq!(restarted.admitted_calls(&agent, caller, 9), 1);
    let same_network = RateLimitKey::for_address("2001:db8::9".parse().unwrap());
    assert!(ready(restarted.limits.acquire_for_calls(&agent, &same_network, NonZeroU32::MIN)).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file remains");
}

#[test]
fn an_unreadable_quota_file_stops_the_start_and_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quotas.json");
    for content in ["", "{", "[]", r#"{"format":9,"callers":[]}"#, r#"{"format":1,"callers":[["a",1]]}"#] {
        std::fs::write(&path, content).unwrap();
        let problems =
            CallLimiter::new(&config(json!({"quota_state_file": path})), Metrics::new().unwrap()).unwrap_err();
        assert!(problems[0].starts_with("quota_state_file: ") && problems[0].contains("quotas.json"), "{problems:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
    let unwritable = config(json!({"quota_state_file": folder.path().join("no/such/folder/q.json")}));
    assert!(CallLimiter::new(&unwritable, Metrics::new().unwrap()).unwrap_err()[0].contains("cannot be written"));
}

#[test]
fn quotas_are_written_when_they_changed_and_not_more_often_than_the_interval() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quotas.json");
    let limits = fixture(json!({"quota": {"per_day": 3}, "quota_state_file": path}));
    let agent = limits.agent("a");
    limits.limits.save_quotas(false).unwrap();
    let before = std::fs::read_to_string(&path).unwrap();
    limits.call(&agent, "c").unwrap();
    limits.limits.save_quotas(false).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before, "the minimum interval has not passed");
    limits.limits.save_quotas(true).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("\"c\""));
    std::fs::remove_file(&path).unwrap();
    limits.limits.save_quotas(true).unwrap();
    assert!(!path.exists(), "nothing changed");
}

#[test]
fn a_reload_with_another_file_writes_the_quotas_there() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first.json", "second.json"].map(|name| folder.path().join(name));
    let settings = |path: &std::path::Path| json!({"quota": {"per_day": 3}, "quota_state_file": path});
    let limits = fixture(settings(&first));
    limits.call(&limits.agent("a"), "c").unwrap();
    limits.limits.save_quotas(true).unwrap();
    std::fs::remove_file(&first).unwrap();
    limits.limits.reconfigure(&config(settings(&first))).unwrap();
    limits.limits.save_quotas(true).unwrap();
    assert!(!first.exists(), "the same file has nothing new to store");
    limits.limits.reconfigure(&config(settings(&second))).unwrap();
    limits.limits.save_quotas(true).unwrap();
    assert!(!first.exists() && std::fs::read_to_string(&second).unwrap().contains("\"c\""));
}

#[test]
fn a_failed_write_is_reported_and_retried() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("x");
    std::fs::create_dir(&inner).unwrap();
    let limits = fixture(json!({"quota": {"per_day": 3}, "quota_state_file": inner.join("q.json")}));
    let agent = limits.agent("a");
    limits.call(&agent, "c").unwrap();
    std::fs::remove_dir_all(&inner).unwrap();
    assert!(limits.limits.save_quotas(true).unwrap_err().contains("cannot be written"));
    std::fs::create_dir(&inner).unwrap();
    limits.limits.save_quotas(true).unwrap();
    assert!(inner.join("q.json").exists());
}
