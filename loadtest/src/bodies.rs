//! `bodies`: bodies of 1 KB to 64 MB, to the agent and from it. Measures their throughput, the CPU time that they take,
//! and the memory that the proxy uses for them.

use crate::agent::BYTES_PATH;
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

/// The measured body lengths, in bytes.
pub(crate) const LENGTHS: [usize; 4] = [1 << 10, 64 << 10, 1 << 20, 64 << 20];

/// How much to measure. The defaults take about a minute and a half.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures every length, in both directions, through every proxy.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 0.8)]
    seconds: f64,
    /// Concurrent calls.
    #[arg(long, default_value_t = 8)]
    connections: u64,
    #[command(flatten)]
    programs: Programs,
}

/// How long the calls before and during a reading of memory may take.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
}

/// A proxy that bodies pass through, or the agent itself.
struct Passage {
    name: &'static str,
    /// `None` is the agent itself.
    process: Option<Process>,
    target: Box<dyn Fn(Way, usize) -> Target>,
}

/// The result of one round for one proxy, direction and length.
struct Seen {
    megabytes_per_second: f64,
    /// Microseconds of CPU for a call, and for a megabyte.
    cpu: Option<(f64, f64)>,
    failed: u64,
}

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let environment = Ground::lay(&args.programs, 1000)?;
    let proxies = NAMES.iter().map(|name| passage(&environment, name));
    let proxies: Vec<Passage> = proxies.filter_map(anyhow::Result::transpose).collect::<anyhow::Result<_>>()?;
    let mut failed = 0;
    for direction in [Way::Up, Way::Down] {
        let mut rows = Vec::new();
        for length in LENGTHS {
            let mut results: Vec<Vec<Seen>> = proxies.iter().map(|_| Vec::new()).collect();
            for _ in 0..args.rounds {
                for (proxy, results) in proxies.iter().zip(&mut results) {
                    let result = measure(args, proxy, (direction, length));
                    results.push(result.with_context(|| format!("{}, {length} bytes", proxy.name))?);
                }
            }
            failed += results.iter().flatten().map(|result| result.failed).sum::<u64>();
            rows.extend(proxies.iter().zip(&results).map(|(proxy, results)| line(proxy.name, length, results)));
        }
        let title = if direction == Way::Up { "to the agent" } else { "from the agent" };
        let header = [title, "length", "MB/s", "CPU µs/call", "CPU µs/MB", "failed"];
        println!("{}", table(&header, &rows));
    }
    let mut rows = Vec::new();
    for proxy in proxies.iter().filter(|proxy| proxy.process.is_some()) {
        let mut cells = vec![proxy.name.to_owned()];
        for direction in [Way::Up, Way::Down] {
            let memory = grown(args, &environment, (proxy.name, direction))?;
            cells.push(cell(memory.unwrap_or(f64::NAN), 0));
        }
        rows.push(cells);
    }
    let title = format!("{} × 64 MiB at once, KiB for each", args.connections);
    println!("{}", table(&[&title, "to the agent", "from the agent"], &rows));
    ensure!(failed == 0, "{failed} calls failed: do not use the figures above");
    Ok(())
}

/// The measured proxies, and the agent itself.
const NAMES: [&str; 5] = ["direct", "nginx", "HAProxy", PINGORA, "Gatepost"];

/// Starts one of them. Returns `None` if it is not installed.
fn passage(environment: &Ground, name: &'static str) -> anyhow::Result<Option<Passage>> {
    let kind = match name {
        "nginx" => Kind::Nginx,
        "HAProxy" => Kind::Haproxy,
        PINGORA => Kind::Pingora,
        "Gatepost" => {
            let gateway = environment.gateway.open()?.process;
            let address = gateway.address;
            let target = move |direction, length| {
                let (up, down) = lengths(direction, length);
                Target::plain(address, Request::bulk(&path_of(&format!("bulk-{down}")), up))
            };
            return Ok(Some(Passage { name, process: Some(gateway), target: Box::new(target) }));
        }
        _ => {
            let agent = environment.settings.agent;
            return Ok(Some(Passage {
                name,
                process: None,
                target: Box::new(move |direction, length| bulk(agent, direction, length)),
            }));
        }
    };
    let Some(proxy) = environment.proxy(name, kind, Work::Pass)? else { return Ok(None) };
    let address = proxy.process.address;
    let target = Box::new(move |direction, length| bulk(address, direction, length));
    Ok(Some(Passage { name, process: Some(proxy.process), target }))
}

/// Sends the largest body over every connection at once through a process that has handled only small bodies before.
/// Returns by how much its peak of resident memory exceeds the memory before, in KiB per connection.
fn grown(args: &Plan, environment: &Ground, (name, direction): (&'static str, Way)) -> anyhow::Result<Option<f64>> {
    let Some(Passage { process: Some(process), target, .. }) = passage(environment, name)? else { return Ok(None) };
    let [small, .., large] = LENGTHS;
    let calls = args.connections * 10;
    load::saturate(&target(direction, small), args.connections, Until { time: LONGEST, most: calls }, None)?;
    process.forget_peak()?;
    let before = process.resident()?;
    let bodies = args.connections * 2;
    let result =
        load::saturate(&target(direction, large), args.connections, Until { time: LONGEST, most: bodies }, None)?;
    ensure!(
        result.failed == 0 && result.calls == bodies,
        "{name}: {} of {bodies} bodies, {} failed",
        result.calls,
        result.failed
    );
    Ok(Some(process.peak()?.saturating_sub(before) as f64 / args.connections as f64))
}

/// Returns the lengths of the request body and of the response body.
fn lengths(direction: Way, length: usize) -> (usize, usize) {
    if direction == Way::Up { (length, 0) } else { (0, length) }
}

/// A body to the agent or from it, directly or through a proxy that does not change paths.
fn bulk(address: SocketAddr, direction: Way, length: usize) -> Target {
    let (up, down) = lengths(direction, length);
    Target::plain(address, Request::bulk(&format!("{BYTES_PATH}{down}"), up))
}

fn measure(args: &Plan, proxy: &Passage, (direction, length): (Way, usize)) -> anyhow::Result<Seen> {
    let target = (proxy.target)(direction, length);
    let time = Duration::from_secs_f64(args.seconds);
    let saturated = load::saturate(&target, args.connections, time, proxy.process.as_ref())?;
    let megabytes = saturated.calls as f64 * length as f64 / 1e6;
    Ok(Seen {
        megabytes_per_second: megabytes / saturated.took.as_secs_f64(),
        cpu: saturated.cpu_per_call().map(|cpu| (cpu, cpu * saturated.calls as f64 / megabytes)),
        failed: saturated.failed,
    })
}

fn line(name: &str, length: usize, results: &[Seen]) -> Vec<String> {
    let median_of = |value: fn(&Seen) -> Option<f64>| median(results.iter().filter_map(value));
    vec![
        name.to_owned(),
        if length < 1 << 20 { format!("{} KiB", length >> 10) } else { format!("{} MiB", length >> 20) },
        cell(median_of(|result| Some(result.megabytes_per_second)), 0),
        cell(median_of(|result| Some(result.cpu?.0)), 1),
        cell(median_of(|result| Some(result.cpu?.1)), 1),
        results.iter().map(|result| result.failed).sum::<u64>().to_string(),
    ]
}
