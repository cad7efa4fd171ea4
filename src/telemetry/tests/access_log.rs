//! Tests of the access log: complete and bounded entries without secrets, and targets that cannot be written.

use crate::{
    fault::{Fault, FaultCode},
    telemetry::{
        AccessLog, AccessLogConfig, AccessLogEntry, AccessLogTarget, ExpositionFormat, Metrics, log_privacy::LogPrivacy,
    },
};
use serde_json::Value;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

fn test_entry(id: &str) -> AccessLogEntry<'_> {
    AccessLogEntry::new(SystemTime::UNIX_EPOCH + Duration::from_millis(1_785_585_600_042), id)
}

fn read_entries(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"))).collect()
}

fn log_to(path: &Path) -> AccessLogConfig {
    AccessLogConfig { output: AccessLogTarget::File(path.into()), ..AccessLogConfig::default() }
}

fn write_entry(entry: &AccessLogEntry<'_>) -> Value {
    let mut line = Vec::new();
    let AccessLogConfig { callers, addresses, .. } = AccessLogConfig::default();
    entry.write(&mut line, &LogPrivacy::new(callers, addresses, None).unwrap());
    assert_eq!(line.iter().filter(|b| **b == b'\n').count(), 1);
    serde_json::from_slice(&line).unwrap()
}

fn open_log(path: &Path) -> (AccessLog, Arc<Metrics>) {
    let metrics = Metrics::new().unwrap();
    (AccessLog::new(&log_to(path), Arc::clone(&metrics)).unwrap(), metrics)
}

#[test]
fn an_entry_records_the_caller_the_request_and_the_outcome() {
    let fault = Fault::new(FaultCode::AgentError, "The agent failed.")
        .with_detail("agent said password=hunter2 at https://a.example/x?k=v");
    let entry = write_entry(&AccessLogEntry {
        peer: "2001:db8::1".parse().ok(),
        method: "POST",
        path: "/agents/echo/invoke",
        query_bytes: 12,
        protocol: "HTTP/2",
        agent: "echo",
        operation: "say",
        caller: "team-a",
        credential: "key",
        status: 502,
        fault: Some(&fault),
        bytes_in: 5,
        duration: Duration::from_micros(1_203_004),
        upstream_duration: Some(Duration::from_micros(1_000_050)),
        attempts: 2,
        user_agent: "curl/8 \"x\"\u{1b}[31m\n{}",
        trace_id: "0af7651916cd43dd8448eb211c80319c",
        ..test_entry("r1")
    });
    assert_eq!(entry["time"], "2026-08-01T12:00:00.042Z");
    assert_eq!(
        (&entry["status"], &entry["code"], &entry["blame"]),
        (&502.into(), &"AgentError".into(), &"agent".into())
    );
    assert_eq!(
        (entry["duration_ms"].as_f64(), entry["upstream_duration_ms"].as_f64()),
        (Some(1203.004), Some(1000.05))
    );
    assert_eq!(entry["peer"], "2001:db8::1");
    assert_eq!(entry["query_bytes"], 12);
    assert_eq!(entry["detail"], "agent said password=[redacted] at https://a.example/x?[redacted]");
    assert_eq!(entry["user_agent"], "curl/8 \"x\"\u{1b}[31m\n{}");
    assert!(entry.get("aborted").is_none());
}

#[test]
fn every_entry_has_its_own_timestamp_although_seconds_are_cached() {
    let timestamps: Vec<_> = [0, 1, 999, 1_000, 59_999, 60_000, 60_000, 1]
        .map(|millis| SystemTime::UNIX_EPOCH + Duration::from_millis(1_785_585_600_000 + millis))
        .into_iter()
        .map(|at| write_entry(&AccessLogEntry::new(at, "r"))["time"].as_str().unwrap().to_owned())
        .collect();
    let expected = ["00.000", "00.001", "00.999", "01.000", "59.999", "01:00.000", "01:00.000", "00.001"];
    for (timestamp, expected) in timestamps.iter().zip(expected) {
        let expected = if expected.contains(':') { format!("12:{expected}") } else { format!("12:00:{expected}") };
        assert_eq!(*timestamp, format!("2026-08-01T{expected}Z"));
    }
}

#[test]
fn ip_addresses_are_written_in_their_canonical_form() {
    for text in ["192.0.2.7", "10.0.0.255", "0.0.0.0", "2001:db8::7", "::ffff:192.0.2.7"] {
        assert_eq!(write_entry(&AccessLogEntry { peer: text.parse().ok(), ..test_entry("r") })["peer"], text);
    }
}

#[test]
fn r131_a_secret_is_redacted_in_every_field_a_caller_controls() {
    let key = "gp_Ab12Cd34_0123456789abcdefXYZ";
    let path = format!("/agents/{key}/invoke");
    let agent = format!("client ({key})");
    let fault = Fault::new(FaultCode::Unauthorized, format!("no {key}")).with_detail(key);
    let entry = write_entry(&AccessLogEntry {
        path: &path,
        user_agent: &agent,
        method: key,
        fault: Some(&fault),
        ..test_entry("r")
    });
    assert!(!entry.to_string().contains("0123456789abcdef"), "{entry}");
}

#[test]
fn a_long_field_is_truncated_at_a_character_without_exposing_part_of_a_secret() {
    let long = "ä".repeat(10_000);
    let detail = format!("{} eyJhbGciOiJIUzI1NiJ9.{}", "x".repeat(2_030), "e".repeat(5_000));
    let fault = Fault::new(FaultCode::Internal, "m").with_detail(detail);
    let entry = write_entry(&AccessLogEntry { path: &long, user_agent: &long, fault: Some(&fault), ..test_entry("r") });
    assert!(entry.to_string().len() < 5_000);
    assert!(!entry.to_string().contains("eyJ"), "{entry}");
}

#[test]
fn every_entry_is_written_exactly_once_before_close_returns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (log, _) = open_log(&path);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = &log;
            scope.spawn(move || (0..2_500).for_each(|n| log.write(&test_entry(&format!("{thread}-{n}")))));
        }
    });
    log.close();
    let mut ids: Vec<_> =
        read_entries(&path).iter().map(|line| line["request_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 10_000);
}

#[test]
fn an_entry_is_written_soon_without_closing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (log, _) = open_log(&path);
    log.write(&test_entry("r1"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while read_entries(&path).is_empty() {
        assert!(Instant::now() < deadline, "no entry");
        std::thread::yield_now();
    }
}

#[test]
fn after_reopening_entries_go_to_the_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let (log, _) = open_log(&path);
    log.write(&test_entry("r1"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while read_entries(&path).is_empty() {
        assert!(Instant::now() < deadline, "no entry");
        std::thread::yield_now();
    }
    std::fs::rename(&path, &old).unwrap();
    log.reopen();
    log.write(&test_entry("r2"));
    log.close();
    assert_eq!(read_entries(&old)[0]["request_id"], "r1");
    assert_eq!(read_entries(&path)[0]["request_id"], "r2");
}

#[test]
fn unwritable_entries_are_counted_and_no_call_waits() {
    let (log, metrics) = open_log(Path::new("/dev/full"));
    (0..100).for_each(|n| log.write(&test_entry(&n.to_string())));
    log.close();
    log.write(&test_entry("late"));
    let page = metrics.render(ExpositionFormat::Text);
    assert!(page.contains("\ngatepost_access_log_dropped_entries_total 101\n"), "{page}");
}

#[test]
fn a_blocked_target_fills_the_queue_and_further_entries_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    // Opened for reading and writing, but never read.
    let _end = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let (log, metrics) = open_log(&pipe);
    let agent = "x".repeat(200);
    for _ in 0..40_000 {
        log.write(&AccessLogEntry { user_agent: &agent, ..test_entry("r") });
    }
    let page = metrics.render(ExpositionFormat::Text);
    let dropped = page.lines().find_map(|line| line.strip_prefix("gatepost_access_log_dropped_entries_total "));
    assert!(dropped.unwrap().parse::<u64>().unwrap() > 5_000, "{dropped:?}");
    // Closing would wait for the blocked writer.
    std::mem::forget(log);
}

#[test]
fn a_file_that_cannot_be_opened_is_reported_with_its_path() {
    let why =
        AccessLog::new(&log_to(std::path::Path::new("/nonexistent/access.log")), Metrics::new().unwrap()).unwrap_err();
    assert!(why.contains("/nonexistent/access.log"), "{why}");
}

#[test]
fn targets_round_trip_and_unknown_fields_are_refused() {
    for text in ["stdout", "stderr", "off", "/var/log/gatepost.log"] {
        let config: AccessLogConfig = serde_json::from_value(serde_json::json!({ "output": text })).unwrap();
        assert_eq!(serde_json::to_value(&config).unwrap()["output"], text);
    }
    assert!(serde_json::from_str::<AccessLogConfig>(r#"{"output":""}"#).is_err());
    assert!(serde_json::from_str::<AccessLogConfig>(r#"{"format":"x"}"#).is_err());
}
