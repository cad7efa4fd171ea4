//! `events`: event streams. Measures the delay from the agent's sending of an event until the client has it, the CPU
//! time of an event, and the memory that thousands of streams hold.

mod open_streams;

use crate::agent::{ENDLESS_EVENTS_PATH, EVENTS_PATH, EVENTS_PER_STREAM, monotonic_nanos};
use crate::environment::{ProgramPaths, TestEnvironment};
use crate::gatepost::{anonymous_target, invoke_path};
use crate::http1_client::Http1Connection;
use crate::load::{CallTarget, join_all};
use crate::memory;
use crate::process::ServerProcess;
use crate::proxy::ProxyKind;
use crate::proxy_settings::ProxyMode;
use crate::report::format_number;
use crate::statistics::{markdown_table, median, percentile};
use anyhow::Context as _;
use std::io::{BufRead as _, BufReader, Write as _};

/// How much to measure. The defaults take about two minutes.
#[derive(clap::Args)]
pub(crate) struct EventsArgs {
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
    programs: ProgramPaths,
}

/// A proxy that streams pass through, or the agent itself.
struct StreamProxy {
    name: &'static str,
    /// `None` is the agent itself.
    process: Option<ServerProcess>,
    /// A call that streams a finite number of events, and one that streams without end.
    finite: CallTarget,
    endless: CallTarget,
    rounds: Vec<StreamRound>,
}

/// The result of one round of one proxy, in microseconds.
struct StreamRound {
    cpu: Option<f64>,
    p50: f64,
    p99: f64,
}

pub(crate) fn run(args: &EventsArgs) -> anyhow::Result<()> {
    let open = memory::raise_open_file_limit(args.open * 2)? / 2;
    // A stream takes two connections of nginx.
    let environment = TestEnvironment::start(&args.programs, open * 2 + 1000)?;
    let mut proxies = start_proxies(&environment)?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for proxy in &mut proxies {
            let result = measure(args, proxy).with_context(|| proxy.name)?;
            proxy.rounds.push(result);
        }
    }
    println!("{}", results_table(&proxies)?);
    let mut rows = Vec::new();
    for proxy in &proxies {
        if let Some(process) = &proxy.process {
            let result =
                open_streams::measure_open_streams(process, &proxy.endless, open).with_context(|| proxy.name)?;
            rows.push(result.table_row(proxy.name));
        }
    }
    let title = format!("{open} open streams");
    println!(
        "{}",
        markdown_table(&[&title, "MiB before", "MiB with them", "KiB per stream", "CPU µs/event", "p99 ms"], &rows)
    );
    Ok(())
}

fn start_proxies(environment: &TestEnvironment) -> anyhow::Result<Vec<StreamProxy>> {
    let proxy = |name, process, [finite, endless]: [CallTarget; 2]| StreamProxy {
        name,
        process,
        finite,
        endless,
        rounds: Vec::new(),
    };
    let targets_at = |address| [anonymous_target(address, EVENTS_PATH), anonymous_target(address, ENDLESS_EVENTS_PATH)];
    let mut proxies = vec![proxy("direct", None, targets_at(environment.settings.agent))];
    let others = [
        ("nginx", ProxyKind::Nginx, ProxyMode::Unbuffered),
        ("HAProxy", ProxyKind::Haproxy, ProxyMode::PassThrough),
        ("HAProxy, http-no-delay", ProxyKind::Haproxy, ProxyMode::Unbuffered),
        ("Pingora, bare", ProxyKind::Pingora, ProxyMode::Unbuffered),
    ];
    for (name, kind, mode) in others {
        if let Some(running) = environment.start_proxy(name, kind, mode)? {
            let targets = targets_at(running.process.address);
            proxies.push(proxy(name, Some(running.process), targets));
        }
    }
    let gateway = environment.gateway.start_open()?.process;
    let targets = ["stream", "ticker"].map(|agent| anonymous_target(gateway.address, &invoke_path(agent)));
    proxies.push(proxy("Gatepost", Some(gateway), targets));
    Ok(proxies)
}

fn measure(args: &EventsArgs, proxy: &StreamProxy) -> anyhow::Result<StreamRound> {
    let cpu = || proxy.process.as_ref().map(ServerProcess::cpu_time).transpose();
    let before = cpu()?;
    let delays = read_streams(&proxy.finite, args.streams)?;
    let used = cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(StreamRound {
        cpu: used.map(|used| used.as_secs_f64() * 1e6 / delays.len() as f64),
        p50: percentile(&delays, 0.50) / 1e3,
        p99: percentile(&delays, 0.99) / 1e3,
    })
}

fn results_table(proxies: &[StreamProxy]) -> anyhow::Result<String> {
    let direct = proxies.first().context("the agent itself was not measured")?;
    let row = |proxy: &StreamProxy| {
        let median_of = |value: fn(&StreamRound) -> f64| median(proxy.rounds.iter().map(value));
        let added = |value: fn(&StreamRound) -> f64| match proxy.process {
            Some(_) => median(proxy.rounds.iter().zip(&direct.rounds).map(|(own, direct)| value(own) - value(direct))),
            None => f64::NAN,
        };
        vec![
            proxy.name.to_owned(),
            format_number(median(proxy.rounds.iter().filter_map(|round| round.cpu)), 1),
            format_number(median_of(|round| round.p50), 0),
            format_number(median_of(|round| round.p99), 0),
            format_number(added(|round| round.p50), 0),
            format_number(added(|round| round.p99), 0),
        ]
    };
    let header = ["SSE, one event", "CPU µs/event", "p50 µs", "p99 µs", "added p50", "added p99"];
    Ok(markdown_table(&header, &proxies.iter().map(row).collect::<Vec<_>>()))
}

/// Reads `streams` concurrent streams to their end. Returns the delay of each event in nanoseconds, sorted.
fn read_streams(target: &CallTarget, streams: u64) -> anyhow::Result<Vec<u64>> {
    let threads = (0..streams).map(|_| {
        let target = target.clone();
        std::thread::spawn(move || read_stream(&target))
    });
    let mut delays: Vec<u64> = join_all(threads.collect())?.into_iter().flatten().collect();
    delays.sort_unstable();
    Ok(delays)
}

fn read_stream(target: &CallTarget) -> anyhow::Result<Vec<u64>> {
    let mut stream = Http1Connection::connect_plain(target.address)?.into_stream();
    stream.write_all(&target.request.bytes)?;
    let mut delays = Vec::with_capacity(EVENTS_PER_STREAM);
    let mut first_line = None;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the stream broke")?;
        if let Some(sent) = open_streams::parse_sending_time(&line) {
            delays.push(monotonic_nanos().saturating_sub(sent));
        }
        first_line.get_or_insert(line);
        if delays.len() == EVENTS_PER_STREAM {
            return Ok(delays);
        }
    }
    anyhow::bail!("{} of {EVENTS_PER_STREAM} events arrived (first line: {:?})", delays.len(), first_line)
}

#[cfg(test)]
mod tests;
