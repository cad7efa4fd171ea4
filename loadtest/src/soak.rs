//! `soak`: a load over every transport at once, while the broker and the agents are killed and restarted. Every call
//! must succeed or fail with a reason, no caller may get another call's response, and no agent may receive a call
//! twice.

use crate::broker::Broker;
use crate::client::{Connection, Request};
use crate::gatepost::{self, Gateway, asking, path_of};
use crate::load::join;
use crate::peers::Places;
use crate::process::Process;
use crate::transports::{KINDS, peers, places, settled};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The gateway's timeout for agents, shorter than the response timeout of the load.
const BOUND: Duration = Duration::from_secs(3);
/// How much the gateway's memory may grow after the first tenth of the load, in KiB.
const GROWTH: u64 = 64 << 10;

/// How long to call, and how often to kill.
#[derive(clap::Args)]
pub(crate) struct Plan {
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
struct Tally {
    calls: u64,
    /// The numbers of the calls that succeeded.
    answered: Vec<u64>,
    failed: u64,
    /// The failed calls by status and error code.
    reasons: HashMap<String, u64>,
    violations: Vec<String>,
}

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut broker = Broker::start(folder.path())?;
    let addresses = places(folder.path(), &broker, Some(folder.path().join("seen")))?;
    let mut agents = Some(peers(&addresses)?);
    let program = args.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let launcher = Gateway::new(program, folder.path().to_owned(), addresses.http);
    let gateway = launcher.over_everything(&addresses, BOUND)?;
    let numbers = Arc::new(AtomicU64::new(1));
    for transport in KINDS {
        settled(&asking(gateway.address, transport, &json!({"n": 0}).to_string())).context(transport)?;
    }
    let time = Duration::from_secs(args.minutes.map_or(args.seconds, |minutes| minutes * 60));
    let end = Instant::now() + time;
    let transports = KINDS.iter().flat_map(|transport| (0..args.callers).map(move |_| *transport));
    let callers = transports.map(|transport| {
        let (numbers, address) = (Arc::clone(&numbers), gateway.address);
        std::thread::spawn(move || Ok((transport, caller(address, transport, &numbers, end)?)))
    });
    let callers: Vec<_> = callers.collect();
    std::thread::park_timeout(time / 10);
    let memory_at_start = gateway.resident()?;
    let kills = trouble(args, end, &addresses, (&mut broker, &mut agents))?;
    let mut tallies: HashMap<&str, Tally> = HashMap::new();
    for (transport, tally) in join(callers)? {
        tallies.entry(transport).or_default().add(tally);
    }
    let memory_at_end = gateway.resident()?;
    let mut violations = judge(&tallies, &addresses)?;
    println!("{kills} kills; gateway's memory {memory_at_start} KiB after a tenth, {memory_at_end} KiB at the end");
    if memory_at_end > memory_at_start + GROWTH {
        violations.push(format!("the gateway's memory grew by {} KiB", memory_at_end - memory_at_start));
    }
    for violation in &violations {
        println!("WRONG: {violation}");
    }
    ensure!(violations.is_empty(), "{} checks failed", violations.len());
    Ok(())
}

/// Kills the agents and the broker in rotation and restarts them, until `end`. Returns the number of kills.
fn trouble(
    args: &Plan,
    end: Instant,
    addresses: &Places,
    (broker, agents): (&mut Broker, &mut Option<Process>),
) -> anyhow::Result<u64> {
    let mut kills = 0;
    let pause = Duration::from_secs(args.every.max(1));
    while Instant::now() + pause < end {
        std::thread::park_timeout(pause);
        let downtime = Duration::from_millis(500);
        match kills % 3 {
            0 => *agents = None,
            1 => broker.kill(),
            _ => {
                *agents = None;
                broker.kill();
            }
        }
        std::thread::park_timeout(downtime);
        if kills % 3 != 0 {
            broker.again()?;
        }
        if agents.is_none() {
            *agents = Some(peers(addresses)?);
        }
        kills += 1;
    }
    std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    Ok(kills)
}

/// Calls until `end`, each time with a new number.
fn caller(gateway: SocketAddr, transport: &str, numbers: &AtomicU64, end: Instant) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut connection = Connection::open(gateway)?;
    while Instant::now() < end {
        let number = numbers.fetch_add(1, Relaxed);
        let request = Request::post(&path_of(transport), "", &json!({"n": number}).to_string());
        tally.calls += 1;
        match connection.answer(&request) {
            Ok((status, response)) => {
                let text = String::from_utf8_lossy(response).into_owned();
                let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                tally.note(transport, number, (status, body));
                // The gateway refuses calls to a dead agent much faster than an agent responds.
                if status != 200 {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
            Err(error) => {
                tally.violations.push(format!("{transport}: call {number} got no response: {error:#}"));
                connection = Connection::open(gateway)?;
            }
        }
    }
    Ok(tally)
}

impl Tally {
    fn note(&mut self, transport: &str, number: u64, (status, body): (u16, &str)) {
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

/// Prints the outcomes of the calls. Returns everything that must not happen.
fn judge(tallies: &HashMap<&str, Tally>, addresses: &Places) -> anyhow::Result<Vec<String>> {
    let log = std::fs::read_to_string(addresses.seen.as_ref().context("the agents have no log file")?)?;
    let mut received: HashMap<(&str, u64), u64> = HashMap::new();
    for line in log.lines() {
        let (transport, number) = line.split_once(' ').context("a malformed line in the agents' log")?;
        *received.entry((transport, number.parse()?)).or_default() += 1;
    }
    let mut violations = Vec::new();
    for transport in KINDS {
        let Some(tally) = tallies.get(transport) else { continue };
        let Tally { calls, answered, failed, reasons, .. } = tally;
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
