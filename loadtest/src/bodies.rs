//! Bodies of 1 KB to 64 MB, to the agent and from it: how fast they pass, what CPU they take, and how much memory they
//! pass through.

use crate::agent::BULK;
use crate::client::Request;
use crate::figures::{median, table};
use crate::gatepost::path_of;
use crate::house::{Ground, Programs};
use crate::load::{self, Target};
use crate::process::Process;
use crate::proxy::{Kind, Work};
use crate::report::cell;
use anyhow::Context as _;
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
    /// KiB that the process held at most, beyond what it held before.
    grown: Option<u64>,
    failed: u64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let ground = Ground::lay(&plan.programs, 1000)?;
    let passages = passages(&ground)?;
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
        let head = [title, "length", "MB/s", "CPU µs/call", "CPU µs/MB", "grown by KiB", "failed"];
        println!("{}", table(&head, &rows));
    }
    anyhow::ensure!(failed == 0, "{failed} calls failed: the figures above are not to be used");
    Ok(())
}

fn passages(ground: &Ground) -> anyhow::Result<Vec<Passage>> {
    let agent = ground.setting.agent;
    let mut passages =
        vec![Passage { name: "direct", process: None, target: Box::new(move |way, length| bulk(agent, way, length)) }];
    for (name, kind) in [("nginx", Kind::Nginx), ("HAProxy", Kind::Haproxy), ("Pingora, bare", Kind::Pingora)] {
        let Some(proxy) = ground.proxy(name, kind, Work::Pass)? else { continue };
        let address = proxy.process.address;
        let target = Box::new(move |way, length| bulk(address, way, length));
        passages.push(Passage { name, process: Some(proxy.process), target });
    }
    let gateway = ground.gateway.open()?.process;
    let address = gateway.address;
    let target = Box::new(move |way, length| {
        let path = path_of(&format!("bulk-{}", if way == Way::Up { 0 } else { length }));
        Target::plain(address, Request::bulk(&path, if way == Way::Up { length } else { 0 }))
    });
    passages.push(Passage { name: "Gatepost", process: Some(gateway), target });
    Ok(passages)
}

/// A body to the agent or from it, through something that leaves paths as they are.
fn bulk(address: SocketAddr, way: Way, length: usize) -> Target {
    let (up, down) = if way == Way::Up { (length, 0) } else { (0, length) };
    Target::plain(address, Request::bulk(&format!("{BULK}{down}"), up))
}

fn measure(plan: &Plan, passage: &Passage, (way, length): (Way, usize)) -> anyhow::Result<Seen> {
    let target = (passage.target)(way, length);
    let process = passage.process.as_ref();
    let cpu = || process.map(Process::cpu).transpose();
    let before = (cpu()?, process.map(Process::resident).transpose()?);
    process.map(Process::forget_peak).transpose()?;
    let time = Duration::from_secs_f64(plan.seconds);
    let full = load::saturate(&target, plan.connections, time, u64::MAX)?;
    let used = cpu()?.zip(before.0).map(|(after, before)| after.saturating_sub(before).as_secs_f64() * 1e6);
    let peak = process.map(Process::peak).transpose()?;
    let megabytes = full.calls as f64 * length as f64 / 1e6;
    Ok(Seen {
        megabytes_per_second: megabytes / full.took.as_secs_f64(),
        cpu: used.map(|used| (used / full.calls as f64, used / megabytes)),
        grown: peak.zip(before.1).map(|(peak, before)| peak.saturating_sub(before)),
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
        cell(of(|seen| seen.grown.map(|grown| grown as f64)), 0),
        seen.iter().map(|seen| seen.failed).sum::<u64>().to_string(),
    ]
}
