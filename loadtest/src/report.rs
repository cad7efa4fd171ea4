//! What the rounds said, as tables.

use crate::figures::{median, table};
use crate::load::Target;
use crate::process::Process;
use crate::wire::Caller;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The rows with which the others are compared.
pub(crate) const NGINX: &str = "nginx";
pub(crate) const PINGORA: &str = "Pingora, bare";

/// One way for a call to reach the agent, and what the rounds said about it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    /// `None` is the agent itself.
    pub(crate) process: Option<Rc<Process>>,
    pub(crate) rounds: Vec<Round>,
}

/// Times in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// One round of one row.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Calls a second at saturation.
    pub(crate) per_second: f64,
    /// CPU of the proxy and of all that it started, in microseconds a call; none for the agent itself.
    pub(crate) cpu: Option<f64>,
    /// Calls a second while latency was measured: half of `per_second`.
    pub(crate) rate: u64,
    pub(crate) latency: Latency,
    /// How late the load itself began calls, the 99th of a hundred, in microseconds.
    pub(crate) late: f64,
    /// The agent itself at the same rate, right after.
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

    /// The median over the rounds of what each says; NaN where none does.
    pub(crate) fn median(&self, of: impl Fn(&Round) -> Option<f64>) -> f64 {
        median(self.rounds.iter().filter_map(of))
    }

    /// What the proxy adds to the agent's own latency.
    pub(crate) fn added(&self, of: impl Fn(&Latency) -> f64) -> f64 {
        self.median(|round| Some(of(&round.latency) - of(round.direct.as_ref()?)))
    }

    /// CPU beside another row's, of the same round.
    pub(crate) fn beside(&self, other: &Self) -> f64 {
        let both = self.rounds.iter().zip(&other.rounds);
        median(both.filter_map(|(mine, theirs)| Some(mine.cpu? / theirs.cpu?)))
    }
}

/// The row with which those of one kind of caller are compared.
pub(crate) fn yardstick<'a>(rows: &'a [Row], name: &str, caller: Caller) -> Option<&'a Row> {
    rows.iter().find(|row| row.name == name && row.target.caller == caller)
}

/// A table for each kind of caller: throughput and CPU at saturation, latency at half of it.
pub(crate) fn calls(direct: &Row, rows: &[Row]) -> String {
    let mut text = String::new();
    for caller in Caller::ALL {
        let own = rows.iter().filter(|row| row.target.caller == caller);
        let own: Vec<&Row> =
            if caller == Caller::Plain { [direct].into_iter().chain(own).collect() } else { own.collect() };
        let yardsticks = [NGINX, PINGORA].map(|name| yardstick(rows, name, caller));
        let lines: Vec<Vec<String>> = own.into_iter().map(|row| line(row, yardsticks)).collect();
        let title = format!("{}, 200 bytes in, 300 out", caller.name());
        let head = [
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
            text.push_str(&table(&head, &lines));
            text.push('\n');
        }
    }
    text
}

/// Where the load itself was so late that latencies are partly its own; nothing where that is nowhere.
pub(crate) fn late(rows: &[Row]) -> String {
    const BOUND: f64 = 1000.0;
    let late = rows.iter().map(|row| (row, row.median(|round| Some(round.late)))).filter(|(_, late)| *late > BOUND);
    let named: Vec<String> =
        late.map(|(row, late)| format!("{}, {} ({late:.0} µs)", row.name, row.target.caller.name())).collect();
    if named.is_empty() {
        return String::new();
    }
    format!("The load itself began one call in a hundred more than {BOUND} µs late for: {}.\n", named.join("; "))
}

fn line(row: &Row, yardsticks: [Option<&Row>; 2]) -> Vec<String> {
    let mut cells = vec![
        row.name.to_owned(),
        cell(row.median(|round| Some(round.per_second)), 0),
        cell(row.median(|round| round.cpu), 1),
    ];
    cells.extend(yardsticks.map(|other| cell(other.map_or(f64::NAN, |other| row.beside(other)), 2)));
    let shares: [fn(&Latency) -> f64; 3] = [|seen| seen.p50, |seen| seen.p99, |seen| seen.p999];
    cells.extend(shares.map(|of| cell(row.median(|round| Some(of(&round.latency))), 0)));
    cells.extend(shares.map(|of| cell(row.added(of), 0)));
    cells.push(row.failed().to_string());
    cells
}

/// A number, or a dash where there is none.
pub(crate) fn cell(value: f64, digits: usize) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.digits$}") }
}

/// What one process holds, and how soon it answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    /// From start to first answer, in milliseconds; the median of several starts.
    pub(crate) first_answer_ms: f64,
    /// Resident memory in KiB: after the first answer, after the rounds, after more calls, and with idle connections.
    pub(crate) resident_kib: [u64; 4],
}

/// Time to the first answer, and memory.
pub(crate) fn kept(rows: &[Kept], calls: u64, idle: u64) -> String {
    let (more, held) = (format!("{calls} more calls"), format!("with {idle} idle"));
    let mut head =
        vec!["resident MiB", "first answer ms", "at start", "after the rounds", &more, &held, "KiB per idle"];
    let line = |kept: &Kept| {
        let mut cells = vec![kept.name.clone(), cell(kept.first_answer_ms, 0)];
        cells.extend(kept.resident_kib.iter().map(|kibibytes| cell(*kibibytes as f64 / 1024.0, 1)));
        let [.., before, after] = kept.resident_kib;
        cells.push(cell((after as f64 - before as f64) / (idle as f64).max(1.0), 1));
        cells
    };
    let mut lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    if calls == 0 {
        // Nothing happened between these two.
        head.retain(|title| *title != more);
        lines.iter_mut().for_each(|cells| drop(cells.remove(4)));
    }
    table(&head, &lines)
}

#[cfg(test)]
mod tests;
