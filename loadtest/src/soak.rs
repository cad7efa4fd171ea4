//! A mixed load over every transport at once, while the broker and the agents are killed and started again. Every call
//! must be answered or fail with a reason, nobody gets another's answer, and no agent sees a call twice.

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

/// How long an agent may take before the gateway gives it up; less than a caller of the load waits.
const BOUND: Duration = Duration::from_secs(3);
/// Memory that may be more at the end than after the first tenth.
const GROWTH: u64 = 64 << 10;

/// How long, and how rough.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Seconds of load.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Minutes of load, instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Seconds between two kills: of the agents, of the broker, and so on in turn.
    #[arg(long, default_value_t = 5)]
    every: u64,
    /// Callers per transport.
    #[arg(long, default_value_t = 4)]
    callers: u64,
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// What came of the calls over one transport.
#[derive(Default)]
struct Tally {
    made: u64,
    answered: Vec<u64>,
    failed: u64,
    reasons: HashMap<String, u64>,
    wrong: Vec<String>,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut broker = Broker::start(folder.path())?;
    let places = places(folder.path(), &broker, Some(folder.path().join("seen")))?;
    let mut agents = Some(peers(&places)?);
    let program = plan.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let gateway = Gateway::new(program, folder.path().to_owned(), places.http).over_everything(&places, BOUND)?;
    let numbers = Arc::new(AtomicU64::new(1));
    for kind in KINDS {
        settled(&asking(gateway.address, kind, &json!({"n": 0}).to_string())).context(kind)?;
    }
    let time = Duration::from_secs(plan.minutes.map_or(plan.seconds, |minutes| minutes * 60));
    let end = Instant::now() + time;
    let callers = KINDS.iter().flat_map(|kind| (0..plan.callers).map(move |_| *kind)).map(|kind| {
        let (numbers, address) = (Arc::clone(&numbers), gateway.address);
        std::thread::spawn(move || Ok((kind, caller(address, kind, &numbers, end)?)))
    });
    let callers: Vec<_> = callers.collect();
    std::thread::park_timeout(time / 10);
    let at_start = gateway.resident()?;
    let kills = trouble(plan, end, &places, (&mut broker, &mut agents))?;
    let mut all: HashMap<&str, Tally> = HashMap::new();
    for (kind, tally) in join(callers)? {
        all.entry(kind).or_default().add(tally);
    }
    let at_end = gateway.resident()?;
    let mut wrong = judge(&all, &places)?;
    println!("{kills} kills; memory of the gateway {at_start} KiB after a tenth, {at_end} KiB at the end");
    if at_end > at_start + GROWTH {
        wrong.push(format!("its memory grew by {} KiB", at_end - at_start));
    }
    for what in &wrong {
        println!("WRONG: {what}");
    }
    ensure!(wrong.is_empty(), "{} things are wrong", wrong.len());
    Ok(())
}

/// Kills the agents and the broker in turn, and starts them again, until `end`; how often.
fn trouble(
    plan: &Plan,
    end: Instant,
    places: &Places,
    (broker, agents): (&mut Broker, &mut Option<Process>),
) -> anyhow::Result<u64> {
    let mut kills = 0;
    let pause = Duration::from_secs(plan.every.max(1));
    while Instant::now() + pause < end {
        std::thread::park_timeout(pause);
        let down = Duration::from_millis(500);
        match kills % 3 {
            0 => *agents = None,
            1 => broker.kill(),
            _ => {
                *agents = None;
                broker.kill();
            }
        }
        std::thread::park_timeout(down);
        if kills % 3 != 0 {
            broker.again()?;
        }
        if agents.is_none() {
            *agents = Some(peers(places)?);
        }
        kills += 1;
    }
    std::thread::park_timeout(end.saturating_duration_since(Instant::now()));
    Ok(kills)
}

/// Calls until `end`, each with a number that nobody else has.
fn caller(gateway: SocketAddr, kind: &str, numbers: &AtomicU64, end: Instant) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut connection = Connection::open(gateway)?;
    while Instant::now() < end {
        let number = numbers.fetch_add(1, Relaxed);
        let request = Request::post(&path_of(kind), "", &json!({"n": number}).to_string());
        tally.made += 1;
        match connection.answer(&request) {
            Ok((status, answer)) => {
                let text = String::from_utf8_lossy(answer).into_owned();
                tally.note(kind, number, (status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body)));
                // A dead agent is not asked as fast as it can refuse.
                if status != 200 {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
            Err(why) => {
                tally.wrong.push(format!("{kind}: call {number} got no answer from the gateway: {why:#}"));
                connection = Connection::open(gateway)?;
            }
        }
    }
    Ok(tally)
}

impl Tally {
    fn note(&mut self, kind: &str, number: u64, (status, body): (u16, &str)) {
        // A chunked answer has its sizes around it.
        let json = body.find('{').zip(body.rfind('}')).and_then(|(from, to)| body.get(from..=to)).unwrap_or_default();
        let answer: Value = serde_json::from_str(json).unwrap_or_default();
        let reason = answer.pointer("/error/code").and_then(Value::as_str);
        match (status, reason) {
            (200, _) if answer.get("n").and_then(Value::as_u64) == Some(number) => self.answered.push(number),
            (400.., Some(reason)) => {
                self.failed += 1;
                *self.reasons.entry(format!("{status} {reason}")).or_default() += 1;
            }
            _ => self.wrong.push(format!("{kind}: call {number} was answered {status} {body}")),
        }
    }

    fn add(&mut self, other: Self) {
        self.made += other.made;
        self.failed += other.failed;
        self.answered.extend(other.answered);
        self.wrong.extend(other.wrong);
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
    }
}

/// Prints what came of the calls; everything that should not be.
fn judge(all: &HashMap<&str, Tally>, places: &Places) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(places.seen.as_ref().context("a file of what was seen")?)?;
    let mut seen: HashMap<(&str, u64), u64> = HashMap::new();
    for line in text.lines() {
        let (kind, number) = line.split_once(' ').context("a line of what was seen")?;
        *seen.entry((kind, number.parse()?)).or_default() += 1;
    }
    let mut wrong = Vec::new();
    for kind in KINDS {
        let Some(tally) = all.get(kind) else { continue };
        let Tally { made, answered, failed, reasons, .. } = tally;
        println!("{kind}: {made} calls, {} answered, {failed} failed {reasons:?}", answered.len());
        wrong.extend(tally.wrong.iter().take(10).cloned());
        if answered.len() as u64 + failed != *made {
            wrong.push(format!("{kind}: {} calls are lost", made.saturating_sub(answered.len() as u64 + failed)));
        }
        let unseen = answered.iter().filter(|number| !seen.contains_key(&(kind, **number))).count();
        if unseen > 0 {
            wrong.push(format!("{kind}: {unseen} answers came from nobody"));
        }
    }
    // None of these calls may be made twice (R45). The first of each kind, number 0, were tried until one was answered.
    let twice = seen.iter().filter(|((_, number), count)| *number > 0 && **count > 1).count();
    if twice > 0 {
        wrong.push(format!("{twice} calls came to an agent more than once"));
    }
    Ok(wrong)
}
