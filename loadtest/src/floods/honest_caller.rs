//! The honest caller: a few calls a second over connections of its own. The duration of a call counts from when it was
//! due.

use crate::agent::monotonic_nanos;
use crate::http1_client::{Http1Connection, PreparedRequest};
use crate::load::{join_all, wait_until};
use anyhow::ensure;
use std::net::SocketAddr;
use std::time::Duration;

/// Connections of the honest caller.
const CONNECTIONS: u64 = 8;
/// Calls after which the caller opens another connection, because callers also have to connect.
const CALLS_PER_CONNECTION: usize = 10;

pub(super) struct HonestCaller {
    pub(super) gateway: SocketAddr,
    pub(super) request: PreparedRequest,
    /// The status of a call that succeeds.
    pub(super) expected: u16,
}

/// The outcomes of the calls: durations in nanoseconds, sorted, and why the others failed.
#[derive(Default)]
pub(super) struct HonestOutcomes {
    pub(super) durations: Vec<u64>,
    pub(super) failures: Vec<String>,
}

impl HonestCaller {
    /// Makes one call, which must succeed.
    pub(super) fn try_once(&self) -> anyhow::Result<()> {
        let status = Http1Connection::connect_plain(self.gateway)?.call(&self.request)?;
        ensure!(status == self.expected, "the first call got {status}");
        Ok(())
    }

    /// Makes `rate` calls a second.
    pub(super) fn call_for(&self, time: Duration, rate: u64) -> anyhow::Result<HonestOutcomes> {
        let period = 1_000_000_000 / rate.max(1);
        let first = monotonic_nanos() + 100_000_000;
        let end = first + u64::try_from(time.as_nanos())?;
        let step = usize::try_from(period * CONNECTIONS)?;
        let threads = (0..CONNECTIONS).map(|index| {
            let caller = Self { gateway: self.gateway, request: self.request.clone(), expected: self.expected };
            let due = (first + index * period..end).step_by(step);
            std::thread::spawn(move || caller.run_connection(due))
        });
        let mut total = HonestOutcomes::default();
        for outcomes in join_all(threads.collect())? {
            total.durations.extend(outcomes.durations);
            total.failures.extend(outcomes.failures);
        }
        total.durations.sort_unstable();
        Ok(total)
    }

    fn run_connection(&self, due: impl Iterator<Item = u64>) -> anyhow::Result<HonestOutcomes> {
        let mut outcomes = HonestOutcomes::default();
        let mut connection = None;
        for (number, moment) in due.enumerate() {
            wait_until(moment)?;
            if number.is_multiple_of(CALLS_PER_CONNECTION) {
                connection = None;
            }
            match self.call(&mut connection) {
                Ok(status) if status == self.expected => {
                    outcomes.durations.push(monotonic_nanos().saturating_sub(moment));
                }
                Ok(status) => outcomes.failures.push(status.to_string()),
                Err(error) => {
                    connection = None;
                    outcomes.failures.push(error.root_cause().to_string());
                }
            }
        }
        Ok(outcomes)
    }

    fn call(&self, connection: &mut Option<Http1Connection>) -> anyhow::Result<u16> {
        let open = match connection.take() {
            Some(open) => open,
            None => Http1Connection::connect_plain(self.gateway)?,
        };
        connection.insert(open).call(&self.request)
    }
}
