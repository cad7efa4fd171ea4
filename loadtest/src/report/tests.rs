//! Ratios, added latencies, and the columns of the tables.

use super::{
    LatencyPercentiles, PINGORA, ProcessMemory, ReportRow, RoundResult, call_tables, late_load_warning, memory_table,
};
use crate::gatepost::anonymous_target;

fn round(cpu: Option<f64>, p50: f64) -> RoundResult {
    let latency = |p50| LatencyPercentiles { p50, p99: p50, p999: p50 };
    let direct = cpu.map(|_| latency(100.0));
    RoundResult { per_second: 1000.0, cpu, rate: 500, latency: latency(p50), lateness: p50, direct, failed: 0 }
}

fn row(name: &'static str, rounds: Vec<RoundResult>) -> ReportRow {
    ReportRow { rounds, ..ReportRow::new(name, anonymous_target("127.0.0.1:9".parse().unwrap(), "/invoke"), None) }
}

#[test]
fn cpu_is_compared_within_a_round() {
    let pingora = row(PINGORA, vec![round(Some(50.0), 0.0), round(Some(100.0), 0.0)]);
    let other = row("other", vec![round(Some(100.0), 0.0), round(Some(200.0), 0.0)]);
    assert_eq!(other.cpu_ratio(&pingora), 2.0);
}

#[test]
fn added_latency_is_over_the_agents_own_at_the_same_rate() {
    let other = row("other", vec![round(Some(1.0), 150.0), round(Some(1.0), 350.0)]);
    assert_eq!(other.added_latency(|latency| latency.p50), 150.0);
}

#[test]
fn the_row_of_the_agent_itself_has_no_cpu() {
    let direct = row("direct", vec![round(None, 100.0)]);
    let rows = [row(PINGORA, vec![round(Some(50.0), 150.0)])];
    let text = call_tables(&direct, &rows);
    assert!(text.lines().any(|line| line.starts_with("| direct") && line.contains('–')), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| Pingora, bare") && line.contains("1.00")), "{text}");
}

#[test]
fn memory_after_more_calls_has_a_column_only_if_there_were_more_calls() {
    let memory = ProcessMemory { name: "x".to_owned(), first_answer_ms: 5.0, resident_kib: [1024, 2048, 4608, 14_848] };
    let text = memory_table(std::slice::from_ref(&memory), 7, 1024);
    assert!(text.contains("7 more calls") && text.contains("10.0 |\n"), "{text}");
    let text = memory_table(&[ProcessMemory { resident_kib: [1024, 2048, 2048, 12_288], ..memory }], 0, 1024);
    assert!(!text.contains("more calls") && text.contains("10.0 |\n"), "{text}");
}

#[test]
fn rows_with_a_late_load_are_named() {
    let rows = [row("quick", vec![round(None, 50.0)]), row("slow", vec![round(None, 5000.0)])];
    let text = late_load_warning(&rows);
    assert!(text.contains("slow, HTTP/1.1 (5000 µs)") && !text.contains("quick"), "{text}");
    assert!(late_load_warning(&rows[..1]).is_empty());
}
