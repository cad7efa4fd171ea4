//! `shared`: three gateways that share their limits in Redis, beside one gateway and three gateways with limits of their
//! own: the CPU time of a call, trips to Redis for each call, and by how many calls the gateways exceed a limit. Three
//! gateways without Redis show what it costs that three processes serve the calls of one.

mod pair_load;

use self::pair_load::{PairLoad, PairResult};
use crate::environment;
use crate::gatepost::{GatewayLauncher, LimitedGateway, LimitedSetup, sibling_program};
use crate::redis_server::RedisServer;
use crate::statistics::{markdown_table, median};
use crate::token_issuer::TokenIssuer;
use anyhow::{Context as _, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Gateways that share a limit.
const GATEWAYS: u64 = 3;
/// Callers that exceed their limit in the last measurement.
const EAGER_CALLERS: usize = 4;
/// Share of its limit up to which a caller calls while CPU time and trips are measured.
const LOAD_SHARE: f64 = 0.4;

/// How much to measure. The defaults take about three minutes.
#[derive(clap::Args)]
pub(crate) struct SharedArgs {
    /// Calls a second of one caller to one agent, and to all agents, that the limits allow; a row for each number.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000])]
    limits: Vec<u64>,
    /// Agents.
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// Callers, each with a key.
    #[arg(long, default_value_t = 1_000)]
    callers: usize,
    /// Rounds; each measures one gateway, three without and three with Redis.
    #[arg(long, default_value_t = 7)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Concurrent calls.
    #[arg(long, default_value_t = 18)]
    connections: usize,
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

pub(crate) fn run(args: &SharedArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = environment::start_agent(folder.path(), &TokenIssuer::new()?)?;
    let program = args.gatepost.clone().map_or_else(sibling_program, Ok)?;
    let launcher = GatewayLauncher::new(program, folder.path().to_owned(), agent.address);
    let setup = launcher.write_limited_setup(args.agents, args.callers)?;
    let rows = args.limits.iter().map(|limit| measure_limit(args, &launcher, &setup, *limit));
    let rows = rows.collect::<anyhow::Result<Vec<_>>>()?;
    let header = [
        "limit",
        "gateways",
        "calls/s",
        "CPU µs/call",
        "× one alone",
        "× three apart",
        "trips per call",
        "exceeded by",
        "allowed",
    ];
    println!("{}", markdown_table(&header, &rows.concat()));
    Ok(())
}

/// The measurements of gateways that are called together.
struct Side {
    gateways: Vec<LimitedGateway>,
    calls_per_second: Vec<f64>,
    cpu: Vec<f64>,
    trips: Vec<f64>,
}

impl Side {
    fn new(gateways: Vec<LimitedGateway>) -> Self {
        Self { gateways, calls_per_second: Vec::new(), cpu: Vec::new(), trips: Vec::new() }
    }

    fn cpu_time(&self) -> anyhow::Result<Duration> {
        self.gateways.iter().map(|gateway| gateway.process.cpu_time()).sum()
    }

    fn trip_count(&self) -> anyhow::Result<f64> {
        self.gateways.iter().map(LimitedGateway::trips).sum()
    }

    fn measure(&mut self, load: &PairLoad<'_>) -> anyhow::Result<()> {
        let (cpu_before, trips_before) = (self.cpu_time()?, self.trip_count()?);
        let result = load.run(&self.gateways)?;
        let (cpu, trips) = (self.cpu_time()?.saturating_sub(cpu_before), self.trip_count()? - trips_before);
        let PairResult { admitted, refused, failed, elapsed } = result;
        let calls: u64 = admitted.iter().sum();
        ensure!(refused + failed == 0, "{refused} calls were refused and {failed} failed, of {calls}");
        self.calls_per_second.push(calls as f64 / elapsed.as_secs_f64());
        self.cpu.push(cpu.as_secs_f64() * 1e6 / calls as f64);
        self.trips.push(trips / calls as f64);
        Ok(())
    }
}

fn measure_limit(
    args: &SharedArgs,
    launcher: &GatewayLauncher,
    setup: &LimitedSetup,
    limit: u64,
) -> anyhow::Result<Vec<Vec<String>>> {
    let redis = RedisServer::start()?;
    let start = |count: u64, state: Option<SocketAddr>| {
        let gateways = (0..count).map(|_| launcher.start_limited(setup, limit, state));
        anyhow::Ok(Side::new(gateways.collect::<anyhow::Result<Vec<_>>>()?))
    };
    let (mut alone, mut apart) = (start(1, None)?, start(GATEWAYS, None)?);
    let mut shared = start(GATEWAYS, Some(redis.address))?;
    wait_until_known(&shared)?;
    let rate = limit as f64 * args.callers as f64 * LOAD_SHARE;
    let load = PairLoad {
        setup,
        callers: args.callers,
        connections: args.connections,
        rate: Some(rate),
        time: Duration::from_secs_f64(args.seconds),
    };
    for round in 0..args.rounds {
        eprintln!("{limit}/s: round {} of {}", round + 1, args.rounds);
        let mut sides = [&mut alone, &mut apart, &mut shared];
        sides.rotate_left(usize::try_from(round % 3)?);
        for side in sides {
            side.measure(&load)?;
        }
    }
    let eager = PairLoad { callers: EAGER_CALLERS, rate: None, ..load };
    // Until the buckets are full again.
    std::thread::park_timeout(Duration::from_secs(2));
    let result = eager.run(&shared.gateways)?;
    ensure!(result.failed == 0, "{} calls failed", result.failed);
    // A bucket holds the calls of a second.
    let allowed = limit as f64 * (1.0 + result.elapsed.as_secs_f64());
    let most = result.admitted.iter().max().copied().context("no caller")?;
    let exceeded = (most as f64 - allowed).max(0.0);
    let bound = GATEWAYS * (limit / (4 * GATEWAYS)).max(1);
    ensure!(exceeded <= bound as f64, "the limit was exceeded by {exceeded} calls; {bound} are allowed");
    let ratio = |side: &Side, other: &Side| {
        format!("{:.3}", median(side.cpu.iter().zip(&other.cpu).map(|(cpu, other)| cpu / other)))
    };
    let none = || "–".to_owned();
    let name = format!("{limit}/s");
    Ok(vec![
        row(&name, "1 alone", &alone, [none(), none(), none(), none(), none()]),
        row(&name, "3 apart", &apart, [ratio(&apart, &alone), none(), none(), none(), none()]),
        row(
            &name,
            "3 shared",
            &shared,
            [
                ratio(&shared, &alone),
                ratio(&shared, &apart),
                format!("{:.4}", median(shared.trips.iter().copied())),
                if result.refused == 0 { "not reached".to_owned() } else { format!("{exceeded:.0}") },
                bound.to_string(),
            ],
        ),
    ])
}

fn row(limit: &str, gateways: &str, side: &Side, rest: [String; 5]) -> Vec<String> {
    let mut row = vec![
        limit.to_owned(),
        gateways.to_owned(),
        format!("{:.0}", median(side.calls_per_second.iter().copied())),
        format!("{:.1}", median(side.cpu.iter().copied())),
    ];
    row.extend(rest);
    row
}

/// Waits until each gateway has counted the others.
fn wait_until_known(side: &Side) -> anyhow::Result<()> {
    for _ in 0..100 {
        let counts = side.gateways.iter().map(LimitedGateway::known_gateways).collect::<anyhow::Result<Vec<_>>>()?;
        if counts.iter().all(|count| *count == GATEWAYS as f64) {
            return Ok(());
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    anyhow::bail!("the gateways do not share their state")
}
