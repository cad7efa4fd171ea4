//! What the number of API keys changes: the time to load, memory, CPU of a call. Every key has a caller of its own.

use crate::figures::{median, table};
use crate::gatepost::{self, Gateway};
use crate::house;
use crate::load::{self, Target};
use crate::process::Process;
use crate::token::Issuer;
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How much to measure. The defaults take about a minute.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Numbers of keys; the first is what the others are compared with.
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
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// A gateway that knows so many keys, and what was seen of it.
struct Size {
    keys: usize,
    gateway: Process,
    target: Target,
    loaded: Duration,
    resident: u64,
    cpu: Vec<f64>,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let agent = house::start_agent(folder.path(), &Issuer::new()?)?;
    let program = plan.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    let start = |keys: &usize| {
        let own = folder.path().join(keys.to_string());
        std::fs::create_dir(&own)?;
        Size::start(&Gateway::new(program.clone(), own, agent.address), *keys)
    };
    let mut sizes = plan.keys.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    load::in_turns(plan.rounds, &mut sizes, |size| size.call(plan))?;
    let first = sizes.first().context("no number of keys")?;
    let rows: Vec<_> = sizes.iter().map(|size| size.row(first)).collect();
    println!("{}", table(&["keys", "loaded ms", "MiB", "bytes per key", "CPU µs/call", "× first"], &rows));
    Ok(())
}

impl Size {
    fn start(gateway: &Gateway, keys: usize) -> anyhow::Result<Self> {
        let (file, key) = gateway.keys_among(keys.saturating_sub(1))?;
        let began = Instant::now();
        let process = gateway.start(&file)?;
        let loaded = began.elapsed();
        let target = gatepost::keyed(process.address, &key);
        target.try_once()?;
        let resident = process.resident()?;
        Ok(Self { keys, gateway: process, target, loaded, resident, cpu: Vec::new() })
    }

    fn call(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(plan.seconds);
        let seen = load::saturate(&self.target, plan.connections, time, Some(&self.gateway))?;
        ensure!(seen.failed == 0, "{} of {} calls failed", seen.failed, seen.calls);
        self.cpu.extend(seen.cpu_per_call());
        Ok(())
    }

    fn row(&self, first: &Self) -> Vec<String> {
        let more = self.keys.saturating_sub(first.keys);
        let each = self.resident.saturating_sub(first.resident) as f64 * 1024.0 / more.max(1) as f64;
        let ratio = median(self.cpu.iter().zip(&first.cpu).map(|(cpu, first)| cpu / first));
        vec![
            self.keys.to_string(),
            format!("{:.0}", self.loaded.as_secs_f64() * 1e3),
            format!("{:.1}", self.resident as f64 / 1024.0),
            if more == 0 { "–".to_owned() } else { format!("{each:.0}") },
            format!("{:.1}", median(self.cpu.iter().copied())),
            format!("{ratio:.2}"),
        ]
    }
}
