//! `scale`: the effect of the number of agents on the time to load and to refresh, memory, the CPU time of a call, and
//! searches. Then calls while the whole catalogue is replaced every second.

use crate::client::{Connection, Request};
use crate::crowd::Crowd;
use crate::figures::{median, percentile, table};
use crate::gatepost::{self, Gateway, plain};
use crate::house;
use crate::load::{self, Target};
use crate::process::Process;
use crate::token_issuer::TokenIssuer;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Searches of each kind.
const SEARCHES: usize = 200;
/// How long a change of the catalogue may take to appear.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much to measure. The defaults take about two minutes.
#[derive(clap::Args)]
pub(crate) struct Plan {
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
struct Size {
    catalogue: Crowd,
    gateway: Process,
    loaded: Duration,
    resident: u64,
    cpu: Vec<f64>,
}

pub(crate) fn run(args: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = house::start_agent(folder.path(), &TokenIssuer::new()?)?;
    let program = args.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let launcher = Gateway::new(program, folder.path().to_owned(), agent.address);
    let start = |count| Size::start(&launcher, Crowd::new(folder.path(), agent.address, count));
    let mut scenarios = args.agents.iter().map(|count| start(*count)).collect::<anyhow::Result<Vec<_>>>()?;
    load::in_turns(args.rounds, &mut scenarios, |scenario| scenario.call(args))?;
    let first = scenarios.first().context("no number of agents")?;
    let baseline = (first.resident, median(first.cpu.iter().copied()), first.catalogue.count());
    let rows = scenarios.iter().map(|scenario| scenario.row(baseline)).collect::<anyhow::Result<Vec<_>>>()?;
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
    println!("{}", table(&header, &rows));
    drop(scenarios);
    storm(args, start(args.storm)?)
}

impl Size {
    fn start(launcher: &Gateway, catalogue: Crowd) -> anyhow::Result<Self> {
        catalogue.write(0, 0)?;
        let started = Instant::now();
        let gateway = launcher.crowded(catalogue.file(), catalogue.count())?;
        let load_time = started.elapsed();
        let scenario = Self { catalogue, resident: 0, loaded: load_time, gateway, cpu: Vec::new() };
        scenario.invocation().try_once()?;
        // The gateway builds the search index while it serves the first calls.
        scenario.wait_for(0)?;
        std::thread::park_timeout(Duration::from_secs(3));
        Ok(Self { resident: scenario.gateway.resident()?, ..scenario })
    }

    fn invocation(&self) -> Target {
        plain(self.gateway.address, "/agents/agent-0/invoke")
    }

    fn call(&mut self, args: &Plan) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(args.seconds);
        let result = load::saturate(&self.invocation(), args.connections, time, Some(&self.gateway))?;
        ensure!(result.failed == 0, "{} of {} calls failed", result.failed, result.calls);
        self.cpu.extend(result.cpu_per_call());
        Ok(())
    }

    fn row(&self, (base_memory, base_cpu, base_count): (u64, f64, usize)) -> anyhow::Result<Vec<String>> {
        let count = self.catalogue.count();
        let more_agents = count.saturating_sub(base_count).max(1);
        let kib_per_agent = self.resident.saturating_sub(base_memory) as f64 / more_agents as f64;
        let cpu = median(self.cpu.iter().copied());
        let refresh_time = self.refresh()?;
        let filtered = Request::get("/agents?capabilities=forecasts-7&language=de&top=20");
        let ranked = post(r#"{"query":"someone who checks insurance paperwork for farmers","top":20}"#);
        let mut row = vec![
            count.to_string(),
            millis(self.loaded),
            format!("{:.1}", self.resident as f64 / 1024.0),
            if count == base_count { "–".to_owned() } else { format!("{kib_per_agent:.2}") },
            format!("{cpu:.1}"),
            format!("{:.2}", cpu / base_cpu),
            millis(refresh_time),
        ];
        for search in [filtered, ranked] {
            let latencies = searches(self.gateway.address, &search)?;
            row.extend([0.50, 0.99].map(|share| format!("{:.2}", percentile(&latencies, share) / 1e6)));
        }
        Ok(row)
    }

    /// Changes one agent in a hundred. Returns the time until the last of them appears changed.
    fn refresh(&self) -> anyhow::Result<Duration> {
        self.catalogue.write(1, self.catalogue.count().div_ceil(100))?;
        let started = Instant::now();
        self.wait_for(1)?;
        Ok(started.elapsed())
    }

    /// Waits until the last of the changed agents has the version `revision`.
    fn wait_for(&self, revision: u64) -> anyhow::Result<()> {
        let last = self.catalogue.count().div_ceil(100) - 1;
        let request = Request::get(&format!("/agents/agent-{last}"));
        let version = format!("\"1.0.{revision}\"");
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let mut connection = Connection::open(self.gateway.address)?;
            let (status, response) = connection.answer(&request)?;
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

/// Measures calls at a constant rate, first without changes and then while the whole catalogue is replaced every
/// second.
fn storm(args: &Plan, scenario: Size) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(args.storm_seconds);
    let target = scenario.invocation();
    let measure = || load::pace(&target, args.connections, args.rate, time);
    let quiet = measure()?;
    let is_over = AtomicBool::new(false);
    let (stormy, replacements) = std::thread::scope(|scope| {
        let storm = scope.spawn(|| replace(&scenario.catalogue, &is_over));
        let stormy = measure();
        is_over.store(true, Relaxed);
        let replacements = storm.join().ok().context("the thread that replaces the catalogue panicked")??;
        anyhow::Ok((stormy?, replacements))
    })?;
    let row = |name: &str, result: &load::Paced| {
        let p = |share| format!("{:.0}", percentile(&result.latencies, share) / 1e3);
        let (answered, failed) = (result.latencies.len().to_string(), result.failed.to_string());
        vec![name.to_owned(), answered, p(0.50), p(0.99), p(0.999), failed]
    };
    let name = format!("{} agents replaced {replacements} times", scenario.catalogue.count());
    let header = ["calls at a constant rate", "answered", "p50 µs", "p99 µs", "p99.9 µs", "failed"];
    println!("{}", table(&header, &[row("quiet", &quiet), row(&name, &stormy)]));
    ensure!(quiet.failed + stormy.failed == 0, "calls failed: do not use the figures above");
    Ok(())
}

/// Replaces the whole catalogue every second. Returns the number of replacements.
fn replace(catalogue: &Crowd, is_over: &AtomicBool) -> anyhow::Result<u64> {
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
fn searches(address: SocketAddr, request: &Request) -> anyhow::Result<Vec<u64>> {
    let mut connection = Connection::open(address)?;
    let mut latencies = Vec::with_capacity(SEARCHES);
    for _ in 0..SEARCHES {
        let started = Instant::now();
        let (status, response) = connection.answer(request)?;
        ensure!(status == 200, "a search failed with {status}: {}", String::from_utf8_lossy(response));
        latencies.push(u64::try_from(started.elapsed().as_nanos())?);
    }
    latencies.sort_unstable();
    Ok(latencies)
}

fn post(body: &str) -> Request {
    Request::post("/agents/search", "", body)
}

fn millis(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e3)
}
