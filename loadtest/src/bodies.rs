//! Bodies of 1 KB to 64 MB, to the agent and from it: how fast they pass, what CPU they take, and how much memory they
//! pass through.

use crate::agent::BULK;
use crate::client::Request;
use crate::figures::{median, table};
use crate::gatepost::path_of;
use crate::house::{Ground, Programs};
use crate::load::{self, Target, Until};
use crate::process::Process;
use crate::proxy::{Kind, Work};
use crate::report::{PINGORA, cell};
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::time::Duration;

/// The lengths, in bytes.
pub(crate) const LENGTHS: [usize; 4] = [1 << 10, 64 << 10, 1 << 20, 64 << 20];

/// How much to measure. The defaults take about a minute and a half.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures every length, both ways, through everything.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 0.8)]
    seconds: f64,
    /// Calls under way at once.
    #[arg(long, default_value_t = 8)]
    connections: u64,
    #[command(flatten)]
    programs: Programs,
}

/// How long so many of the largest may take.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
}

/// Something that bodies pass through.
struct Passage {
    name: &'static str,
    /// `None` is the agent itself.
    process: Option<Process>,
    target: Box<dyn Fn(Way, usize) -> Target>,
}

/// What one round saw of one passage, way and length.
struct Seen {
    megabytes_per_second: f64,
    /// Microseconds of CPU for a call, and for a megabyte.
    cpu: Option<(f64, f64)>,
    failed: u64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let ground = Ground::lay(&plan.programs, 1000)?;
    let passages = NAMES.iter().map(|name| passage(&ground, name));
    let passages: Vec<Passage> = passages.filter_map(anyhow::Result::transpose).collect::<anyhow::Result<_>>()?;
    let mut failed = 0;
    for way in [Way::Up, Way::Down] {
        let mut rows = Vec::new();
        for length in LENGTHS {
            let mut seen: Vec<Vec<Seen>> = passages.iter().map(|_| Vec::new()).collect();
            for _ in 0..plan.rounds {
                for (passage, seen) in passages.iter().zip(&mut seen) {
                    let one = measure(plan, passage, (way, length));
                    seen.push(one.with_context(|| format!("{}, {length} bytes", passage.name))?);
                }
            }
            failed += seen.iter().flatten().map(|seen| seen.failed).sum::<u64>();
            rows.extend(passages.iter().zip(&seen).map(|(passage, seen)| line(passage.name, length, seen)));
        }
        let title = if way == Way::Up { "to the agent" } else { "from the agent" };
        let head = [title, "length", "MB/s", "CPU µs/call", "CPU µs/MB", "failed"];
        println!("{}", table(&head, &rows));
    }
    let ways = [Way::Up, Way::Down];
    let mut rows = Vec::new();
    for passage in passages.iter().filter(|passage| passage.process.is_some()) {
        let mut cells = vec![passage.name.to_owned()];
        for way in ways {
            cells.push(cell(grown(plan, &ground, (passage.name, way))?.unwrap_or(f64::NAN), 0));
        }
        rows.push(cells);
    }
    let title = format!("{} × 64 MiB at once, KiB for each", plan.connections);
    println!("{}", table(&[&title, "to the agent", "from the agent"], &rows));
    ensure!(failed == 0, "{failed} calls failed: the figures above are not to be used");
    Ok(())
}

/// Who is measured.
const NAMES: [&str; 5] = ["direct", "nginx", "HAProxy", PINGORA, "Gatepost"];

/// Starts one of them; `None` where it is not installed.
fn passage(ground: &Ground, name: &'static str) -> anyhow::Result<Option<Passage>> {
    let kind = match name {
        "nginx" => Kind::Nginx,
        "HAProxy" => Kind::Haproxy,
        PINGORA => Kind::Pingora,
        "Gatepost" => {
            let gateway = ground.gateway.open()?.process;
            let address = gateway.address;
            let target = move |way, length| {
                let (up, down) = lengths(way, length);
                Target::plain(address, Request::bulk(&path_of(&format!("bulk-{down}")), up))
            };
            return Ok(Some(Passage { name, process: Some(gateway), target: Box::new(target) }));
        }
        _ => {
            let agent = ground.setting.agent;
            return Ok(Some(Passage {
                name,
                process: None,
                target: Box::new(move |way, length| bulk(agent, way, length)),
            }));
        }
    };
    let Some(proxy) = ground.proxy(name, kind, Work::Pass)? else { return Ok(None) };
    let address = proxy.process.address;
    let target = Box::new(move |way, length| bulk(address, way, length));
    Ok(Some(Passage { name, process: Some(proxy.process), target }))
}

/// The largest body, as often at once as there are connections, through a process that saw only small ones before: what
/// it holds at most beyond what it held, in KiB for each of them.
fn grown(plan: &Plan, ground: &Ground, (name, way): (&'static str, Way)) -> anyhow::Result<Option<f64>> {
    let Some(Passage { process: Some(process), target, .. }) = passage(ground, name)? else { return Ok(None) };
    let [small, .., large] = LENGTHS;
    load::saturate(&target(way, small), plan.connections, Until { time: LONGEST, most: plan.connections * 10 }, None)?;
    process.forget_peak()?;
    let before = process.resident()?;
    let bodies = plan.connections * 2;
    let seen = load::saturate(&target(way, large), plan.connections, Until { time: LONGEST, most: bodies }, None)?;
    ensure!(
        seen.failed == 0 && seen.calls == bodies,
        "{name}: {} of {bodies} bodies, {} failed",
        seen.calls,
        seen.failed
    );
    Ok(Some(process.peak()?.saturating_sub(before) as f64 / plan.connections as f64))
}

/// What goes to the agent, and what comes from it.
fn lengths(way: Way, length: usize) -> (usize, usize) {
    if way == Way::Up { (length, 0) } else { (0, length) }
}

/// A body to the agent or from it, through something that leaves paths as they are.
fn bulk(address: SocketAddr, way: Way, length: usize) -> Target {
    let (up, down) = lengths(way, length);
    Target::plain(address, Request::bulk(&format!("{BULK}{down}"), up))
}

fn measure(plan: &Plan, passage: &Passage, (way, length): (Way, usize)) -> anyhow::Result<Seen> {
    let target = (passage.target)(way, length);
    let time = Duration::from_secs_f64(plan.seconds);
    let full = load::saturate(&target, plan.connections, time, passage.process.as_ref())?;
    let megabytes = full.calls as f64 * length as f64 / 1e6;
    Ok(Seen {
        megabytes_per_second: megabytes / full.took.as_secs_f64(),
        cpu: full.cpu_per_call().map(|cpu| (cpu, cpu * full.calls as f64 / megabytes)),
        failed: full.failed,
    })
}

fn line(name: &str, length: usize, seen: &[Seen]) -> Vec<String> {
    let of = |value: fn(&Seen) -> Option<f64>| median(seen.iter().filter_map(value));
    vec![
        name.to_owned(),
        if length < 1 << 20 { format!("{} KiB", length >> 10) } else { format!("{} MiB", length >> 20) },
        cell(of(|seen| Some(seen.megabytes_per_second)), 0),
        cell(of(|seen| Some(seen.cpu?.0)), 1),
        cell(of(|seen| Some(seen.cpu?.1)), 1),
        seen.iter().map(|seen| seen.failed).sum::<u64>().to_string(),
    ]
}
