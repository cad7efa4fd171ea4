//! `floods`: what an honest caller notices while another caller, from another address, takes all that it can get. The
//! gateway has its default limits. Each flood runs against a gateway of its own.

mod flood;
mod honest_caller;
mod setup;

use self::flood::{FLOODS, Flood};
use self::honest_caller::{HonestCaller, HonestOutcomes};
use self::setup::{Callers, start_agent, write_config};
use crate::gatepost;
use crate::memory::raise_open_file_limit;
use crate::process::{CpuCore, ServerProcess};
use crate::statistics::{markdown_table, percentile};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How much to measure. The defaults take about two minutes for each build.
#[derive(clap::Args)]
pub(crate) struct FloodsArgs {
    /// Builds of the gateway. Default: the gateway beside this program.
    programs: Vec<PathBuf>,
    /// Seconds of one flood.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Calls a second of the honest caller.
    #[arg(long, default_value_t = 40)]
    rate: u64,
    /// Only the floods whose name contains this text, and the quiet row.
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(args: &FloodsArgs) -> anyhow::Result<()> {
    raise_open_file_limit(flood::MAX_HELD_CONNECTIONS)?;
    CpuCore::Load.pin_current_thread()?;
    let programs = if args.programs.is_empty() { vec![gatepost::sibling_program()?] } else { args.programs.clone() };
    let agent = start_agent()?;
    for program in &programs {
        let program = std::fs::canonicalize(program)?;
        let mut rows = Vec::new();
        let mut quiet_p99 = f64::NAN;
        let is_chosen = |flood: &&Flood| args.only.as_deref().is_none_or(|only| flood.name.contains(only));
        let quiet = FLOODS.iter().take(1);
        for flood in quiet.chain(FLOODS.iter().skip(1).filter(is_chosen)) {
            let result = measure(flood, &program, agent, args).with_context(|| flood.name)?;
            if quiet_p99.is_nan() {
                quiet_p99 = percentile(&result.outcomes.durations, 0.99);
            }
            rows.push(result.row(flood, quiet_p99));
            eprintln!("{}: done", flood.name);
        }
        let header =
            ["flood", "honest calls", "failed", "p50 ms", "p99 ms", "p99 × quiet", "peak MiB", "flood's own calls"];
        println!("{}\n\n{}", program.display(), markdown_table(&header, &rows));
    }
    Ok(())
}

/// The result of one flood.
struct FloodResult {
    outcomes: HonestOutcomes,
    peak_kib: u64,
    /// What the calls of the flood were answered.
    flood_answers: String,
}

impl FloodResult {
    fn row(&self, flood: &Flood, quiet_p99: f64) -> Vec<String> {
        let HonestOutcomes { durations, failures, .. } = &self.outcomes;
        let millis = |share: f64| percentile(durations, share) / 1e6;
        let failed = match failures.first() {
            Some(first) => format!("{} ({first})", failures.len()),
            None => "0".to_owned(),
        };
        vec![
            flood.name.to_owned(),
            (durations.len() + failures.len()).to_string(),
            failed,
            format!("{:.1}", millis(0.5)),
            format!("{:.1}", millis(0.99)),
            format!("{:.1}", percentile(durations, 0.99) / quiet_p99),
            format!("{:.0}", self.peak_kib as f64 / 1024.0),
            self.flood_answers.clone(),
        ]
    }
}

fn measure(flood: &Flood, program: &Path, agent: SocketAddr, args: &FloodsArgs) -> anyhow::Result<FloodResult> {
    let folder = tempfile::tempdir()?;
    let config = write_config(folder.path(), agent)?;
    let callers = Callers::create(program, &config)?;
    let mut command = Command::new(program);
    command.arg("run").arg("--config").arg(&config);
    let gateway = ServerProcess::start_announcing(command, CpuCore::Proxy)?;
    let honest =
        HonestCaller { gateway: gateway.address, request: flood.honest_request(&callers), expected: flood.expected };
    honest.try_once()?;
    let running = flood.start(gateway.address, &callers)?;
    let outcomes = honest.call_for(Duration::from_secs_f64(args.seconds), args.rate)?;
    let peak_kib = gateway.peak_resident_memory()?;
    let flood_answers = running.stop();
    Ok(FloodResult { outcomes, peak_kib, flood_answers })
}
