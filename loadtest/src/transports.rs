//! What each transport costs: the latency that the gateway adds to a direct call of the same agent, and its CPU for a
//! call.

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

/// The kinds, as their agents are called.
pub(crate) const KINDS: [&str; 4] = ["http", "unix", "ws", "mqtt"];

const BODY: &str = "{\"n\":1,\"text\":\"a call of the load test, which is answered with itself\"}";
/// How long an agent may take before the gateway gives it up.
const BOUND: Duration = Duration::from_secs(10);

/// How much to measure. The defaults take about a minute.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures every transport once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Calls of one measurement of latency, one after the other.
    #[arg(long, default_value_t = 1000)]
    calls: u64,
    /// Seconds of one measurement of CPU.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Connections of the load while CPU is measured.
    #[arg(long, default_value_t = 16)]
    connections: u64,
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// What one round saw of one transport.
struct Seen {
    direct: [f64; 2],
    through: [f64; 2],
    cpu: f64,
    per_second: f64,
    failed: u64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let broker = Broker::start(folder.path())?;
    let places = places(folder.path(), &broker, None)?;
    let _peers = peers(&places)?;
    let program = plan.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let gateway = Gateway::new(program, folder.path().to_owned(), places.http).over_everything(&places, BOUND)?;
    let mut rows: Vec<(&str, Vec<Seen>)> = KINDS.map(|kind| (kind, Vec::new())).into();
    for (kind, _) in &rows {
        // The agent at the broker may still be on its way there.
        settled(&asking(gateway.address, kind, BODY)).with_context(|| (*kind).to_owned())?;
    }
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        for (kind, seen) in &mut rows {
            seen.push(measure(plan, kind, &places, &gateway).with_context(|| (*kind).to_owned())?);
        }
    }
    println!("{}", report(&rows));
    let failed: u64 = rows.iter().flat_map(|(_, seen)| seen).map(|seen| seen.failed).sum();
    ensure!(failed == 0, "{failed} calls failed: the figures above are not to be used");
    Ok(())
}

/// Places on loopback for every agent.
pub(crate) fn places(folder: &Path, broker: &Broker, seen: Option<PathBuf>) -> anyhow::Result<Places> {
    let unix = folder.join("agent.sock");
    Ok(Places { http: free_address()?, ws: free_address()?, unix, broker: broker.address, seen })
}

/// The agents, as a process of their own.
pub(crate) fn peers(places: &Places) -> anyhow::Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("peers").args(places.arguments());
    Process::telling(command, Core::Load)
}

/// Waits until a call is answered.
pub(crate) fn settled(target: &Target) -> anyhow::Result<()> {
    let mut tries = 0;
    while let Err(why) = target.try_once() {
        tries += 1;
        if tries > 50 {
            return Err(why);
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    Ok(())
}

fn measure(plan: &Plan, kind: &str, places: &Places, gateway: &Process) -> anyhow::Result<Seen> {
    let target = asking(gateway.address, kind, BODY);
    let mut direct = Direct::to(kind, places, BODY)?;
    let direct = latencies(plan.calls, || direct.call())?;
    let mut connection = Connection::open(gateway.address)?;
    let through = latencies(plan.calls, || match connection.call(&target.request)? {
        200 => Ok(()),
        status => anyhow::bail!("status {status}"),
    })?;
    let time = Duration::from_secs_f64(plan.seconds);
    let full = load::saturate(&target, plan.connections, time, Some(gateway))?;
    let cpu = full.cpu_per_call().context("the gateway's CPU")?;
    Ok(Seen { direct, through, cpu, per_second: full.per_second(), failed: full.failed })
}

/// The 50th and 99th of a hundred, in µs, of calls one after the other.
fn latencies(calls: u64, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<[f64; 2]> {
    // The first ones find caches cold.
    for _ in 0..20 {
        call()?;
    }
    let mut seen = Vec::new();
    for _ in 0..calls {
        let began = now();
        call()?;
        seen.push(now().saturating_sub(began));
    }
    seen.sort_unstable();
    Ok([percentile(&seen, 0.50) / 1e3, percentile(&seen, 0.99) / 1e3])
}

fn report(rows: &[(&str, Vec<Seen>)]) -> String {
    let head = [
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
    let line = |(kind, seen): &(&str, Vec<Seen>)| {
        let of = |value: fn(&Seen) -> f64| format!("{:.0}", median(seen.iter().map(value)));
        vec![
            (*kind).to_owned(),
            of(|seen| seen.direct[0]),
            of(|seen| seen.direct[1]),
            of(|seen| seen.through[0]),
            of(|seen| seen.through[1]),
            of(|seen| seen.through[0] - seen.direct[0]),
            of(|seen| seen.through[1] - seen.direct[1]),
            of(|seen| seen.cpu),
            of(|seen| seen.per_second),
        ]
    };
    table(&head, &rows.iter().map(line).collect::<Vec<_>>())
}
