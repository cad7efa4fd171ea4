//! What the rounds said, as tables.

use crate::figures::{median, table};
use crate::load::Target;
use crate::process::Process;
use anyhow::Context as _;
use std::rc::Rc;

/// One way for a call to reach the agent, and what the rounds said about it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) target: Target,
    /// `None` is the agent itself.
    pub(crate) process: Option<Rc<Process>>,
    pub(crate) rounds: Vec<Round>,
}

/// One round of one row; times in microseconds.
pub(crate) struct Round {
    pub(crate) per_second: f64,
    pub(crate) cpu: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) failed: u64,
}

impl Row {
    pub(crate) fn new(name: &'static str, target: Target, process: Option<&Rc<Process>>) -> Self {
        Self { name, target, process: process.cloned(), rounds: Vec::new() }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.rounds.iter().map(|round| round.failed).sum()
    }

    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of))
    }

    /// The median of what each round says beside another row in that same round.
    fn beside(&self, other: &Self, of: impl Fn(&Round, &Round) -> f64) -> f64 {
        median(self.rounds.iter().zip(&other.rounds).map(|(mine, theirs)| of(mine, theirs)))
    }

    /// A cell that says something about a proxy only.
    fn proxied(&self, value: f64, digits: usize) -> String {
        if self.process.is_some() { format!("{value:.digits$}") } else { "–".to_owned() }
    }

    /// p50 and p99, then both over the agent itself.
    fn latencies(&self, direct: &Self) -> [String; 4] {
        [
            format!("{:.0}", self.median(|round| round.p50)),
            format!("{:.0}", self.median(|round| round.p99)),
            self.proxied(self.beside(direct, |mine, bare| mine.p50 - bare.p50), 0),
            self.proxied(self.beside(direct, |mine, bare| mine.p99 - bare.p99), 0),
        ]
    }
}

/// Throughput and CPU at saturation, latency at a constant rate.
pub(crate) fn calls(rows: &[Row]) -> anyhow::Result<String> {
    let (direct, pingora) = (rows.first().context("direct")?, rows.get(1).context("Pingora")?);
    let head = [
        "200 bytes in, 300 out",
        "calls/s",
        "CPU µs/call",
        "× Pingora",
        "p50 µs",
        "p99 µs",
        "added p50",
        "added p99",
        "failed",
    ];
    let line = |row: &Row| {
        let mut cells = vec![
            row.name.to_owned(),
            format!("{:.0}", row.median(|round| round.per_second)),
            row.proxied(row.median(|round| round.cpu), 1),
            row.proxied(row.beside(pingora, |mine, bare| mine.cpu / bare.cpu), 2),
        ];
        cells.extend(row.latencies(direct));
        cells.push(row.failed().to_string());
        cells
    };
    Ok(table(&head, &rows.iter().map(line).collect::<Vec<_>>()))
}

/// From the moment at which the agent sent an event to the moment at which the caller had it.
pub(crate) fn streams(rows: &[Row]) -> anyhow::Result<String> {
    let direct = rows.first().context("direct")?;
    let head = ["SSE, one event", "p50 µs", "p99 µs", "added p50", "added p99"];
    let line = |row: &Row| {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.latencies(direct));
        cells
    };
    Ok(table(&head, &rows.iter().map(line).collect::<Vec<_>>()))
}

/// Resident memory in KiB: at start, after the rounds, after more calls, with idle connections.
pub(crate) fn memory(rows: &[(&str, [u64; 4])], calls: u64, idle: u64) -> String {
    let (more, held) = (format!("{calls} calls later"), format!("with {idle} idle"));
    let head = ["resident MiB", "at start", "after the rounds", &more, &held, "KiB per idle"];
    let line = |(name, kept): &(&str, [u64; 4])| {
        let mut cells = vec![(*name).to_owned()];
        cells.extend(kept.iter().map(|kibibytes| format!("{:.1}", *kibibytes as f64 / 1024.0)));
        let [.., before, after] = kept;
        cells.push(format!("{:.1}", (*after as f64 - *before as f64) / (idle as f64).max(1.0)));
        cells
    };
    table(&head, &rows.iter().map(line).collect::<Vec<_>>())
}
