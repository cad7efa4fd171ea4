//! The run: every row once a round, in an order that turns, so that a slow minute of the
//! machine falls on all of them; then the tables.

use crate::agent::EVENTS;
use crate::figures::percentile;
use crate::house::House;
use crate::load;
use crate::process::cores;
use crate::report::{self, Round, Row};
use crate::{memory, stream};
use anyhow::Context as _;
use std::path::PathBuf;
use std::time::Duration;

/// How much to measure. The defaults take about two and a half minutes.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Rounds; each measures every row once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds of one measurement; a row has two in each round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 32)]
    connections: u64,
    /// Calls a second while latency is measured.
    #[arg(long, default_value_t = 2000)]
    rate: u64,
    /// Streams read at once.
    #[arg(long, default_value_t = 20)]
    streams: u64,
    /// Calls before the gateway's memory is read a last time; 1000000 takes minutes.
    #[arg(long, default_value_t = 0)]
    calls: u64,
    /// Idle connections held while memory is read.
    #[arg(long, default_value_t = 10_000)]
    idle: u64,
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    pub(crate) gatepost: Option<PathBuf>,
}

impl Plan {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn announce(&self) {
        let Self { rounds, seconds, connections, rate, streams, .. } = self;
        let cores = cores().len();
        let pinned = match cores {
            0 | 1 => "one core for everything",
            _ => "each proxy alone on one core, load and agent on another",
        };
        println!(
            "{cores} cores: {pinned}; medians of {rounds} rounds of {seconds} s; {connections} connections; \
             latency at {rate} calls/s; {streams} streams of {EVENTS} events\n"
        );
    }
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let idle = memory::make_room(plan.idle)?;
    let mut house = House::build(plan)?;
    plan.announce();
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        let turn = usize::try_from(round)?;
        for row in turned(&mut house.rows, turn) {
            let seen = calls(plan, row).with_context(|| row.name)?;
            row.rounds.push(seen);
        }
        for row in turned(&mut house.streams, turn) {
            let seen = events(plan, row).with_context(|| row.name)?;
            row.rounds.push(seen);
        }
    }
    println!("{}", report::calls(&house.rows)?);
    println!("{}", report::streams(&house.streams)?);
    println!("{}", kept(plan, &house, idle)?);
    let failed: u64 = house.rows.iter().map(Row::failed).sum();
    anyhow::ensure!(failed == 0, "{failed} calls failed: the figures above are not to be used");
    Ok(())
}

/// Every row once, beginning with another one each round.
fn turned(rows: &mut [Row], round: usize) -> impl Iterator<Item = &mut Row> {
    let middle = round.checked_rem(rows.len()).unwrap_or_default();
    let (late, early) = rows.split_at_mut(middle);
    early.iter_mut().chain(late)
}

fn calls(plan: &Plan, row: &Row) -> anyhow::Result<Round> {
    let cpu = || row.process.as_ref().map_or(Ok(Duration::ZERO), |process| process.cpu());
    let before = cpu()?;
    let full = load::saturate(&row.target, plan.connections, plan.time(), u64::MAX)?;
    let used = cpu()?.saturating_sub(before);
    let paced = load::pace(&row.target, plan.connections, plan.rate, plan.time())?;
    Ok(Round {
        per_second: full.calls as f64 / full.took.as_secs_f64(),
        cpu: used.as_secs_f64() * 1e6 / full.calls as f64,
        p50: percentile(&paced.latencies, 0.50) / 1e3,
        p99: percentile(&paced.latencies, 0.99) / 1e3,
        failed: full.failed + paced.failed,
    })
}

fn events(plan: &Plan, row: &Row) -> anyhow::Result<Round> {
    let delays = stream::delays(&row.target, plan.streams)?;
    let (p50, p99) = (percentile(&delays, 0.50) / 1e3, percentile(&delays, 0.99) / 1e3);
    Ok(Round { per_second: 0.0, cpu: 0.0, p50, p99, failed: 0 })
}

/// How long the calls before the last reading of memory may take together.
const LONGEST: Duration = Duration::from_secs(1200);

fn kept(plan: &Plan, house: &House, idle: u64) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for (name, process, at_start) in &house.kept {
        let target = house.target(process)?;
        let after_rounds = process.resident()?;
        let more = load::saturate(target, plan.connections, LONGEST, plan.calls)?;
        anyhow::ensure!(more.calls == plan.calls, "{name}: only {} calls were made", more.calls);
        let after_calls = process.resident()?;
        let with_idle = memory::with_idle(process, target, idle)?;
        rows.push((*name, [*at_start, after_rounds, after_calls, with_idle]));
    }
    Ok(report::memory(&rows, plan.calls, idle))
}
