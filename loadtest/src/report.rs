//! The results of a run as tables.

use crate::client_stream::ClientProtocol;
use crate::load::CallTarget;
use crate::process::ServerProcess;
use crate::statistics::{markdown_table, median};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The rows that the others are compared with.
pub(crate) const NGINX: &str = "nginx";
pub(crate) const PINGORA: &str = "Pingora, bare";

/// A row of the tables: calls to the agent, directly or through a proxy, and the results of the rounds.
pub(crate) struct ReportRow {
    pub(crate) name: &'static str,
    pub(crate) target: CallTarget,
    /// `None` is the agent itself.
    pub(crate) process: Option<Rc<ServerProcess>>,
    pub(crate) rounds: Vec<RoundResult>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct LatencyPercentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// The result of one round of one row.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RoundResult {
    /// Calls a second at saturation.
    pub(crate) per_second: f64,
    /// CPU time of the proxy and its descendants, in microseconds per call. `None` for the agent itself.
    pub(crate) cpu: Option<f64>,
    /// Calls a second while latency was measured: half of `per_second`.
    pub(crate) rate: u64,
    pub(crate) latency: LatencyPercentiles,
    /// The 99th percentile of how late the load itself began calls, in microseconds.
    #[serde(rename = "late")]
    pub(crate) lateness: f64,
    /// The agent's own latency at the same rate, measured right afterwards.
    pub(crate) direct: Option<LatencyPercentiles>,
    pub(crate) failed: u64,
}

impl ReportRow {
    pub(crate) fn new(name: &'static str, target: CallTarget, process: Option<&Rc<ServerProcess>>) -> Self {
        Self { name, target, process: process.cloned(), rounds: Vec::new() }
    }

    pub(crate) fn failed_calls(&self) -> u64 {
        self.rounds.iter().map(|round| round.failed).sum()
    }

    /// Returns the median of a value over the rounds that have it, or NaN.
    pub(crate) fn median_of(&self, value: impl Fn(&RoundResult) -> Option<f64>) -> f64 {
        median(self.rounds.iter().filter_map(value))
    }

    /// Returns the median of the latency that the proxy adds to the agent's own.
    pub(crate) fn added_latency(&self, percentile: impl Fn(&LatencyPercentiles) -> f64) -> f64 {
        self.median_of(|round| Some(percentile(&round.latency) - percentile(round.direct.as_ref()?)))
    }

    /// Returns the median ratio of this row's CPU to another row's in the same round.
    pub(crate) fn cpu_ratio(&self, other: &Self) -> f64 {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.filter_map(|(own, other)| Some(own.cpu? / other.cpu?)))
    }
}

/// Finds the row that the rows of a protocol are compared with.
pub(crate) fn baseline_row<'a>(rows: &'a [ReportRow], name: &str, protocol: ClientProtocol) -> Option<&'a ReportRow> {
    rows.iter().find(|row| row.name == name && row.target.protocol == protocol)
}

/// Formats a table for each protocol: throughput and CPU at saturation, latency at half of that rate.
pub(crate) fn call_tables(direct: &ReportRow, rows: &[ReportRow]) -> String {
    let mut text = String::new();
    for protocol in ClientProtocol::ALL {
        let proxies = rows.iter().filter(|row| row.target.protocol == protocol);
        let rows_of_protocol: Vec<&ReportRow> = if protocol == ClientProtocol::Http1 {
            [direct].into_iter().chain(proxies).collect()
        } else {
            proxies.collect()
        };
        let baselines = [NGINX, PINGORA].map(|name| baseline_row(rows, name, protocol));
        let lines: Vec<Vec<String>> = rows_of_protocol.into_iter().map(|row| row_cells(row, baselines)).collect();
        let title = format!("{}, 200 bytes in, 300 out", protocol.name());
        let header = [
            &title,
            "calls/s",
            "CPU µs/call",
            "× nginx",
            "× Pingora",
            "p50 µs",
            "p99 µs",
            "p99.9 µs",
            "added p50",
            "added p99",
            "added p99.9",
            "failed",
        ];
        if !lines.is_empty() {
            text.push_str(&markdown_table(&header, &lines));
            text.push('\n');
        }
    }
    text
}

/// Names the rows for which the load itself was so late that it distorts the latencies. Empty if there are none.
pub(crate) fn late_load_warning(rows: &[ReportRow]) -> String {
    const THRESHOLD: f64 = 1000.0;
    let lateness = rows.iter().map(|row| (row, row.median_of(|round| Some(round.lateness))));
    let late = lateness.filter(|(_, lateness)| *lateness > THRESHOLD);
    let names: Vec<String> = late
        .map(|(row, lateness)| format!("{}, {} ({lateness:.0} µs)", row.name, row.target.protocol.name()))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!("The load itself began one call in a hundred more than {THRESHOLD} µs late for: {}.\n", names.join("; "))
}

fn row_cells(row: &ReportRow, baselines: [Option<&ReportRow>; 2]) -> Vec<String> {
    let mut cells = vec![
        row.name.to_owned(),
        format_number(row.median_of(|round| Some(round.per_second)), 0),
        format_number(row.median_of(|round| round.cpu), 1),
    ];
    cells.extend(baselines.map(|other| format_number(other.map_or(f64::NAN, |other| row.cpu_ratio(other)), 2)));
    let percentiles: [fn(&LatencyPercentiles) -> f64; 3] =
        [|latency| latency.p50, |latency| latency.p99, |latency| latency.p999];
    cells.extend(
        percentiles.map(|percentile| format_number(row.median_of(|round| Some(percentile(&round.latency))), 0)),
    );
    cells.extend(percentiles.map(|percentile| format_number(row.added_latency(percentile), 0)));
    cells.push(row.failed_calls().to_string());
    cells
}

/// Formats a number, or a dash for NaN.
pub(crate) fn format_number(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// The memory of one process, and the time to its first response.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessMemory {
    pub(crate) name: String,
    /// The time from start to first response in milliseconds: the median of several starts.
    pub(crate) first_answer_ms: f64,
    /// Resident memory in KiB: after the first response, after the rounds, after more calls, and with idle connections.
    pub(crate) resident_kib: [u64; 4],
}

/// Formats the table of memory and of the time to the first response.
pub(crate) fn memory_table(processes: &[ProcessMemory], calls: u64, idle: u64) -> String {
    let (more_calls, with_idle) = (format!("{calls} more calls"), format!("with {idle} idle"));
    let mut header = vec![
        "resident MiB",
        "first answer ms",
        "at start",
        "after the rounds",
        &more_calls,
        &with_idle,
        "KiB per idle",
    ];
    let row = |process: &ProcessMemory| {
        let mut cells = vec![process.name.clone(), format_number(process.first_answer_ms, 0)];
        cells.extend(process.resident_kib.iter().map(|kibibytes| format_number(*kibibytes as f64 / 1024.0, 1)));
        let [.., before, after] = process.resident_kib;
        cells.push(format_number((after as f64 - before as f64) / (idle as f64).max(1.0), 1));
        cells
    };
    let mut rows: Vec<Vec<String>> = processes.iter().map(row).collect();
    if calls == 0 {
        // Without more calls, there was no reading after them.
        header.retain(|title| *title != more_calls);
        rows.iter_mut().for_each(|cells| drop(cells.remove(4)));
    }
    markdown_table(&header, &rows)
}

#[cfg(test)]
mod tests;
