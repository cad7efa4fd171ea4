//! `transports`: the latency that the gateway adds to direct calls of the same agent over each transport, and the CPU
//! time of a call.

use crate::agent::monotonic_nanos;
use crate::direct_client::DirectClient;
use crate::gatepost::{self, GatewayLauncher, transport_target};
use crate::http1_client::Http1Connection;
use crate::load::{self, CallTarget};
use crate::mosquitto::Mosquitto;
use crate::process::ServerProcess;
use crate::statistics::{markdown_table, median, percentile};
use crate::transport_agent_process::TransportAgentProcess;
use crate::transport_agents::AgentAddresses;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::time::Duration;

/// The transports, which are also the ids of their agents.
pub(crate) const TRANSPORTS: [&str; 4] = ["http", "unix", "ws", "mqtt"];

const REQUEST_BODY: &str = "{\"n\":1,\"text\":\"a call of the load test, which is answered with itself\"}";
/// The gateway's timeout for agents.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much to measure. The defaults take about a minute.
#[derive(clap::Args)]
pub(crate) struct TransportsArgs {
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
struct TransportRound {
    direct: [f64; 2],
    through_gateway: [f64; 2],
    cpu: f64,
    per_second: f64,
    failed: u64,
}

pub(crate) fn run(args: &TransportsArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let broker = Mosquitto::start(folder.path())?;
    let agents = TransportAgentProcess::start(folder.path(), broker.address, None)?;
    let addresses = &agents.addresses;
    let program = args.gatepost.clone().map_or_else(gatepost::sibling_program, Ok)?;
    let launcher = GatewayLauncher::new(program, folder.path().to_owned(), addresses.http);
    let gateway = launcher.start_with_all_transports(addresses, AGENT_TIMEOUT)?;
    let mut rows: Vec<(&str, Vec<TransportRound>)> = TRANSPORTS.map(|transport| (transport, Vec::new())).into();
    for (transport, _) in &rows {
        // The MQTT agent may not have connected to the broker yet.
        wait_until_responding(&transport_target(gateway.address, transport, REQUEST_BODY))
            .with_context(|| (*transport).to_owned())?;
    }
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for (transport, rounds) in &mut rows {
            let result = measure(args, transport, addresses, &gateway);
            rounds.push(result.with_context(|| (*transport).to_owned())?);
        }
    }
    println!("{}", results_table(&rows));
    let failed: u64 = rows.iter().flat_map(|(_, rounds)| rounds).map(|round| round.failed).sum();
    ensure!(failed == 0, "{failed} calls failed: do not use the figures above");
    Ok(())
}

/// Calls until a call succeeds. Fails after about five seconds.
pub(crate) fn wait_until_responding(target: &CallTarget) -> anyhow::Result<()> {
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

fn measure(
    args: &TransportsArgs,
    transport: &str,
    addresses: &AgentAddresses,
    gateway: &ServerProcess,
) -> anyhow::Result<TransportRound> {
    let target = transport_target(gateway.address, transport, REQUEST_BODY);
    let mut client = DirectClient::connect(transport, addresses, REQUEST_BODY)?;
    let direct = latencies(args.calls, || client.call())?;
    let mut connection = Http1Connection::connect_plain(gateway.address)?;
    let through_gateway = latencies(args.calls, || match connection.call(&target.request)? {
        200 => Ok(()),
        status => anyhow::bail!("status {status}"),
    })?;
    let time = Duration::from_secs_f64(args.seconds);
    let saturated = load::saturate(&target, args.connections, time, Some(gateway))?;
    let cpu = saturated.cpu_per_call().context("the gateway's CPU time was not measured")?;
    Ok(TransportRound { direct, through_gateway, cpu, per_second: saturated.per_second(), failed: saturated.failed })
}

/// Returns the 50th and 99th percentile of the latency of calls one after the other, in µs.
fn latencies(calls: u64, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<[f64; 2]> {
    // Warms the caches.
    for _ in 0..20 {
        call()?;
    }
    let mut latencies = Vec::new();
    for _ in 0..calls {
        let started = monotonic_nanos();
        call()?;
        latencies.push(monotonic_nanos().saturating_sub(started));
    }
    latencies.sort_unstable();
    Ok([percentile(&latencies, 0.50) / 1e3, percentile(&latencies, 0.99) / 1e3])
}

fn results_table(rows: &[(&str, Vec<TransportRound>)]) -> String {
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
    let row = |(transport, rounds): &(&str, Vec<TransportRound>)| {
        let median_of = |value: fn(&TransportRound) -> f64| format!("{:.0}", median(rounds.iter().map(value)));
        vec![
            (*transport).to_owned(),
            median_of(|round| round.direct[0]),
            median_of(|round| round.direct[1]),
            median_of(|round| round.through_gateway[0]),
            median_of(|round| round.through_gateway[1]),
            median_of(|round| round.through_gateway[0] - round.direct[0]),
            median_of(|round| round.through_gateway[1] - round.direct[1]),
            median_of(|round| round.cpu),
            median_of(|round| round.per_second),
        ]
    };
    markdown_table(&header, &rows.iter().map(row).collect::<Vec<_>>())
}
