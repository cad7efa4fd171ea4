//! `keys`: the effect of the number of API keys on the time to load, memory, and the CPU time of a call. Every key
//! belongs to a caller of its own.

use crate::environment;
use crate::gatepost::{self, GatewayLauncher};
use crate::load::{self, CallTarget};
use crate::process::ServerProcess;
use crate::statistics::{markdown_table, median};
use crate::token_issuer::TokenIssuer;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How much to measure. The defaults take about a minute.
#[derive(clap::Args)]
pub(crate) struct KeysArgs {
    /// Numbers of keys; the others are compared with the first.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1_000, 1_000_000])]
    keys: Vec<usize>,
    /// Rounds; each measures every number once.
    #[arg(long, default_value_t = 7)]
    rounds: u64,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 16)]
    connections: u64,
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

pub(crate) fn run(args: &KeysArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = environment::start_agent(folder.path(), &TokenIssuer::new()?)?;
    let program = args.gatepost.clone().map_or_else(gatepost::sibling_program, Ok)?;
    let start = |keys: &usize| {
        let keys_folder = folder.path().join(keys.to_string());
        std::fs::create_dir(&keys_folder)?;
        KeyCountScenario::start(&GatewayLauncher::new(program.clone(), keys_folder, agent.address), *keys)
    };
    let mut scenarios = args.keys.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    load::measure_in_rotation(args.rounds, &mut scenarios, |scenario| scenario.measure_calls(args))?;
    let first = scenarios.first().context("no number of keys")?;
    let rows: Vec<_> = scenarios.iter().map(|scenario| scenario.row(first)).collect();
    println!("{}", markdown_table(&["keys", "loaded ms", "MiB", "bytes per key", "CPU µs/call", "× first"], &rows));
    Ok(())
}

/// A gateway with this many keys, and its measurements.
struct KeyCountScenario {
    keys: usize,
    gateway: ServerProcess,
    target: CallTarget,
    load_time: Duration,
    resident: u64,
    cpu: Vec<f64>,
}

impl KeyCountScenario {
    fn start(launcher: &GatewayLauncher, keys: usize) -> anyhow::Result<Self> {
        let (file, key) = launcher.write_guarded_config_with_keys(keys.saturating_sub(1))?;
        let started = Instant::now();
        let process = launcher.start(&file)?;
        let load_time = started.elapsed();
        let target = gatepost::api_key_target(process.address, &key);
        target.try_once()?;
        let resident = process.resident_memory()?;
        Ok(Self { keys, gateway: process, target, load_time, resident, cpu: Vec::new() })
    }

    fn measure_calls(&mut self, args: &KeysArgs) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(args.seconds);
        let result = load::saturate(&self.target, args.connections, time, Some(&self.gateway))?;
        ensure!(result.failed == 0, "{} of {} calls failed", result.failed, result.calls);
        self.cpu.extend(result.cpu_per_call());
        Ok(())
    }

    fn row(&self, first: &Self) -> Vec<String> {
        let more_keys = self.keys.saturating_sub(first.keys);
        let bytes_per_key = self.resident.saturating_sub(first.resident) as f64 * 1024.0 / more_keys.max(1) as f64;
        let ratio = median(self.cpu.iter().zip(&first.cpu).map(|(cpu, first)| cpu / first));
        vec![
            self.keys.to_string(),
            format!("{:.0}", self.load_time.as_secs_f64() * 1e3),
            format!("{:.1}", self.resident as f64 / 1024.0),
            if more_keys == 0 { "–".to_owned() } else { format!("{bytes_per_key:.0}") },
            format!("{:.1}", median(self.cpu.iter().copied())),
            format!("{ratio:.2}"),
        ]
    }
}
