//! `overload`: calls at the peak rate that can be served, and at twice that rate. Two scenarios: first the agent is the
//! bottleneck (it works on a few calls at once and queues the others), then the gateway (on a core of its own, with
//! bodies that take work to check). Three tiers of callers make a third of the calls each.

mod setup;

use self::setup::{TIERS, create_key, gateway_config, start_queueing_agent};
use crate::agent::monotonic_nanos;
use crate::gatepost;
use crate::http1_client::{Http1Connection, PreparedRequest};
use crate::load::{self, join_all};
use crate::process::{CpuCore, ServerProcess};
use crate::statistics::{markdown_table, percentile};
use anyhow::{Context as _, ensure};
use rustix::thread::set_current_timer_slack;
use serde_json::json;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How much to measure. The defaults take about a minute and a half.
#[derive(clap::Args)]
pub(crate) struct OverloadArgs {
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds of the same load before each measurement, which are not counted: overload is a lasting state.
    #[arg(long, default_value_t = 5.0)]
    settle: f64,
    /// Calls that the agent works on at once, in the scenario in which it is the bottleneck.
    #[arg(long, default_value_t = 10)]
    hands: usize,
    /// Milliseconds that the agent works on a call.
    #[arg(long, default_value_t = 20)]
    work: u64,
    /// Bytes of a call's body, in the scenario in which the gateway is the bottleneck.
    #[arg(long, default_value_t = 8192)]
    body: usize,
    /// Connections of the load.
    #[arg(long, default_value_t = 192)]
    connections: u64,
    /// The gateway's program. Default: the one beside this program.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// Which of the two is the bottleneck of a scenario.
#[derive(Clone, Copy, PartialEq)]
enum Bottleneck {
    Agent,
    Gateway,
}

impl Bottleneck {
    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Gateway => "gateway",
        }
    }
}

/// What a scenario puts under load.
struct ScenarioSettings {
    bottleneck: Bottleneck,
    agent: SocketAddr,
    /// Bytes of a call's body.
    body_size: usize,
}

/// The calls of one tier: its index in [`TIERS`], and its request.
#[derive(Clone)]
struct TierRequest {
    tier: usize,
    request: PreparedRequest,
}

/// How long a load at a constant rate lasts.
#[derive(Clone, Copy)]
struct LoadPhases {
    /// The part whose calls are not counted.
    settle: Duration,
    /// The part that is measured.
    measured: Duration,
}

/// What the rows of a scenario are compared with.
struct PeakBaseline {
    /// Successful calls a second.
    per_second: f64,
    /// The 99th percentile of the durations of calls at that rate, in nanoseconds.
    p99: f64,
}

/// A gateway under load, and one prepared request of each tier.
struct OverloadScenario {
    bottleneck: Bottleneck,
    gateway: ServerProcess,
    requests: [TierRequest; 3],
}

/// The outcomes of the calls of one connection, or of all: durations in nanoseconds.
#[derive(Default)]
struct OverloadOutcomes {
    answered: Vec<u64>,
    refused: [Vec<u64>; 3],
    offered: [u64; 3],
    failed: u64,
}

impl OverloadScenario {
    fn start(settings: &ScenarioSettings, program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let ScenarioSettings { bottleneck, agent, body_size } = *settings;
        let folder = folder.join(bottleneck.name());
        std::fs::create_dir(&folder)?;
        let inputs = json!({
            "type": "object", "required": ["words"],
            "properties": { "words": { "type": "array", "items": { "type": "string", "pattern": "^[a-z]+$" } } },
        });
        let document = json!([{
            "id": "worker", "name": "worker", "endpoint": format!("http://{agent}/"),
            "authentication": { "type": "api_key" }, "operations": [{ "name": "ask", "inputs": inputs }],
        }]);
        std::fs::write(folder.join("agents.json"), document.to_string())?;
        let config = folder.join("gatepost.yaml");
        std::fs::write(&config, gateway_config(bottleneck == Bottleneck::Agent))?;
        let words = json!({ "words": vec!["gatepost"; body_size / 11 + 1] }).to_string();
        let request = |tier: usize, name: &str| {
            let header = format!("x-api-key: {}\r\n", create_key(program, &config, name)?);
            let request = PreparedRequest::post_json("/agents/worker/invoke", &header, &words);
            anyhow::Ok(TierRequest { tier, request })
        };
        let [(low, _), (middle, _), (high, _)] = TIERS;
        let requests = [request(0, low)?, request(1, middle)?, request(2, high)?];
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(&config);
        Ok(Self { bottleneck, gateway: ServerProcess::start_announcing(command, CpuCore::Proxy)?, requests })
    }

    /// Measures the peak rate, and then the outcomes of calls at that rate and at twice that rate.
    fn measure(&self, args: &OverloadArgs) -> anyhow::Result<Vec<Vec<String>>> {
        let phases = LoadPhases {
            settle: Duration::from_secs_f64(args.settle),
            measured: Duration::from_secs_f64(args.seconds),
        };
        let mut connection = Http1Connection::connect_plain(self.gateway.address)?;
        let (status, response) = connection.call_and_read(&self.request_of_connection(0).request)?;
        ensure!(status == 200, "the first call failed:\n{}", String::from_utf8_lossy(response));
        let peak = self.measure_peak(args, phases.settle + phases.measured)?;
        eprintln!("{}: peak of {peak:.0} calls/s", self.bottleneck.name());
        let mut rows = Vec::new();
        let mut p99_at_peak = None;
        for factor in [1, 2] {
            let rate = peak * f64::from(factor);
            let outcomes = self.offer_calls(rate, args.connections, phases)?;
            let p99 = percentile(&outcomes.answered, 0.99);
            let baseline = PeakBaseline { per_second: peak, p99: *p99_at_peak.get_or_insert(p99) };
            rows.push(self.row(factor, &outcomes, phases.measured, &baseline));
        }
        Ok(rows)
    }

    /// Returns the successful calls a second of as many callers as the agent and its concurrency limit can serve.
    fn measure_peak(&self, args: &OverloadArgs, time: Duration) -> anyhow::Result<f64> {
        let callers = if self.bottleneck == Bottleneck::Agent { 2 * u64::try_from(args.hands)? } else { 32 };
        let end = monotonic_nanos() + u64::try_from(time.as_nanos())?;
        let threads = (0..callers).map(|index| {
            let (address, call) = (self.gateway.address, self.request_of_connection(index).request.clone());
            std::thread::spawn(move || {
                let mut connection = Http1Connection::connect_plain(address)?;
                let mut successes = 0u64;
                while monotonic_nanos() < end {
                    match connection.call_and_read(&call) {
                        Ok((200, _)) => successes += 1,
                        Ok(_) => {}
                        Err(_) => connection = Http1Connection::connect_plain(address)?,
                    }
                }
                Ok(successes)
            })
        });
        let answered: u64 = join_all(threads.collect())?.into_iter().sum();
        Ok(answered as f64 / time.as_secs_f64())
    }

    /// Returns the request of the connection with this index.
    fn request_of_connection(&self, index: u64) -> &TierRequest {
        let [low, middle, high] = &self.requests;
        match index % 3 {
            0 => low,
            1 => middle,
            _ => high,
        }
    }

    /// Makes `rate` calls a second, spread over the connections.
    fn offer_calls(&self, rate: f64, connections: u64, phases: LoadPhases) -> anyhow::Result<OverloadOutcomes> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some microseconds")]
        let period = (1e9 / rate.max(1.0)) as u64;
        let first = monotonic_nanos() + 50_000_000;
        let count_from = first + u64::try_from(phases.settle.as_nanos())?;
        let end = count_from + u64::try_from(phases.measured.as_nanos())?;
        let threads = (0..connections).map(|index| {
            let (address, call) = (self.gateway.address, self.request_of_connection(index).clone());
            let step = usize::try_from(period * connections).unwrap_or(usize::MAX);
            let due = (first + index * period..end).step_by(step);
            std::thread::spawn(move || run_paced_connection(address, &call, due, count_from))
        });
        let mut total = OverloadOutcomes::default();
        for outcomes in join_all(threads.collect())? {
            total.answered.extend(outcomes.answered);
            total.failed += outcomes.failed;
            for (refused, more) in total.refused.iter_mut().zip(outcomes.refused) {
                refused.extend(more);
            }
            for (offered, more) in total.offered.iter_mut().zip(outcomes.offered) {
                *offered += more;
            }
        }
        total.answered.sort_unstable();
        Ok(total)
    }

    fn row(&self, factor: u32, outcomes: &OverloadOutcomes, time: Duration, baseline: &PeakBaseline) -> Vec<String> {
        let per_second = |count: u64| count as f64 / time.as_secs_f64();
        let millis = |nanos: f64| if nanos.is_nan() { "–".to_owned() } else { format!("{:.2}", nanos / 1e6) };
        let answered = per_second(outcomes.answered.len() as u64);
        let mut refused: Vec<u64> = outcomes.refused.iter().flatten().copied().collect();
        refused.sort_unstable();
        let p99 = percentile(&outcomes.answered, 0.99);
        let mut cells = vec![
            format!("{}, {factor}×", self.bottleneck.name()),
            format!("{:.0}", per_second(outcomes.offered.iter().sum())),
            format!("{answered:.0}"),
            format!("{:.0}", answered / baseline.per_second * 100.0),
            millis(percentile(&outcomes.answered, 0.5)),
            millis(p99),
            format!("{:.2}", p99 / baseline.p99),
            format!("{:.0}", per_second(refused.len() as u64)),
            millis(percentile(&refused, 0.5)),
            millis(percentile(&refused, 0.99)),
        ];
        let share = |(refused, offered): (&Vec<u64>, u64)| {
            format!("{:.0} %", refused.len() as f64 * 100.0 / offered.max(1) as f64)
        };
        cells.extend(outcomes.refused.iter().zip(outcomes.offered).map(share));
        cells.push(outcomes.failed.to_string());
        cells
    }
}

pub(crate) fn run(args: &OverloadArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let program = args.gatepost.clone().map_or_else(gatepost::sibling_program, Ok)?;
    CpuCore::Load.pin_current_thread()?;
    let slow_agent = start_queueing_agent(args.hands, Duration::from_millis(args.work))?;
    let fast_agent = start_queueing_agent(usize::MAX, Duration::ZERO)?;
    let mut rows = Vec::new();
    let scenarios = [
        ScenarioSettings { bottleneck: Bottleneck::Agent, agent: slow_agent, body_size: 16 },
        ScenarioSettings { bottleneck: Bottleneck::Gateway, agent: fast_agent, body_size: args.body },
    ];
    for settings in scenarios {
        let name = settings.bottleneck.name();
        let scenario = OverloadScenario::start(&settings, &program, folder.path())?;
        rows.extend(scenario.measure(args).with_context(|| format!("the {name} is the bottleneck"))?);
    }
    let header = [
        "bottleneck, load",
        "offered/s",
        "answered/s",
        "% of peak",
        "p50 ms",
        "p99 ms",
        "p99 × 1×",
        "refused/s",
        "refused p50 ms",
        "refused p99 ms",
        "low refused",
        "middle refused",
        "high refused",
        "failed",
    ];
    println!("{}", markdown_table(&header, &rows));
    Ok(())
}

/// Makes the calls of one connection. The duration of a call counts from when it was due, even if the connection was
/// busy.
fn run_paced_connection(
    address: SocketAddr,
    call: &TierRequest,
    due: impl Iterator<Item = u64>,
    count_from: u64,
) -> anyhow::Result<OverloadOutcomes> {
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut connection = Http1Connection::connect_plain(address)?;
    let mut outcomes = OverloadOutcomes::default();
    for moment in due {
        load::wait_until(moment)?;
        let status = connection.call_and_read(&call.request).map(|(status, _)| status);
        if status.is_err() {
            connection = Http1Connection::connect_plain(address)?;
        }
        if moment < count_from {
            continue;
        }
        let duration = monotonic_nanos().saturating_sub(moment);
        if let Some(offered) = outcomes.offered.get_mut(call.tier) {
            *offered += 1;
        }
        match (status, outcomes.refused.get_mut(call.tier)) {
            (Ok(200), _) => outcomes.answered.push(duration),
            (Ok(503), Some(refused)) => refused.push(duration),
            _ => outcomes.failed += 1,
        }
    }
    Ok(outcomes)
}
