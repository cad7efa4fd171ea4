//! The results of a run as tables.

use crate::figures::{median, table};
use crate::load::Target;
use crate::process::Process;
use crate::wire::Caller;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The rows that the others are compared with.
pub(crate) const NGINX: &str = "nginx";
pub(crate) const PINGORA: &str = "Pingora, bare";

/// A row of the tables: calls to the agent, directly or through a proxy, and the results of the rounds.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    /// `None` is the agent itself.
    pub(crate) process: Option<Rc<Process>>,
    pub(crate) rounds: Vec<Round>,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// The result of one round of one row.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Calls a second at saturation.
    pub(crate) per_second: f64,
    /// CPU time of the proxy and its descendants, in microseconds per call. `None` for the agent itself.
    pub(crate) cpu: Option<f64>,
    /// Calls a second while latency was measured: half of `per_second`.
    pub(crate) rate: u64,
    pub(crate) latency: Latency,
    /// The 99th percentile of how late the load itself began calls, in microseconds.
    #[serde(rename = "late")]
    pub(crate) late: f64,
    /// The agent's own latency at the same rate, measured right afterwards.
    pub(crate) direct: Option<Latency>,
    pub(crate) failed: u64,
}

impl Row {
    pub(crate) fn new(name: &'static str, target: Target, process: Option<&Rc<Process>>) -> Self {
        Self { name, target, process: process.cloned(), rounds: Vec::new() }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.rounds.iter().map(|round| round.failed).sum()
    }

    /// Returns the median of a value over the rounds that have it, or NaN.
    pub(crate) fn median(&self, value: impl Fn(&Round) -> Option<f64>) -> f64 {
        median(self.rounds.iter().filter_map(value))
    }

    /// Returns the median of the latency that the proxy adds to the agent's own.
    pub(crate) fn added(&self, percentile: impl Fn(&Latency) -> f64) -> f64 {
        self.median(|round| Some(percentile(&round.latency) - percentile(round.direct.as_ref()?)))
    }

    /// Returns the median ratio of this row's CPU to another row's in the same round.
    pub(crate) fn beside(&self, other: &Self) -> f64 {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.filter_map(|(own, other)| Some(own.cpu? / other.cpu?)))
    }
}

/// Finds the row that the rows of a protocol are compared with.
pub(crate) fn yardstick<'a>(rows: &'a [Row], name: &str, protocol: Caller) -> Option<&'a Row> {
    rows.iter().find(|row| row.name == name && row.target.caller == protocol)
}

/// Formats a table for each protocol: throughput and CPU at saturation, latency at half of that rate.
pub(crate) fn calls(direct: &Row, rows: &[Row]) -> String {
    let mut text = String::new();
    for protocol in Caller::ALL {
        let proxies = rows.iter().filter(|row| row.target.caller == protocol);
        let rows_of_protocol: Vec<&Row> = if protocol == Caller::Plain {
            [direct].into_iter().chain(proxies).collect()
        } else {
            proxies.collect()
        };
        let baselines = [NGINX, PINGORA].map(|name| yardstick(rows, name, protocol));
        let lines: Vec<Vec<String>> = rows_of_protocol.into_iter().map(|row| line(row, baselines)).collect();
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
            text.push_str(&table(&header, &lines));
            text.push('\n');
        }
    }
    text
}

/// Names the rows for which the load itself was so late that it distorts the latencies. Empty if there are none.
pub(crate) fn late(rows: &[Row]) -> String {
    const THRESHOLD: f64 = 1000.0;
    let lateness = rows.iter().map(|row| (row, row.median(|round| Some(round.late))));
    let late = lateness.filter(|(_, lateness)| *lateness > THRESHOLD);
    let names: Vec<String> = late
        .map(|(row, lateness)| format!("{}, {} ({lateness:.0} µs)", row.name, row.target.caller.name()))
        .collect();
    if names.is_empty() {
        return String::new();
    }
    format!("The load itself began one call in a hundred more than {THRESHOLD} µs late for: {}.\n", names.join("; "))
}

fn line(row: &Row, baselines: [Option<&Row>; 2]) -> Vec<String> {
    let mut cells = vec![
        row.name.to_owned(),
        cell(row.median(|round| Some(round.per_second)), 0),
        cell(row.median(|round| round.cpu), 1),
    ];
    cells.extend(baselines.map(|other| cell(other.map_or(f64::NAN, |other| row.beside(other)), 2)));
    let percentiles: [fn(&Latency) -> f64; 3] =
        [|latency| latency.p50, |latency| latency.p99, |latency| latency.p999];
    cells.extend(percentiles.map(|percentile| cell(row.median(|round| Some(percentile(&round.latency))), 0)));
    cells.extend(percentiles.map(|percentile| cell(row.added(percentile), 0)));
    cells.push(row.failed().to_string());
    cells
}

/// Formats a number, or a dash for NaN.
pub(crate) fn cell(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// The memory of one process, and the time to its first response.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    /// The time from start to first response in milliseconds: the median of several starts.
    pub(crate) first_answer_ms: f64,
    /// Resident memory in KiB: after the first response, after the rounds, after more calls, and with idle connections.
    pub(crate) resident_kib: [u64; 4],
}

/// Formats the table of memory and of the time to the first response.
pub(crate) fn kept(processes: &[Kept], calls: u64, idle: u64) -> String {
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
    let row = |process: &Kept| {
        let mut cells = vec![process.name.clone(), cell(process.first_answer_ms, 0)];
        cells.extend(process.resident_kib.iter().map(|kibibytes| cell(*kibibytes as f64 / 1024.0, 1)));
        let [.., before, after] = process.resident_kib;
        cells.push(cell((after as f64 - before as f64) / (idle as f64).max(1.0), 1));
        cells
    };
    let mut rows: Vec<Vec<String>> = processes.iter().map(row).collect();
    if calls == 0 {
        // Without more calls, there was no reading after them.
        header.retain(|title| *title != more_calls);
        rows.iter_mut().for_each(|cells| drop(cells.remove(4)));
    }
    table(&header, &rows)
}

#[cfg(test)]
mod tests;
