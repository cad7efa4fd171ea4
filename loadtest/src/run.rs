//! The run: every row once a round, in an order that turns, so that a slow minute of the
//! machine falls on all of them; then the tables, the record and the plot.

use crate::figures::{median, percentile};
use crate::house::{House, Programs, Resident};
use crate::load::{self, Target, Until};
use crate::process::cores;
use crate::record::Record;
use crate::report::{self, Kept, Latency, Round, Row};
use crate::{memory, plot};
use anyhow::Context as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How much to measure. The defaults take about six minutes.
#[derive(clap::Args, serde::Serialize)]
pub(crate) struct Plan {
    /// Rounds; each measures every row once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds of one measurement; a row has three in each round.
    #[arg(long, default_value_t = 0.8)]
    seconds: f64,
    /// Calls under way at once: connections over HTTP/1.1, an eighth as many over HTTP/2.
    #[arg(long, default_value_t = 32)]
    connections: u64,
    /// Calls before memory is read a last time; a million takes minutes for each proxy.
    #[arg(long, default_value_t = 0)]
    calls: u64,
    /// Idle connections held while memory is read.
    #[arg(long, default_value_t = 10_000)]
    idle: u64,
    /// Only rows whose names hold one of these, and the agent itself.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where loadtest.json and loadtest.svg are put.
    #[arg(long, default_value = "target/loadtest")]
    #[serde(skip)]
    out: PathBuf,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) programs: Programs,
}

impl Plan {
    /// Whether a row of this name is measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn announce(&self) {
        let Self { rounds, seconds, connections, .. } = self;
        let cores = cores().len();
        let pinned = match cores {
            0 | 1 => "one core for everything",
            _ => "each proxy alone on one core, load and agent on another",
        };
        println!(
            "{cores} cores: {pinned}; medians of {rounds} rounds of {seconds} s; {connections} calls at once; \
             latency at half of each row's own calls/s\n"
        );
    }
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let idle = memory::make_room(plan.idle)?;
    let mut house = House::build(plan, idle)?;
    plan.announce();
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        house.direct.rounds.push(measure(plan, &house.direct, None)?);
        let direct = &house.direct.target;
        for row in turned(&mut house.rows, usize::try_from(round)?) {
            let seen = measure(plan, row, Some(direct));
            row.rounds.push(seen.with_context(|| format!("{}, {}", row.name, row.target.caller.name()))?);
        }
    }
    println!("{}{}", report::calls(&house.direct, &house.rows), report::late(&house.rows));
    let wanted = house.residents.iter().filter(|resident| plan.wants(resident.name));
    let kept: Vec<Kept> = wanted.map(|resident| keep(plan, resident, idle)).collect::<anyhow::Result<_>>()?;
    println!("{}", report::kept(&kept, plan.calls, idle));
    let record = Record::new(serde_json::to_value(plan)?, &house, kept);
    fs::create_dir_all(&plan.out)?;
    fs::write(plan.out.join("loadtest.json"), serde_json::to_string_pretty(&record)?)?;
    fs::write(plan.out.join("loadtest.svg"), plot::svg(&record))?;
    println!("{} holds loadtest.json and loadtest.svg", plan.out.display());
    let failed: u64 = house.rows.iter().chain([&house.direct]).map(Row::failed).sum();
    anyhow::ensure!(failed == 0, "{failed} calls failed: the figures above are not to be used");
    Ok(())
}

/// Every row once, beginning with another one each round.
fn turned(rows: &mut [Row], round: usize) -> impl Iterator<Item = &mut Row> {
    // Rows of one proxy stand side by side; the next round begins some way on.
    let middle = (round * 3).checked_rem(rows.len()).unwrap_or_default();
    let (late, early) = rows.split_at_mut(middle);
    early.iter_mut().chain(late)
}

/// As fast as answers come; then half as fast; then the agent itself as fast as that.
fn measure(plan: &Plan, row: &Row, direct: Option<&Target>) -> anyhow::Result<Round> {
    let full = load::saturate(&row.target, plan.connections, plan.time(), row.process.as_deref())?;
    let per_second = full.per_second();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "calls a second, halved")]
    let rate = (per_second / 2.0).max(1.0) as u64;
    let paced = load::pace(&row.target, plan.connections, rate, plan.time())?;
    let direct = direct.map(|direct| load::pace(direct, plan.connections, rate, plan.time())).transpose()?;
    Ok(Round {
        per_second,
        cpu: full.cpu_per_call(),
        rate,
        latency: latency(&paced.latencies),
        // None was ever free to be late: NaN counts as nothing.
        late: (percentile(&paced.late, 0.99) / 1e3).max(0.0),
        direct: direct.as_ref().map(|direct| latency(&direct.latencies)),
        failed: full.failed + paced.failed + direct.map_or(0, |direct| direct.failed),
    })
}

fn latency(sorted: &[u64]) -> Latency {
    let at = |share| percentile(sorted, share) / 1e3;
    Latency { p50: at(0.50), p99: at(0.99), p999: at(0.999) }
}

/// How long the calls before the last reading of memory may take together.
const LONGEST: Duration = Duration::from_secs(1200);

fn keep(plan: &Plan, resident: &Resident, idle: u64) -> anyhow::Result<Kept> {
    let Resident { name, process, target, starts, at_start } = resident;
    let after_rounds = process.resident()?;
    let more = load::saturate(target, plan.connections, Until { time: LONGEST, most: plan.calls }, None)?;
    anyhow::ensure!(more.calls == plan.calls && more.failed == 0, "{name}: {} of {} calls", more.calls, plan.calls);
    let after_calls = process.resident()?;
    let with_idle = memory::with_idle(process, target, idle).with_context(|| (*name).to_owned())?;
    Ok(Kept {
        name: (*name).to_owned(),
        first_answer_ms: median(starts.iter().map(|start| start.as_secs_f64() * 1e3)),
        resident_kib: [*at_start, after_rounds, after_calls, with_idle],
    })
}
