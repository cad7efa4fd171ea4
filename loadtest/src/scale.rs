//! `scale`: the effect of the number of agents on the time to load and to refresh, memory, the CPU time of a call, and
//! searches. Then calls while the whole catalogue is replaced every second.

use crate::agent_catalogue::AgentCatalogue;
use crate::environment;
use crate::gatepost::{self, GatewayLauncher, anonymous_target};
use crate::http1_client::{Http1Connection, PreparedRequest};
use crate::load::{self, CallTarget};
use crate::process::ServerProcess;
use crate::statistics::{markdown_table, median, percentile};
use crate::token_issuer::TokenIssuer;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Searches of each kind.
const SEARCH_COUNT: usize = 200;
/// How long a change of the catalogue may take to appear.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// How much to measure. The defaults take about two minutes.
#[derive(clap::Args)]
pub(crate) struct ScaleArgs {
    /// Numbers of agents; the others are compared with the first.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 100_000])]
    agents: Vec<usize>,
    /// Rounds of calls; each measures every number of agents once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 16)]
    connections: u64,
    /// Agents in the catalogue that the storm replaces every second.
    #[arg(long, default_value_t = 10_000)]
    storm: usize,
    /// Seconds of the storm, and of the quiet measurement before it.
    #[arg(long, default_value_t = 15.0)]
    storm_seconds: f64,
    /// Calls a second while latency is measured.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// A gateway with a number of agents, and its measurements.
struct AgentCountScenario {
    catalogue: AgentCatalogue,
    gateway: ServerProcess,
    load_time: Duration,
    resident: u64,
    cpu: Vec<f64>,
}

impl AgentCountScenario {
    fn start(launcher: &GatewayLauncher, catalogue: AgentCatalogue) -> anyhow::Result<Self> {
        catalogue.write(0, 0)?;
        let started = Instant::now();
        let gateway = launcher.start_with_agents_file(catalogue.file(), catalogue.count())?;
        let load_time = started.elapsed();
        let scenario = Self { catalogue, resident: 0, load_time, gateway, cpu: Vec::new() };
        scenario.call_target().try_once()?;
        // The gateway builds the search index while it serves the first calls.
        scenario.wait_for_revision(0)?;
        std::thread::park_timeout(Duration::from_secs(3));
        Ok(Self { resident: scenario.gateway.resident_memory()?, ..scenario })
    }

    fn call_target(&self) -> CallTarget {
        anonymous_target(self.gateway.address, "/agents/agent-0/invoke")
    }

    fn measure_calls(&mut self, args: &ScaleArgs) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(args.seconds);
        let result = load::saturate(&self.call_target(), args.connections, time, Some(&self.gateway))?;
        ensure!(result.failed == 0, "{} of {} calls failed", result.failed, result.calls);
        self.cpu.extend(result.cpu_per_call());
        Ok(())
    }

    fn row(&self, first: &Self) -> anyhow::Result<Vec<String>> {
        let count = self.catalogue.count();
        let more_agents = count.saturating_sub(first.catalogue.count());
        let kib_per_agent = self.resident.saturating_sub(first.resident) as f64 / more_agents.max(1) as f64;
        let (cpu, first_cpu) = (median(self.cpu.iter().copied()), median(first.cpu.iter().copied()));
        let refresh_time = self.measure_refresh()?;
        let filtered = PreparedRequest::get("/agents?capabilities=forecasts-7&language=de&top=20");
        let ranked = search_request(r#"{"query":"someone who checks insurance paperwork for farmers","top":20}"#);
        let mut row = vec![
            count.to_string(),
            format_millis(self.load_time),
            format!("{:.1}", self.resident as f64 / 1024.0),
            if count == first.catalogue.count() { "–".to_owned() } else { format!("{kib_per_agent:.2}") },
            format!("{cpu:.1}"),
            format!("{:.2}", cpu / first_cpu),
            format_millis(refresh_time),
        ];
        for search in [filtered, ranked] {
            let latencies = search_latencies(self.gateway.address, &search)?;
            row.extend([0.50, 0.99].map(|share| format!("{:.2}", percentile(&latencies, share) / 1e6)));
        }
        Ok(row)
    }

    /// Changes one agent in a hundred. Returns the time until the last of them appears changed.
    fn measure_refresh(&self) -> anyhow::Result<Duration> {
        self.catalogue.write(1, self.catalogue.count().div_ceil(100))?;
        let started = Instant::now();
        self.wait_for_revision(1)?;
        Ok(started.elapsed())
    }

    /// Waits until the last of the changed agents has the version `revision`.
    fn wait_for_revision(&self, revision: u64) -> anyhow::Result<()> {
        let last = self.catalogue.count().div_ceil(100) - 1;
        let request = PreparedRequest::get(&format!("/agents/agent-{last}"));
        let version = format!("\"1.0.{revision}\"");
        let started = Instant::now();
        while started.elapsed() < CHANGE_TIMEOUT {
            let mut connection = Http1Connection::connect_plain(self.gateway.address)?;
            let (status, response) = connection.call_and_read(&request)?;
            let response = String::from_utf8_lossy(response);
            ensure!(status == 200, "the directory responded with {status}: {response}");
            if response.contains(&version) {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        anyhow::bail!("version {version} has not appeared")
    }
}

pub(crate) fn run(args: &ScaleArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = environment::start_agent(folder.path(), &TokenIssuer::new()?)?;
    let program = args.gatepost.clone().map_or_else(gatepost::sibling_program, Ok)?;
    let launcher = GatewayLauncher::new(program, folder.path().to_owned(), agent.address);
    let start = |count| AgentCountScenario::start(&launcher, AgentCatalogue::new(folder.path(), agent.address, count));
    let mut scenarios = args.agents.iter().map(|count| start(*count)).collect::<anyhow::Result<Vec<_>>>()?;
    load::measure_in_rotation(args.rounds, &mut scenarios, |scenario| scenario.measure_calls(args))?;
    let first = scenarios.first().context("no number of agents")?;
    let rows = scenarios.iter().map(|scenario| scenario.row(first)).collect::<anyhow::Result<Vec<_>>>()?;
    let header = [
        "agents",
        "loaded ms",
        "MiB",
        "KiB per agent",
        "CPU µs/call",
        "× first",
        "1% changed, seen ms",
        "filter p50 ms",
        "filter p99 ms",
        "ranked p50 ms",
        "ranked p99 ms",
    ];
    println!("{}", markdown_table(&header, &rows));
    drop(scenarios);
    measure_storm(args, start(args.storm)?)
}

/// Measures calls at a constant rate, first without changes and then while the whole catalogue is replaced every
/// second.
fn measure_storm(args: &ScaleArgs, scenario: AgentCountScenario) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(args.storm_seconds);
    let target = scenario.call_target();
    let measure = || load::run_at_rate(&target, args.connections, args.rate, time);
    let quiet = measure()?;
    let is_over = AtomicBool::new(false);
    let (stormy, replacements) = std::thread::scope(|scope| {
        let storm = scope.spawn(|| replace_until(&scenario.catalogue, &is_over));
        let stormy = measure();
        is_over.store(true, Relaxed);
        let replacements = storm.join().ok().context("the thread that replaces the catalogue panicked")??;
        anyhow::Ok((stormy?, replacements))
    })?;
    let row = |name: &str, result: &load::PacedResult| {
        let p = |share| format!("{:.0}", percentile(&result.latencies, share) / 1e3);
        let (answered, failed) = (result.latencies.len().to_string(), result.failed.to_string());
        vec![name.to_owned(), answered, p(0.50), p(0.99), p(0.999), failed]
    };
    let name = format!("{} agents replaced {replacements} times", scenario.catalogue.count());
    let header = ["calls at a constant rate", "answered", "p50 µs", "p99 µs", "p99.9 µs", "failed"];
    println!("{}", markdown_table(&header, &[row("quiet", &quiet), row(&name, &stormy)]));
    ensure!(quiet.failed + stormy.failed == 0, "calls failed: do not use the figures above");
    Ok(())
}

/// Replaces the whole catalogue every second. Returns the number of replacements.
fn replace_until(catalogue: &AgentCatalogue, is_over: &AtomicBool) -> anyhow::Result<u64> {
    let mut revision = 1;
    while !is_over.load(Relaxed) {
        let started = Instant::now();
        revision += 1;
        catalogue.write(revision, catalogue.count())?;
        std::thread::park_timeout(Duration::from_secs(1).saturating_sub(started.elapsed()));
    }
    Ok(revision - 1)
}

/// Returns the latency of each search in nanoseconds, sorted.
fn search_latencies(address: SocketAddr, request: &PreparedRequest) -> anyhow::Result<Vec<u64>> {
    let mut connection = Http1Connection::connect_plain(address)?;
    let mut latencies = Vec::with_capacity(SEARCH_COUNT);
    for _ in 0..SEARCH_COUNT {
        let started = Instant::now();
        let (status, response) = connection.call_and_read(request)?;
        ensure!(status == 200, "a search failed with {status}: {}", String::from_utf8_lossy(response));
        latencies.push(u64::try_from(started.elapsed().as_nanos())?);
    }
    latencies.sort_unstable();
    Ok(latencies)
}

fn search_request(body: &str) -> PreparedRequest {
    PreparedRequest::post_json("/agents/search", "", body)
}

fn format_millis(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e3)
}
