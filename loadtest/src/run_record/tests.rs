//! A record survives serialisation.

use super::{MachineInfo, RowRecord, RunRecord};
use crate::report::{LatencyPercentiles, ProcessMemory, RoundResult};
use std::collections::BTreeMap;

/// A record with two rows of one round each. The first row is the agent itself.
pub(crate) fn record() -> RunRecord {
    let latency = |p50| LatencyPercentiles { p50, p99: 4.0 * p50, p999: 8.0 * p50 };
    let round = |cpu, direct| RoundResult {
        per_second: 9000.5,
        cpu,
        rate: 4500,
        latency: latency(120.0),
        lateness: 40.5,
        direct,
        failed: 0,
    };
    let row = |name: &str, round| RowRecord {
        name: name.to_owned(),
        protocol: "HTTP/1.1".to_owned(),
        times_pingora: Some(1.25),
        times_nginx: None,
        rounds: vec![round],
    };
    RunRecord {
        ended: 1,
        machine: MachineInfo { cores: 2, processor: "a < b & c".to_owned(), kernel: "6.1".to_owned() },
        versions: BTreeMap::from([("nginx".to_owned(), "nginx version: nginx/1.22.1".to_owned())]),
        args: serde_json::json!({ "rounds": 1 }),
        rows: vec![row("direct", round(None, None)), row("Gatepost < & 1", round(Some(61.5), Some(latency(60.0))))],
        memory: vec![ProcessMemory { name: "nginx".to_owned(), first_answer_ms: 7.5, resident_kib: [1, 2, 3, 4] }],
    }
}

#[test]
fn a_serialised_record_deserialises_to_the_same_record() {
    let record = record();
    let text = serde_json::to_string_pretty(&record).unwrap();
    assert_eq!(serde_json::from_str::<RunRecord>(&text).unwrap(), record);
}
