//! What overload does: calls at what can be answered, and at twice that, whatever becomes of them. Once the agent is what
//! everybody waits for (it works on a few calls at once and has the others wait), once the gateway (on a core of its own,
//! with bodies that are work to check). Three tiers of callers call, each a third of the calls.

mod place;

use self::place::{agent, configuration, key};
use crate::agent::now;
use crate::client::{Connection, Request};
use crate::figures::{percentile, table};
use crate::gatepost;
use crate::load::join;
use crate::process::{Core, Process};
use anyhow::{Context as _, ensure};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec};
use serde_json::json;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The tiers, the lowest first, each with its priority.
const TIERS: [(&str, u8); 3] = [("low", 1), ("middle", 5), ("high", 9)];

/// How much to measure. The defaults take about a minute and a half.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds of the same load before it, which are not counted: overload is what lasts.
    #[arg(long, default_value_t = 5.0)]
    settle: f64,
    /// Calls that the agent works on at once, where it is what everybody waits for.
    #[arg(long, default_value_t = 10)]
    hands: usize,
    /// Milliseconds that each of them takes.
    #[arg(long, default_value_t = 20)]
    work: u64,
    /// Bytes of a call's body, where the gateway is what everybody waits for.
    #[arg(long, default_value_t = 8192)]
    body: usize,
    /// Connections of the load.
    #[arg(long, default_value_t = 192)]
    connections: u64,
    /// The gateway's program; beside this one unless given.
    #[arg(long)]
    gatepost: Option<PathBuf>,
}

/// A gateway under load, and one prepared call of each tier.
struct Scene {
    name: &'static str,
    gateway: Process,
    calls: [Request; 3],
}

/// What became of the calls of one connection, or of all: spans in nanoseconds.
#[derive(Default)]
struct Seen {
    answered: Vec<u64>,
    refused: [Vec<u64>; 3],
    offered: [u64; 3],
    failed: u64,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let program = plan.gatepost.clone().map_or_else(gatepost::beside, Ok)?;
    Core::Load.take()?;
    let slow = agent(plan.hands, Duration::from_millis(plan.work))?;
    let quick = agent(usize::MAX, Duration::ZERO)?;
    let mut rows = Vec::new();
    for (name, agent, body) in [("agent", slow, 16), ("gateway", quick, plan.body)] {
        let scene = Scene::start(name, (&program, folder.path()), agent, body)?;
        rows.extend(scene.measure(plan).with_context(|| format!("the {name} is what everybody waits for"))?);
    }
    let head = [
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
    println!("{}", table(&head, &rows));
    Ok(())
}

impl Scene {
    fn start(
        name: &'static str,
        (program, folder): (&Path, &Path),
        agent: SocketAddr,
        body: usize,
    ) -> anyhow::Result<Self> {
        let folder = folder.join(name);
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
        std::fs::write(&config, configuration(name == "agent"))?;
        let words = json!({ "words": vec!["gatepost"; body / 11 + 1] }).to_string();
        let call = |(tier, _): (&str, u8)| {
            let header = format!("x-api-key: {}\r\n", key(program, &config, tier)?);
            Ok::<_, anyhow::Error>(Request::post("/agents/worker/invoke", &header, &words))
        };
        let [low, middle, high] = TIERS.map(call);
        let calls = [low?, middle?, high?];
        let mut command = Command::new(program);
        command.arg("run").arg("--config").arg(&config);
        Ok(Self { name, gateway: Process::telling(command, Core::Proxy)?, calls })
    }

    /// The peak, then once and twice as many calls as that.
    fn measure(&self, plan: &Plan) -> anyhow::Result<Vec<Vec<String>>> {
        let time = Duration::from_secs_f64(plan.seconds);
        let settle = Duration::from_secs_f64(plan.settle);
        let mut connection = Connection::open(self.gateway.address)?;
        let (status, answer) = connection.answer(self.call(0).1)?;
        ensure!(status == 200, "the first call was answered:\n{}", String::from_utf8_lossy(answer));
        let peak = self.peak(plan, settle + time)?;
        eprintln!("{}: {peak:.0} calls/s at most", self.name);
        let mut rows = Vec::new();
        let mut usual = None;
        for times in [1, 2] {
            let rate = peak * f64::from(times);
            let seen = self.offer(rate, plan.connections, (settle, time))?;
            let late = percentile(&seen.answered, 0.99);
            let usual = *usual.get_or_insert(late);
            rows.push(self.row(times, &seen, (time, peak, usual)));
        }
        Ok(rows)
    }

    /// Answers a second while as many callers as the agent and its bound have room for ask one call after the other.
    fn peak(&self, plan: &Plan, time: Duration) -> anyhow::Result<f64> {
        let callers = if self.name == "agent" { 2 * u64::try_from(plan.hands)? } else { 32 };
        let end = now() + u64::try_from(time.as_nanos())?;
        let threads = (0..callers).map(|lane| {
            let (address, call) = (self.gateway.address, self.call(lane).1.clone());
            std::thread::spawn(move || {
                let mut connection = Connection::open(address)?;
                let mut good = 0u64;
                while now() < end {
                    match connection.answer(&call) {
                        Ok((200, _)) => good += 1,
                        Ok(_) => {}
                        Err(_) => connection = Connection::open(address)?,
                    }
                }
                Ok(good)
            })
        });
        let answered: u64 = join(threads.collect())?.into_iter().sum();
        Ok(answered as f64 / time.as_secs_f64())
    }

    fn call(&self, lane: u64) -> (usize, &Request) {
        let [low, middle, high] = &self.calls;
        match lane % 3 {
            0 => (0, low),
            1 => (1, middle),
            _ => (2, high),
        }
    }

    /// `rate` calls a second, spread over the connections; those of the first while are not counted.
    fn offer(&self, rate: f64, lanes: u64, (settle, time): (Duration, Duration)) -> anyhow::Result<Seen> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some microseconds")]
        let period = (1e9 / rate.max(1.0)) as u64;
        let first = now() + 50_000_000;
        let counted = first + u64::try_from(settle.as_nanos())?;
        let end = counted + u64::try_from(time.as_nanos())?;
        let threads = (0..lanes).map(|lane| {
            let (address, (tier, call)) = (self.gateway.address, self.call(lane));
            let call = call.clone();
            let due = (first + lane * period..end).step_by(usize::try_from(period * lanes).unwrap_or(usize::MAX));
            std::thread::spawn(move || punctual(address, (tier, &call), due, counted))
        });
        let mut all = Seen::default();
        for seen in join(threads.collect())? {
            all.answered.extend(seen.answered);
            all.failed += seen.failed;
            for (mine, more) in all.refused.iter_mut().zip(seen.refused) {
                mine.extend(more);
            }
            for (mine, more) in all.offered.iter_mut().zip(seen.offered) {
                *mine += more;
            }
        }
        all.answered.sort_unstable();
        Ok(all)
    }

    fn row(&self, times: u32, seen: &Seen, (time, peak, usual): (Duration, f64, f64)) -> Vec<String> {
        let a_second = |count: u64| count as f64 / time.as_secs_f64();
        let millis = |nanos: f64| if nanos.is_nan() { "–".to_owned() } else { format!("{:.2}", nanos / 1e6) };
        let good = a_second(seen.answered.len() as u64);
        let mut refused: Vec<u64> = seen.refused.iter().flatten().copied().collect();
        refused.sort_unstable();
        let late = percentile(&seen.answered, 0.99);
        let mut cells = vec![
            format!("{}, {times}×", self.name),
            format!("{:.0}", a_second(seen.offered.iter().sum())),
            format!("{good:.0}"),
            format!("{:.0}", good / peak * 100.0),
            millis(percentile(&seen.answered, 0.5)),
            millis(late),
            format!("{:.2}", late / usual),
            format!("{:.0}", a_second(refused.len() as u64)),
            millis(percentile(&refused, 0.5)),
            millis(percentile(&refused, 0.99)),
        ];
        let share = |(refused, offered): (&Vec<u64>, u64)| {
            format!("{:.0} %", refused.len() as f64 * 100.0 / offered.max(1) as f64)
        };
        cells.extend(seen.refused.iter().zip(seen.offered).map(share));
        cells.push(seen.failed.to_string());
        cells
    }
}

/// One connection's calls, each at its moment; a call that is due while another is under way counts from when it was due.
fn punctual(
    address: SocketAddr,
    (tier, call): (usize, &Request),
    due: impl Iterator<Item = u64>,
    counted: u64,
) -> anyhow::Result<Seen> {
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut connection = Connection::open(address)?;
    let mut seen = Seen::default();
    for moment in due {
        let at = i64::try_from(moment)?;
        let time = Timespec { tv_sec: at / 1_000_000_000, tv_nsec: at % 1_000_000_000 };
        clock_nanosleep_absolute(ClockId::Monotonic, &time)?;
        let status = connection.answer(call).map(|(status, _)| status);
        if status.is_err() {
            connection = Connection::open(address)?;
        }
        if moment < counted {
            continue;
        }
        let took = now().saturating_sub(moment);
        if let Some(offered) = seen.offered.get_mut(tier) {
            *offered += 1;
        }
        match (status, seen.refused.get_mut(tier)) {
            (Ok(200), _) => seen.answered.push(took),
            (Ok(503), Some(refused)) => refused.push(took),
            _ => seen.failed += 1,
        }
    }
    Ok(seen)
}
