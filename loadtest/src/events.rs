//! `events`: event streams. Measures the delay from the agent's sending of an event until the client has it, the CPU
//! time of an event, and the memory that thousands of streams hold.

mod crowd;

use crate::agent::{EVENTS_PER_STREAM, SSE, TICKER, now};
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
    /// Rounds; each measures the streams of every proxy once.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Concurrent streams, each with a hundred events a second.
    #[arg(long, default_value_t = 100)]
    streams: u64,
    /// Streams to hold open, each with one event a second.
    #[arg(long, default_value_t = 5000)]
    open: u64,
    #[command(flatten)]
    programs: Programs,
}

/// A proxy that streams pass through, or the agent itself.
struct Source {
    name: &'static str,
    /// `None` is the agent itself.
    process: Option<Process>,
    /// A call that streams a finite number of events, and one that streams without end.
    short: Target,
    endless: Target,
    rounds: Vec<Round>,
}

/// The result of one round of one proxy, in microseconds.
struct Round {
    cpu: Option<f64>,
    p50: f64,
    p99: f64,
}

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let open = memory::make_room(args.open * 2)? / 2;
    // A stream takes two connections of nginx.
    let environment = Ground::lay(&args.programs, open * 2 + 1000)?;
    let mut proxies = sources(&environment)?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for proxy in &mut proxies {
            let result = measure(args, proxy).with_context(|| proxy.name)?;
            proxy.rounds.push(result);
        }
    }
    println!("{}", report(&proxies)?);
    let mut rows = Vec::new();
    for proxy in &proxies {
        if let Some(process) = &proxy.process {
            let result = crowd::held(process, &proxy.endless, open).with_context(|| proxy.name)?;
            rows.push(result.line(proxy.name));
        }
    }
    let title = format!("{open} open streams");
    println!("{}", table(&[&title, "MiB before", "MiB with them", "KiB per stream", "CPU µs/event", "p99 ms"], &rows));
    Ok(())
}

fn sources(environment: &Ground) -> anyhow::Result<Vec<Source>> {
    let proxy =
        |name, process, [finite, endless]: [Target; 2]| Source { name, process, short: finite, endless, rounds: Vec::new() };
    let targets_at = |address| [plain(address, SSE), plain(address, TICKER)];
    let mut proxies = vec![proxy("direct", None, targets_at(environment.settings.agent))];
    let others = [
        ("nginx", Kind::Nginx, Work::Prompt),
        ("HAProxy", Kind::Haproxy, Work::Pass),
        ("HAProxy, http-no-delay", Kind::Haproxy, Work::Prompt),
        ("Pingora, bare", Kind::Pingora, Work::Prompt),
    ];
    for (name, kind, mode) in others {
        if let Some(running) = environment.proxy(name, kind, mode)? {
            let targets = targets_at(running.process.address);
            proxies.push(proxy(name, Some(running.process), targets));
        }
    }
    let gateway = environment.gateway.open()?.process;
    let targets = ["stream", "ticker"].map(|agent| plain(gateway.address, &path_of(agent)));
    proxies.push(proxy("Gatepost", Some(gateway), targets));
    Ok(proxies)
}

fn measure(args: &Plan, proxy: &Source) -> anyhow::Result<Round> {
    let cpu = || proxy.process.as_ref().map(Process::cpu).transpose();
    let before = cpu()?;
    let delays = delays(&proxy.short, args.streams)?;
    let used = cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(Round {
        cpu: used.map(|used| used.as_secs_f64() * 1e6 / delays.len() as f64),
        p50: percentile(&delays, 0.50) / 1e3,
        p99: percentile(&delays, 0.99) / 1e3,
    })
}

fn report(proxies: &[Source]) -> anyhow::Result<String> {
    let direct = proxies.first().context("the agent itself was not measured")?;
    let row = |proxy: &Source| {
        let median_of = |value: fn(&Round) -> f64| median(proxy.rounds.iter().map(value));
        let added = |value: fn(&Round) -> f64| match proxy.process {
            Some(_) => median(proxy.rounds.iter().zip(&direct.rounds).map(|(own, direct)| value(own) - value(direct))),
            None => f64::NAN,
        };
        vec![
            proxy.name.to_owned(),
            cell(median(proxy.rounds.iter().filter_map(|round| round.cpu)), 1),
            cell(median_of(|round| round.p50), 0),
            cell(median_of(|round| round.p99), 0),
            cell(added(|round| round.p50), 0),
            cell(added(|round| round.p99), 0),
        ]
    };
    let header = ["SSE, one event", "CPU µs/event", "p50 µs", "p99 µs", "added p50", "added p99"];
    Ok(table(&header, &proxies.iter().map(row).collect::<Vec<_>>()))
}

/// Reads `streams` concurrent streams to their end. Returns the delay of each event in nanoseconds, sorted.
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
    let mut delays = Vec::with_capacity(EVENTS_PER_STREAM);
    let mut first_line = None;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the stream broke")?;
        if let Some(sent) = sent(&line) {
            delays.push(now().saturating_sub(sent));
        }
        first_line.get_or_insert(line);
        if delays.len() == EVENTS_PER_STREAM {
            return Ok(delays);
        }
    }
    anyhow::bail!("{} of {EVENTS_PER_STREAM} events arrived (first line: {:?})", delays.len(), first_line)
}

/// Parses the moment in `data: {"sent":…}`. Chunk sizes and the blank lines between events contain none.
fn sent(line: &str) -> Option<u64> {
    line.strip_prefix("data: {\"sent\":")?.strip_suffix('}')?.parse().ok()
}

#[cfg(test)]
mod tests;
