//! `soak`: a load over every transport at once, while the broker and the agents are killed and restarted. Every call
//! must succeed or fail with a reason, no caller may get another call's response, and no agent may receive a call
//! twice.

use crate::gatepost::{self, GatewayLauncher, invoke_path, transport_target};
use crate::http1_client::{Http1Connection, PreparedRequest};
use crate::load::join_all;
use crate::mosquitto::Mosquitto;
use crate::transport_agent_process::TransportAgentProcess;
use crate::transports::{TRANSPORTS, wait_until_responding};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The gateway's timeout for agents, shorter than the response timeout of the load.
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
/// How much the gateway's memory may grow after the first tenth of the load, in KiB.
const MAX_MEMORY_GROWTH_KIB: u64 = 64 << 10;

/// How long to call, and how often to kill.
#[derive(clap::Args)]
pub(crate) struct SoakArgs {
    /// Seconds of load.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Minutes of load, instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Seconds between two kills: of the agents, of the broker, of both, and so on in rotation.
    #[arg(long, default_value_t = 5)]
    every: u64,
    /// Callers per transport.
    #[arg(long, default_value_t = 4)]
    callers: u64,
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// The outcomes of the calls over one transport.
#[derive(Default)]
struct CallTally {
    calls: u64,
    /// The numbers of the calls that succeeded.
    answered: Vec<u64>,
    failed: u64,
    /// The failed calls by status and error code.
    reasons: HashMap<String, u64>,
    violations: Vec<String>,
}

impl CallTally {
    fn record_response(&mut self, transport: &str, number: u64, status: u16, body: &str) {
        // A chunked body has chunk sizes around the JSON.
        let json = body.find('{').zip(body.rfind('}')).and_then(|(from, to)| body.get(from..=to)).unwrap_or_default();
        let response: Value = serde_json::from_str(json).unwrap_or_default();
        let error_code = response.pointer("/error/code").and_then(Value::as_str);
        match (status, error_code) {
            (200, _) if response.get("n").and_then(Value::as_u64) == Some(number) => self.answered.push(number),
            (400.., Some(code)) => {
                self.failed += 1;
                *self.reasons.entry(format!("{status} {code}")).or_default() += 1;
            }
            _ => self.violations.push(format!("{transport}: call {number} got a wrong response: {status} {body}")),
        }
    }

    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.answered.extend(other.answered);
        self.violations.extend(other.violations);
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
    }
}

pub(crate) fn run(args: &SoakArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut broker = Mosquitto::start(folder.path())?;
    let call_log = folder.path().join("seen");
    let mut agents = TransportAgentProcess::start(folder.path(), broker.address, Some(call_log.clone()))?;
    let program = args.gatepost.clone().map_or_else(gatepost::sibling_program, Ok)?;
    let launcher = GatewayLauncher::new(program, folder.path().to_owned(), agents.addresses.http);
    let gateway = launcher.start_with_all_transports(&agents.addresses, AGENT_TIMEOUT)?;
    let numbers = Arc::new(AtomicU64::new(1));
    for transport in TRANSPORTS {
        wait_until_responding(&transport_target(gateway.address, transport, &json!({"n": 0}).to_string()))
            .context(transport)?;
    }
    let time = Duration::from_secs(args.minutes.map_or(args.seconds, |minutes| minutes * 60));
    let end = Instant::now() + time;
    let transports = TRANSPORTS.iter().flat_map(|transport| (0..args.callers).map(move |_| *transport));
    let callers = transports.map(|transport| {
        let (numbers, address) = (Arc::clone(&numbers), gateway.address);
        std::thread::spawn(move || Ok((transport, run_caller(address, transport, &numbers, end)?)))
    });
    let callers: Vec<_> = callers.collect();
    std::thread::park_timeout(time / 10);
    let memory_at_start = gateway.resident_memory()?;
    let kills = kill_and_restart(args, end, &mut broker, &mut agents)?;
    let mut tallies: HashMap<&str, CallTally> = HashMap::new();
    for (transport, tally) in join_all(callers)? {
        tallies.entry(transport).or_default().add(tally);
    }
    let memory_at_end = gateway.resident_memory()?;
    let mut violations = find_violations(&tallies, &std::fs::read_to_string(call_log)?)?;
    println!("{kills} kills; gateway's memory {memory_at_start} KiB after a tenth, {memory_at_end} KiB at the end");
    if memory_at_end > memory_at_start + MAX_MEMORY_GROWTH_KIB {
        violations.push(format!("the gateway's memory grew by {} KiB", memory_at_end - memory_at_start));
    }
    for violation in &violations {
        println!("WRONG: {violation}");
    }
    ensure!(violations.is_empty(), "{} checks failed", violations.len());
    Ok(())
}

/// Kills the agents and the broker in rotation and restarts them, until `end`. Returns the number of kills.
fn kill_and_restart(
    args: &SoakArgs,
    end: Instant,
    broker: &mut Mosquitto,
    agents: &mut TransportAgentProcess,
) -> anyhow::Result<u64> {
    let mut kills = 0;
    let pause = Duration::from_secs(args.every.max(1));
    while Instant::now() + pause < end {
        std::thread::park_timeout(pause);
        let downtime = Duration::from_millis(500);
        match kills % 3 {
            0 => agents.kill(),
            1 => broker.kill(),
            _ => {
                agents.kill();
                broker.kill();
            }
        }
        std::thread::park_timeout(downtime);
        if kills % 3 != 0 {
            broker.restart()?;
        }
        if kills % 3 != 1 {
            agents.restart()?;
        }
        kills += 1;
    }
    std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    Ok(kills)
}

/// Calls until `end`, each time with a new number.
fn run_caller(gateway: SocketAddr, transport: &str, numbers: &AtomicU64, end: Instant) -> anyhow::Result<CallTally> {
    let mut tally = CallTally::default();
    let mut connection = Http1Connection::connect_plain(gateway)?;
    while Instant::now() < end {
        let number = numbers.fetch_add(1, Relaxed);
        let request = PreparedRequest::post_json(&invoke_path(transport), "", &json!({"n": number}).to_string());
        tally.calls += 1;
        match connection.call_and_read(&request) {
            Ok((status, response)) => {
                let text = String::from_utf8_lossy(response).into_owned();
                let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                tally.record_response(transport, number, status, body);
                // The gateway refuses calls to a dead agent much faster than an agent responds.
                if status != 200 {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
            Err(error) => {
                tally.violations.push(format!("{transport}: call {number} got no response: {error:#}"));
                connection = Http1Connection::connect_plain(gateway)?;
            }
        }
    }
    Ok(tally)
}

/// Prints the outcomes of the calls, and compares them with the agents' call log. Returns everything that must not
/// happen.
fn find_violations(tallies: &HashMap<&str, CallTally>, call_log: &str) -> anyhow::Result<Vec<String>> {
    let mut received: HashMap<(&str, u64), u64> = HashMap::new();
    for line in call_log.lines() {
        let (transport, number) = line.split_once(' ').context("a malformed line in the agents' log")?;
        *received.entry((transport, number.parse()?)).or_default() += 1;
    }
    let mut violations = Vec::new();
    for transport in TRANSPORTS {
        let Some(tally) = tallies.get(transport) else { continue };
        let CallTally { calls, answered, failed, reasons, .. } = tally;
        println!("{transport}: {calls} calls, {} answered, {failed} failed {reasons:?}", answered.len());
        violations.extend(tally.violations.iter().take(10).cloned());
        if answered.len() as u64 + failed != *calls {
            let lost = calls.saturating_sub(answered.len() as u64 + failed);
            violations.push(format!("{transport}: {lost} calls are lost"));
        }
        let unknown = answered.iter().filter(|number| !received.contains_key(&(transport, **number))).count();
        if unknown > 0 {
            violations.push(format!("{transport}: {unknown} responses came from no agent"));
        }
    }
    // No call may be repeated (R45), except number 0 of each transport, which was retried until it succeeded.
    let repeated = received.iter().filter(|((_, number), count)| *number > 0 && **count > 1).count();
    if repeated > 0 {
        violations.push(format!("agents received {repeated} calls more than once"));
    }
    Ok(violations)
}
