//! `transports`: the latency that the gateway adds to direct calls of the same agent over each transport, and the CPU
//! time of a call.

use crate::agent::now;
use crate::broker::Broker;
use crate::client::Connection;
use crate::direct::Direct;
use crate::figures::{median, percentile, table};
use crate::gatepost::{self, Gateway, asking};
use crate::load::{self, Target};
use crate::peers::Places;
use crate::process::{Core, Process, free_address};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The transports, which are also the ids of their agents.
pub(crate) const KINDS: [&str; 4] = ["http", "unix", "ws", "mqtt"];

const BODY: &str = "{\"n\":1,\"text\":\"a call of the load test, which is answered with itself\"}";
/// The gateway's timeout for agents.
const BOUND: Duration = Duration::from_secs(10);

/// How much to measure. The defaults take about a minute.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures every transport once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Calls of one latency measurement, one after the other.
    #[arg(long, default_value_t = 1000)]
    calls: u64,
    /// Seconds of one measurement of CPU.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Connections of the load while CPU is measured.
    #[arg(long, default_value_t = 16)]
    connections: u64,
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// The result of one round for one transport.
struct Seen {
    direct: [f64; 2],
    through: [f64; 2],
    cpu: f64,
    per_second: f64,
    failed: u64,
}

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let broker = Broker::start(folder.path())?;
    let addresses = places(folder.path(), &broker, None)?;
    let _agents = peers(&addresses)?;
    let program = args.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let launcher = Gateway::new(program, folder.path().to_owned(), addresses.http);
    let gateway = launcher.over_everything(&addresses, BOUND)?;
    let mut rows: Vec<(&str, Vec<Seen>)> = KINDS.map(|transport| (transport, Vec::new())).into();
    for (transport, _) in &rows {
        // The MQTT agent may not have connected to the broker yet.
        settled(&asking(gateway.address, transport, BODY)).with_context(|| (*transport).to_owned())?;
    }
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for (transport, rounds) in &mut rows {
            let result = measure(args, transport, &addresses, &gateway);
            rounds.push(result.with_context(|| (*transport).to_owned())?);
        }
    }
    println!("{}", report(&rows));
    let failed: u64 = rows.iter().flat_map(|(_, rounds)| rounds).map(|round| round.failed).sum();
    ensure!(failed == 0, "{failed} calls failed: do not use the figures above");
    Ok(())
}

/// Allocates loopback addresses for all agents.
pub(crate) fn places(folder: &Path, broker: &Broker, call_log: Option<PathBuf>) -> anyhow::Result<Places> {
    let unix = folder.join("agent.sock");
    Ok(Places { http: free_address()?, ws: free_address()?, unix, broker: broker.address, seen: call_log })
}

/// Starts the agents, in a process of their own.
pub(crate) fn peers(addresses: &Places) -> anyhow::Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peers").args(addresses.arguments());
    Process::telling(command, Core::Load)
}

/// Calls until a call succeeds. Fails after about five seconds.
pub(crate) fn settled(target: &Target) -> anyhow::Result<()> {
    let mut attempts = 0;
    while let Err(error) = target.try_once() {
        attempts += 1;
        if attempts > 50 {
            return Err(error);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(())
}

fn measure(args: &Plan, transport: &str, addresses: &Places, gateway: &Process) -> anyhow::Result<Seen> {
    let target = asking(gateway.address, transport, BODY);
    let mut client = Direct::to(transport, addresses, BODY)?;
    let direct = latencies(args.calls, || client.call())?;
    let mut connection = Connection::open(gateway.address)?;
    let through_gateway = latencies(args.calls, || match connection.call(&target.request)? {
        200 => Ok(()),
        status => anyhow::bail!("status {status}"),
    })?;
    let time = Duration::from_secs_f64(args.seconds);
    let saturated = load::saturate(&target, args.connections, time, Some(gateway))?;
    let cpu = saturated.cpu_per_call().context("the gateway's CPU time was not measured")?;
    Ok(Seen { direct, through: through_gateway, cpu, per_second: saturated.per_second(), failed: saturated.failed })
}

/// Returns the 50th and 99th percentile of the latency of calls one after the other, in µs.
fn latencies(calls: u64, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<[f64; 2]> {
    // Warms the caches.
    for _ in 0..20 {
        call()?;
    }
    let mut latencies = Vec::new();
    for _ in 0..calls {
        let started = now();
        call()?;
        latencies.push(now().saturating_sub(started));
    }
    latencies.sort_unstable();
    Ok([percentile(&latencies, 0.50) / 1e3, percentile(&latencies, 0.99) / 1e3])
}

fn report(rows: &[(&str, Vec<Seen>)]) -> String {
    let header = [
        "one call at a time, µs",
        "direct p50",
        "direct p99",
        "gateway p50",
        "gateway p99",
        "added p50",
        "added p99",
        "CPU µs/call",
        "calls/s",
    ];
    let row = |(transport, rounds): &(&str, Vec<Seen>)| {
        let median_of = |value: fn(&Seen) -> f64| format!("{:.0}", median(rounds.iter().map(value)));
        vec![
            (*transport).to_owned(),
            median_of(|round| round.direct[0]),
            median_of(|round| round.direct[1]),
            median_of(|round| round.through[0]),
            median_of(|round| round.through[1]),
            median_of(|round| round.through[0] - round.direct[0]),
            median_of(|round| round.through[1] - round.direct[1]),
            median_of(|round| round.cpu),
            median_of(|round| round.per_second),
        ]
    };
    table(&header, &rows.iter().map(row).collect::<Vec<_>>())
}
