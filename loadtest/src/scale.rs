//! What the number of agents changes: time to load and to refresh, memory, CPU of a call, searches; and calls while the
//! whole catalogue is replaced again and again.

use crate::client::{Connection, Request};
use crate::crowd::Crowd;
use crate::figures::{median, percentile, table};
use crate::gatepost::{self, Gateway, plain};
use crate::house;
use crate::load::{self, Target};
use crate::process::Process;
use crate::token::Issuer;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Searches of each kind.
const SEARCHES: usize = 200;
/// How long a change may take to be seen.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much to measure. The defaults take about two minutes.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Numbers of agents; the first is what the others are compared with.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 100_000])]
    agents: Vec<usize>,
    /// Rounds of calls; each measures every size once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 16)]
    connections: u64,
    /// Agents in the catalogue that is replaced every second.
    #[arg(long, default_value_t = 10_000)]
    storm: usize,
    /// Seconds of the storm, and of the quiet before it.
    #[arg(long, default_value_t = 15.0)]
    storm_seconds: f64,
    /// Calls a second while latency is measured.
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// One number of agents, and what was seen of it.
struct Size {
    crowd: Crowd,
    gateway: Process,
    loaded: Duration,
    resident: u64,
    cpu: Vec<f64>,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = house::start_agent(folder.path(), &Issuer::new()?)?;
    let program = plan.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let gateway = Gateway::new(program, folder.path().to_owned(), agent.address);
    let start = |count| Size::start(&gateway, Crowd::new(folder.path(), agent.address, count));
    let mut sizes = plan.agents.iter().map(|count| start(*count)).collect::<anyhow::Result<Vec<_>>>()?;
    load::in_turns(plan.rounds, &mut sizes, |size| size.call(plan))?;
    let first = sizes.first().context("no number of agents")?;
    let (least, bare) = (first.resident, (median(first.cpu.iter().copied()), first.crowd.count()));
    let rows = sizes.iter().map(|size| size.row(least, bare)).collect::<anyhow::Result<Vec<_>>>()?;
    let head = [
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
    println!("{}", table(&head, &rows));
    drop(sizes);
    storm(plan, start(plan.storm)?)
}

impl Size {
    fn start(gateway: &Gateway, crowd: Crowd) -> anyhow::Result<Self> {
        crowd.write(0, 0)?;
        let began = Instant::now();
        let gateway = gateway.crowded(crowd.file(), crowd.count())?;
        let loaded = began.elapsed();
        let size = Self { crowd, resident: 0, loaded, gateway, cpu: Vec::new() };
        size.invocation().try_once()?;
        // The index is made beside the first calls.
        size.wait_for(0)?;
        std::thread::park_timeout(Duration::from_secs(3));
        Ok(Self { resident: size.gateway.resident()?, ..size })
    }

    fn invocation(&self) -> Target {
        plain(self.gateway.address, "/agents/agent-0/invoke")
    }

    fn call(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(plan.seconds);
        let seen = load::saturate(&self.invocation(), plan.connections, time, Some(&self.gateway))?;
        ensure!(seen.failed == 0, "{} of {} calls failed", seen.failed, seen.calls);
        self.cpu.extend(seen.cpu_per_call());
        Ok(())
    }

    fn row(&self, least: u64, (bare, fewest): (f64, usize)) -> anyhow::Result<Vec<String>> {
        let count = self.crowd.count();
        let each = self.resident.saturating_sub(least) as f64 / count.saturating_sub(fewest).max(1) as f64;
        let cpu = median(self.cpu.iter().copied());
        let refreshed = self.refresh()?;
        let filtered = Request::get("/agents?capabilities=forecasts-7&language=de&top=20");
        let ranked = post(r#"{"query":"someone who checks insurance paperwork for farmers","top":20}"#);
        let mut row = vec![
            count.to_string(),
            millis(self.loaded),
            format!("{:.1}", self.resident as f64 / 1024.0),
            if count == fewest { "–".to_owned() } else { format!("{each:.2}") },
            format!("{cpu:.1}"),
            format!("{:.2}", cpu / bare),
            millis(refreshed),
        ];
        for search in [filtered, ranked] {
            let took = searches(self.gateway.address, &search)?;
            row.extend([0.50, 0.99].map(|share| format!("{:.2}", percentile(&took, share) / 1e6)));
        }
        Ok(row)
    }

    /// Changes one agent in a hundred; the time until the last of them is seen changed.
    fn refresh(&self) -> anyhow::Result<Duration> {
        self.crowd.write(1, self.crowd.count().div_ceil(100))?;
        let began = Instant::now();
        self.wait_for(1)?;
        Ok(began.elapsed())
    }

    fn wait_for(&self, edition: u64) -> anyhow::Result<()> {
        let last = self.crowd.count().div_ceil(100) - 1;
        let request = Request::get(&format!("/agents/agent-{last}"));
        let version = format!("\"1.0.{edition}\"");
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let mut connection = Connection::open(self.gateway.address)?;
            let (status, answer) = connection.answer(&request)?;
            ensure!(status == 200, "the directory answered {status}: {}", String::from_utf8_lossy(answer));
            if String::from_utf8_lossy(answer).contains(&version) {
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
        anyhow::bail!("version {version} was not seen")
    }
}

/// Calls while the whole catalogue is replaced every second, beside calls while it is not.
fn storm(plan: &Plan, size: Size) -> anyhow::Result<()> {
    let time = Duration::from_secs_f64(plan.storm_seconds);
    let target = size.invocation();
    let paced = || load::pace(&target, plan.connections, plan.rate, time);
    let quiet = paced()?;
    let over = AtomicBool::new(false);
    let (stormy, replaced) = std::thread::scope(|scope| {
        let storm = scope.spawn(|| replace(&size.crowd, &over));
        let stormy = paced();
        over.store(true, Relaxed);
        let replaced = storm.join().ok().context("the storm panicked")??;
        anyhow::Ok((stormy?, replaced))
    })?;
    let line = |name: &str, seen: &load::Paced| {
        let p = |share| format!("{:.0}", percentile(&seen.latencies, share) / 1e3);
        vec![name.to_owned(), seen.latencies.len().to_string(), p(0.50), p(0.99), p(0.999), seen.failed.to_string()]
    };
    let named = format!("{} agents replaced {replaced} times", size.crowd.count());
    let head = ["calls at a constant rate", "answered", "p50 µs", "p99 µs", "p99.9 µs", "failed"];
    println!("{}", table(&head, &[line("quiet", &quiet), line(&named, &stormy)]));
    ensure!(quiet.failed + stormy.failed == 0, "calls failed: the figures above are not to be used");
    Ok(())
}

fn replace(crowd: &Crowd, over: &AtomicBool) -> anyhow::Result<u64> {
    let mut edition = 1;
    while !over.load(Relaxed) {
        let began = Instant::now();
        edition += 1;
        crowd.write(edition, crowd.count())?;
        std::thread::park_timeout(Duration::from_secs(1).saturating_sub(began.elapsed()));
    }
    Ok(edition - 1)
}

/// How long each search took, in nanoseconds, sorted.
fn searches(address: SocketAddr, request: &Request) -> anyhow::Result<Vec<u64>> {
    let mut connection = Connection::open(address)?;
    let mut took = Vec::with_capacity(SEARCHES);
    for _ in 0..SEARCHES {
        let began = Instant::now();
        let (status, answer) = connection.answer(request)?;
        ensure!(status == 200, "a search was answered {status}: {}", String::from_utf8_lossy(answer));
        took.push(u64::try_from(began.elapsed().as_nanos())?);
    }
    took.sort_unstable();
    Ok(took)
}

fn post(body: &str) -> Request {
    Request::post("/agents/search", "", body)
}

fn millis(time: Duration) -> String {
    format!("{:.0}", time.as_secs_f64() * 1e3)
}
