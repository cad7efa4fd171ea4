//! Streams of events: how long after the agent sent an event did the caller have it, what CPU each takes, and what
//! thousands of streams hold in memory.

mod crowd;

use crate::agent::{EVENTS, SSE, TICKER, now};
use crate::client::Connection;
use crate::figures::{median, percentile, table};
use crate::gatepost::{path_of, plain};
use crate::house::{Ground, Programs};
use crate::load::{Target, join};
use crate::memory;
use crate::process::Process;
use crate::proxy::{Kind, Work};
use crate::report::cell;
use anyhow::Context as _;
use std::io::{BufRead as _, BufReader, Write as _};

/// How much to measure. The defaults take about two minutes.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures the streams of everyone once.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Streams read at once, each with a hundred events a second.
    #[arg(long, default_value_t = 100)]
    streams: u64,
    /// Streams held open at once, each with one event a second.
    #[arg(long, default_value_t = 5000)]
    open: u64,
    #[command(flatten)]
    programs: Programs,
}

/// Something that streams come through.
struct Source {
    name: &'static str,
    /// `None` is the agent itself.
    process: Option<Process>,
    /// Streams that end, and streams that do not.
    short: Target,
    endless: Target,
    rounds: Vec<Round>,
}

/// One round of one source, in microseconds.
struct Round {
    cpu: Option<f64>,
    p50: f64,
    p99: f64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let open = memory::make_room(plan.open * 2)? / 2;
    // To nginx a stream is two connections.
    let ground = Ground::lay(&plan.programs, open * 2 + 1000)?;
    let mut sources = sources(&ground)?;
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        for source in &mut sources {
            let seen = measure(plan, source).with_context(|| source.name)?;
            source.rounds.push(seen);
        }
    }
    println!("{}", report(&sources)?);
    let mut rows = Vec::new();
    for source in &sources {
        if let Some(process) = &source.process {
            let held = crowd::held(process, &source.endless, open).with_context(|| source.name)?;
            rows.push(held.line(source.name));
        }
    }
    let title = format!("{open} open streams");
    println!("{}", table(&[&title, "MiB before", "MiB with them", "KiB per stream", "CPU µs/event", "p99 ms"], &rows));
    Ok(())
}

fn sources(ground: &Ground) -> anyhow::Result<Vec<Source>> {
    let source =
        |name, process, [short, endless]: [Target; 2]| Source { name, process, short, endless, rounds: Vec::new() };
    let own = |address| [plain(address, SSE), plain(address, TICKER)];
    let mut sources = vec![source("direct", None, own(ground.setting.agent))];
    let others = [
        ("nginx", Kind::Nginx, Work::Prompt),
        ("HAProxy", Kind::Haproxy, Work::Pass),
        ("HAProxy, http-no-delay", Kind::Haproxy, Work::Prompt),
        ("Pingora, bare", Kind::Pingora, Work::Prompt),
    ];
    for (name, kind, work) in others {
        if let Some(proxy) = ground.proxy(name, kind, work)? {
            let targets = own(proxy.process.address);
            sources.push(source(name, Some(proxy.process), targets));
        }
    }
    let gateway = ground.gateway.open()?.process;
    let targets = ["stream", "ticker"].map(|agent| plain(gateway.address, &path_of(agent)));
    sources.push(source("Gatepost", Some(gateway), targets));
    Ok(sources)
}

fn measure(plan: &Plan, source: &Source) -> anyhow::Result<Round> {
    let cpu = || source.process.as_ref().map(Process::cpu).transpose();
    let before = cpu()?;
    let delays = delays(&source.short, plan.streams)?;
    let used = cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(Round {
        cpu: used.map(|used| used.as_secs_f64() * 1e6 / delays.len() as f64),
        p50: percentile(&delays, 0.50) / 1e3,
        p99: percentile(&delays, 0.99) / 1e3,
    })
}

fn report(sources: &[Source]) -> anyhow::Result<String> {
    let direct = sources.first().context("the agent itself")?;
    let line = |source: &Source| {
        let of = |value: fn(&Round) -> f64| median(source.rounds.iter().map(value));
        let added = |value: fn(&Round) -> f64| match source.process {
            Some(_) => median(source.rounds.iter().zip(&direct.rounds).map(|(mine, bare)| value(mine) - value(bare))),
            None => f64::NAN,
        };
        vec![
            source.name.to_owned(),
            cell(median(source.rounds.iter().filter_map(|round| round.cpu)), 1),
            cell(of(|round| round.p50), 0),
            cell(of(|round| round.p99), 0),
            cell(added(|round| round.p50), 0),
            cell(added(|round| round.p99), 0),
        ]
    };
    let head = ["SSE, one event", "CPU µs/event", "p50 µs", "p99 µs", "added p50", "added p99"];
    Ok(table(&head, &sources.iter().map(line).collect::<Vec<_>>()))
}

/// Reads `streams` at once to their end; each event's delay in nanoseconds, sorted.
fn delays(target: &Target, streams: u64) -> anyhow::Result<Vec<u64>> {
    let threads = (0..streams).map(|_| {
        let target = target.clone();
        std::thread::spawn(move || one(&target))
    });
    let mut delays: Vec<u64> = join(threads.collect())?.into_iter().flatten().collect();
    delays.sort_unstable();
    Ok(delays)
}

fn one(target: &Target) -> anyhow::Result<Vec<u64>> {
    let mut stream = Connection::open(target.address)?.into_wire();
    stream.write_all(&target.request.bytes)?;
    let mut delays = Vec::with_capacity(EVENTS);
    let mut first = None;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the stream broke")?;
        if let Some(sent) = sent(&line) {
            delays.push(now().saturating_sub(sent));
        }
        first.get_or_insert(line);
        if delays.len() == EVENTS {
            return Ok(delays);
        }
    }
    anyhow::bail!("{} of {EVENTS} events arrived (answer: {:?})", delays.len(), first)
}

/// The moment in `data: {"sent":…}`; chunk sizes and blank lines between events have none.
fn sent(line: &str) -> Option<u64> {
    line.strip_prefix("data: {\"sent\":")?.strip_suffix('}')?.parse().ok()
}

#[cfg(test)]
mod tests;
