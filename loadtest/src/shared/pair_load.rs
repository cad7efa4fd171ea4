//! The load of many callers that call many agents, at random, at several gateways.

use crate::agent::monotonic_nanos;
use crate::gatepost::{LANGUAGE, LimitedGateway, LimitedSetup, api_key_call};
use crate::http1_client::Http1Connection;
use crate::load::{join_all, wait_until};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Calls of random pairs of a caller and an agent.
#[derive(Clone, Copy)]
pub(super) struct PairLoad<'a> {
    pub(super) setup: &'a LimitedSetup,
    /// The callers that call: the first of the setup.
    pub(super) callers: usize,
    pub(super) connections: usize,
    /// Maximum of calls a second in all; `None` for as many as possible.
    pub(super) rate: Option<f64>,
    pub(super) time: Duration,
}

/// What became of the calls.
#[derive(Debug, Default)]
pub(super) struct PairResult {
    /// Calls of each caller that were answered with 200.
    pub(super) admitted: Vec<u64>,
    /// Calls that were answered with 429.
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) elapsed: Duration,
}

/// The calls of one connection.
struct PairConnection {
    address: SocketAddr,
    keys: Vec<String>,
    agents: usize,
    /// State of the generator of pairs.
    random: u64,
    period: Option<u64>,
}

impl PairLoad<'_> {
    pub(super) fn run(&self, gateways: &[LimitedGateway]) -> anyhow::Result<PairResult> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a period of a few milliseconds")]
        let period = self.rate.map(|rate| (self.connections as f64 * 1e9 / rate) as u64);
        let started = Instant::now();
        let end = started + self.time;
        let connections = gateways.iter().cycle().take(self.connections).zip(1..);
        let threads = connections.map(|(gateway, number)| {
            let connection = PairConnection {
                address: gateway.process.address,
                keys: self.setup.keys.iter().take(self.callers).cloned().collect(),
                agents: self.setup.agents,
                random: u64::wrapping_mul(number, 0x9e37_79b9_7f4a_7c15),
                period,
            };
            std::thread::spawn(move || connection.call_until(end))
        });
        let mut sum = PairResult { admitted: vec![0; self.callers], ..PairResult::default() };
        for part in join_all(threads.collect())? {
            sum.admitted.iter_mut().zip(part.admitted).for_each(|(sum, count)| *sum += count);
            sum.refused += part.refused;
            sum.failed += part.failed;
        }
        Ok(PairResult { elapsed: started.elapsed(), ..sum })
    }
}

impl PairConnection {
    fn call_until(mut self, end: Instant) -> anyhow::Result<PairResult> {
        let mut connection = Http1Connection::connect_plain(self.address)?;
        let mut result = PairResult { admitted: vec![0; self.keys.len()], ..PairResult::default() };
        let mut due = monotonic_nanos();
        while Instant::now() < end {
            if let Some(period) = self.period {
                due += period;
                // A call that is late is not followed by a burst.
                due = due.max(monotonic_nanos());
                wait_until(due)?;
            }
            let caller = self.pick(self.keys.len());
            let agent = format!("agent-{}", self.pick(self.agents));
            let key = self.keys.get(caller).map_or("", String::as_str);
            let target = api_key_call(self.address, key, &agent, LANGUAGE);
            match connection.call(&target.request) {
                Ok(200) => result.admitted.iter_mut().skip(caller).take(1).for_each(|count| *count += 1),
                Ok(429) => result.refused += 1,
                _ => {
                    result.failed += 1;
                    connection = Http1Connection::connect_plain(self.address)?;
                }
            }
        }
        Ok(result)
    }

    /// Returns a number below `count` (xorshift).
    fn pick(&mut self, count: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 16).unwrap_or_default().checked_rem(count).unwrap_or_default()
    }
}
