//! `bodies`: bodies of 1 KB to 64 MB, to the agent and from it. Measures their throughput, the CPU time that they take,
//! and the memory that the proxy uses for them.

use crate::agent::BYTES_PATH;
use crate::body_lengths::BODY_LENGTHS;
use crate::environment::{ProgramPaths, TestEnvironment};
use crate::gatepost::invoke_path;
use crate::http1_client::PreparedRequest;
use crate::load::{self, CallTarget, LoadLimit};
use crate::process::ServerProcess;
use crate::proxy::ProxyKind;
use crate::proxy_settings::ProxyMode;
use crate::report::{PINGORA, format_number};
use crate::statistics::{markdown_table, median};
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::time::Duration;

/// How much to measure. The defaults take about a minute and a half.
#[derive(clap::Args)]
pub(crate) struct BodiesArgs {
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
    programs: ProgramPaths,
}

/// How long the calls before and during a reading of memory may take.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    ToAgent,
    FromAgent,
}

/// The one large body of a call: the request's or the response's. The other body is empty.
#[derive(Clone, Copy)]
struct BodyTransfer {
    direction: Direction,
    length: usize,
}

impl BodyTransfer {
    fn request_length(self) -> usize {
        if self.direction == Direction::ToAgent { self.length } else { 0 }
    }

    fn response_length(self) -> usize {
        if self.direction == Direction::FromAgent { self.length } else { 0 }
    }

    /// The call at the agent itself, or at a proxy that does not change paths.
    fn target_at(self, address: SocketAddr) -> CallTarget {
        let path = format!("{BYTES_PATH}{}", self.response_length());
        CallTarget::plain(address, PreparedRequest::post_bytes(&path, self.request_length()))
    }

    /// The call at the gateway, which has an agent for each length of response bodies.
    fn target_at_gateway(self, address: SocketAddr) -> CallTarget {
        let path = invoke_path(&format!("bulk-{}", self.response_length()));
        CallTarget::plain(address, PreparedRequest::post_bytes(&path, self.request_length()))
    }
}

/// A proxy that bodies pass through, or the agent itself.
struct BodyProxy {
    name: &'static str,
    /// `None` is the agent itself.
    process: Option<ServerProcess>,
    target: Box<dyn Fn(BodyTransfer) -> CallTarget>,
}

/// The result of one round for one proxy, direction and length.
struct BodyRound {
    megabytes_per_second: f64,
    /// Microseconds of CPU.
    cpu_per_call: Option<f64>,
    cpu_per_megabyte: Option<f64>,
    failed: u64,
}

pub(crate) fn run(args: &BodiesArgs) -> anyhow::Result<()> {
    let environment = TestEnvironment::start(&args.programs, 1000)?;
    let proxies = PROXY_NAMES.iter().map(|name| start_proxy(&environment, name));
    let proxies: Vec<BodyProxy> = proxies.filter_map(anyhow::Result::transpose).collect::<anyhow::Result<_>>()?;
    let mut failed = 0;
    for direction in [Direction::ToAgent, Direction::FromAgent] {
        let mut rows = Vec::new();
        for length in BODY_LENGTHS {
            let mut results: Vec<Vec<BodyRound>> = proxies.iter().map(|_| Vec::new()).collect();
            for _ in 0..args.rounds {
                for (proxy, results) in proxies.iter().zip(&mut results) {
                    let result = measure(args, proxy, BodyTransfer { direction, length });
                    results.push(result.with_context(|| format!("{}, {length} bytes", proxy.name))?);
                }
            }
            failed += results.iter().flatten().map(|result| result.failed).sum::<u64>();
            rows.extend(proxies.iter().zip(&results).map(|(proxy, results)| result_row(proxy.name, length, results)));
        }
        let title = if direction == Direction::ToAgent { "to the agent" } else { "from the agent" };
        let header = [title, "length", "MB/s", "CPU µs/call", "CPU µs/MB", "failed"];
        println!("{}", markdown_table(&header, &rows));
    }
    let mut rows = Vec::new();
    for proxy in proxies.iter().filter(|proxy| proxy.process.is_some()) {
        let mut cells = vec![proxy.name.to_owned()];
        for direction in [Direction::ToAgent, Direction::FromAgent] {
            let memory = memory_per_body(args, &environment, proxy.name, direction)?;
            cells.push(format_number(memory.unwrap_or(f64::NAN), 0));
        }
        rows.push(cells);
    }
    let title = format!("{} × 64 MiB at once, KiB for each", args.connections);
    println!("{}", markdown_table(&[&title, "to the agent", "from the agent"], &rows));
    ensure!(failed == 0, "{failed} calls failed: do not use the figures above");
    Ok(())
}

/// The measured proxies, and the agent itself.
const PROXY_NAMES: [&str; 5] = ["direct", "nginx", "HAProxy", PINGORA, "Gatepost"];

/// Starts one of them. Returns `None` if it is not installed.
fn start_proxy(environment: &TestEnvironment, name: &'static str) -> anyhow::Result<Option<BodyProxy>> {
    let kind = match name {
        "nginx" => ProxyKind::Nginx,
        "HAProxy" => ProxyKind::Haproxy,
        PINGORA => ProxyKind::Pingora,
        "Gatepost" => {
            let gateway = environment.gateway.start_open()?.process;
            let address = gateway.address;
            let target = Box::new(move |transfer: BodyTransfer| transfer.target_at_gateway(address));
            return Ok(Some(BodyProxy { name, process: Some(gateway), target }));
        }
        _ => {
            let agent = environment.settings.agent;
            let target = Box::new(move |transfer: BodyTransfer| transfer.target_at(agent));
            return Ok(Some(BodyProxy { name, process: None, target }));
        }
    };
    let Some(proxy) = environment.start_proxy(name, kind, ProxyMode::PassThrough)? else { return Ok(None) };
    let address = proxy.process.address;
    let target = Box::new(move |transfer: BodyTransfer| transfer.target_at(address));
    Ok(Some(BodyProxy { name, process: Some(proxy.process), target }))
}

/// Sends the largest body over every connection at once through a process that has handled only small bodies before.
/// Returns by how much its peak of resident memory exceeds the memory before, in KiB per connection.
fn memory_per_body(
    args: &BodiesArgs,
    environment: &TestEnvironment,
    name: &'static str,
    direction: Direction,
) -> anyhow::Result<Option<f64>> {
    let Some(BodyProxy { process: Some(process), target, .. }) = start_proxy(environment, name)? else {
        return Ok(None);
    };
    let [small, .., large] = BODY_LENGTHS;
    let calls = args.connections * 10;
    load::saturate(
        &target(BodyTransfer { direction, length: small }),
        args.connections,
        LoadLimit { time: LOAD_TIMEOUT, max_calls: calls },
        None,
    )?;
    process.reset_peak_memory()?;
    let before = process.resident_memory()?;
    let bodies = args.connections * 2;
    let result = load::saturate(
        &target(BodyTransfer { direction, length: large }),
        args.connections,
        LoadLimit { time: LOAD_TIMEOUT, max_calls: bodies },
        None,
    )?;
    ensure!(
        result.failed == 0 && result.calls == bodies,
        "{name}: {} of {bodies} bodies, {} failed",
        result.calls,
        result.failed
    );
    Ok(Some(process.peak_resident_memory()?.saturating_sub(before) as f64 / args.connections as f64))
}

fn measure(args: &BodiesArgs, proxy: &BodyProxy, transfer: BodyTransfer) -> anyhow::Result<BodyRound> {
    let target = (proxy.target)(transfer);
    let time = Duration::from_secs_f64(args.seconds);
    let saturated = load::saturate(&target, args.connections, time, proxy.process.as_ref())?;
    let megabytes = saturated.calls as f64 * transfer.length as f64 / 1e6;
    Ok(BodyRound {
        megabytes_per_second: megabytes / saturated.elapsed.as_secs_f64(),
        cpu_per_call: saturated.cpu_per_call(),
        cpu_per_megabyte: saturated.cpu_per_call().map(|cpu| cpu * saturated.calls as f64 / megabytes),
        failed: saturated.failed,
    })
}

fn result_row(name: &str, length: usize, results: &[BodyRound]) -> Vec<String> {
    let median_of = |value: fn(&BodyRound) -> Option<f64>| median(results.iter().filter_map(value));
    vec![
        name.to_owned(),
        if length < 1 << 20 { format!("{} KiB", length >> 10) } else { format!("{} MiB", length >> 20) },
        format_number(median_of(|result| Some(result.megabytes_per_second)), 0),
        format_number(median_of(|result| result.cpu_per_call), 1),
        format_number(median_of(|result| result.cpu_per_megabyte), 1),
        results.iter().map(|result| result.failed).sum::<u64>().to_string(),
    ]
}
