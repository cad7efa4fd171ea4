//! `run`: measures every row once a round, in a rotating order, so that a slow minute of the machine affects all rows
//! alike. Then prints the tables and writes the record and the plot.

use crate::environment::{MeasuredProxy, ProgramPaths, RunSetup};
use crate::load::{self, CallTarget, LoadLimit};
use crate::process::available_cores;
use crate::report::{self, LatencyPercentiles, ProcessMemory, ReportRow, RoundResult};
use crate::run_record::RunRecord;
use crate::statistics::{median, percentile};
use crate::{memory, plot};
use anyhow::Context as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How much to measure. The defaults take about six minutes.
#[derive(clap::Args, serde::Serialize)]
pub(crate) struct RunArgs {
    /// Rounds; each measures every row once.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// Seconds of one measurement; a row has three measurements in each round.
    #[arg(long, default_value_t = 0.8)]
    seconds: f64,
    /// Concurrent calls: one connection for each over HTTP/1.1, an eighth as many connections over HTTP/2.
    #[arg(long, default_value_t = 32)]
    connections: u64,
    /// Additional calls before the last reading of memory; a million takes minutes for each proxy.
    #[arg(long, default_value_t = 0)]
    calls: u64,
    /// Idle connections held while memory is read.
    #[arg(long, default_value_t = 10_000)]
    idle: u64,
    /// Measure only the rows whose names contain one of these strings, and the agent itself.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The folder for loadtest.json and loadtest.svg.
    #[arg(long, default_value = "target/loadtest")]
    #[serde(skip)]
    out: PathBuf,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) programs: ProgramPaths,
}

impl RunArgs {
    /// Whether the row of this name is measured.
    pub(crate) fn includes_row(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    fn measurement_time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn print_header(&self) {
        let Self { rounds, seconds, connections, .. } = self;
        let cores = available_cores().len();
        let pinned = match cores {
            0 | 1 => "one core for everything",
            _ => "each proxy alone on one core, load and agent on another",
        };
        println!(
            "{cores} cores: {pinned}; medians of {rounds} rounds of {seconds} s; {connections} concurrent calls; \
             latency at half of each row's own calls/s\n"
        );
    }
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let idle = memory::raise_open_file_limit(args.idle)?;
    let mut setup = RunSetup::start(&args.programs, idle, |name| args.includes_row(name))?;
    args.print_header();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        setup.direct.rounds.push(measure(args, &setup.direct, None)?);
        let direct = &setup.direct.target;
        for row in rotated_rows(&mut setup.rows, usize::try_from(round)?) {
            let result = measure(args, row, Some(direct));
            row.rounds.push(result.with_context(|| format!("{}, {}", row.name, row.target.protocol.name()))?);
        }
    }
    println!("{}{}", report::call_tables(&setup.direct, &setup.rows), report::late_load_warning(&setup.rows));
    let proxies = setup.proxies.iter().filter(|proxy| args.includes_row(proxy.name));
    let memory: Vec<ProcessMemory> =
        proxies.map(|proxy| measure_memory(args, proxy, idle)).collect::<anyhow::Result<_>>()?;
    println!("{}", report::memory_table(&memory, args.calls, idle));
    let record = RunRecord::new(serde_json::to_value(args)?, &setup, memory);
    fs::create_dir_all(&args.out)?;
    fs::write(args.out.join("loadtest.json"), serde_json::to_string_pretty(&record)?)?;
    fs::write(args.out.join("loadtest.svg"), plot::render_svg(&record))?;
    println!("loadtest.json and loadtest.svg are in {}", args.out.display());
    let failed: u64 = setup.rows.iter().chain([&setup.direct]).map(ReportRow::failed_calls).sum();
    anyhow::ensure!(failed == 0, "{failed} calls failed: do not use the figures above");
    Ok(())
}

/// Returns every row once, in an order that starts at another row each round.
fn rotated_rows(rows: &mut [ReportRow], round: usize) -> impl Iterator<Item = &mut ReportRow> {
    // Neighbouring rows belong to one proxy, so the start moves by three rows.
    let middle = (round * 3).checked_rem(rows.len()).unwrap_or_default();
    let (last, first) = rows.split_at_mut(middle);
    first.iter_mut().chain(last)
}

/// Measures a row at saturation, then at half that rate, and then the agent itself at the halved rate.
fn measure(args: &RunArgs, row: &ReportRow, direct: Option<&CallTarget>) -> anyhow::Result<RoundResult> {
    let saturated = load::saturate(&row.target, args.connections, args.measurement_time(), row.process.as_deref())?;
    let per_second = saturated.per_second();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "calls a second, halved")]
    let rate = (per_second / 2.0).max(1.0) as u64;
    let paced = load::run_at_rate(&row.target, args.connections, rate, args.measurement_time())?;
    let direct =
        direct.map(|direct| load::run_at_rate(direct, args.connections, rate, args.measurement_time())).transpose()?;
    Ok(RoundResult {
        per_second,
        cpu: saturated.cpu_per_call(),
        rate,
        latency: latency_percentiles(&paced.latencies),
        // Without a call that could be late, the percentile is NaN and the lateness 0.
        lateness: (percentile(&paced.lateness, 0.99) / 1e3).max(0.0),
        direct: direct.as_ref().map(|direct| latency_percentiles(&direct.latencies)),
        failed: saturated.failed + paced.failed + direct.map_or(0, |direct| direct.failed),
    })
}

fn latency_percentiles(sorted: &[u64]) -> LatencyPercentiles {
    let microseconds = |share| percentile(sorted, share) / 1e3;
    LatencyPercentiles { p50: microseconds(0.50), p99: microseconds(0.99), p999: microseconds(0.999) }
}

/// How long the additional calls before the last reading of memory may take together.
const MEMORY_LOAD_TIMEOUT: Duration = Duration::from_secs(1200);

fn measure_memory(args: &RunArgs, proxy: &MeasuredProxy, idle: u64) -> anyhow::Result<ProcessMemory> {
    let MeasuredProxy { name, process, target, starts, at_start } = proxy;
    let after_rounds = process.resident_memory()?;
    let more =
        load::saturate(target, args.connections, LoadLimit { time: MEMORY_LOAD_TIMEOUT, max_calls: args.calls }, None)?;
    anyhow::ensure!(more.calls == args.calls && more.failed == 0, "{name}: {} of {} calls", more.calls, args.calls);
    let after_calls = process.resident_memory()?;
    let with_idle =
        memory::resident_with_idle_connections(process, target, idle).with_context(|| (*name).to_owned())?;
    Ok(ProcessMemory {
        name: (*name).to_owned(),
        first_answer_ms: median(starts.iter().map(|start| start.as_secs_f64() * 1e3)),
        resident_kib: [*at_start, after_rounds, after_calls, with_idle],
    })
}
