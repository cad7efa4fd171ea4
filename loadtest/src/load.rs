//! The load: saturating (each connection calls again as soon as it has a response), or at a constant rate of arrivals.
//! At a constant rate, a latency counts from the moment at which the call was due, so that a proxy that stalls does not
//! hide the calls that waited behind the stall.
//!
//! Each HTTP/1.1 connection has a thread that blocks: this costs less per call than a runtime, and its timer is the
//! kernel's. HTTP/2 is in `h2.rs`.

mod h2;

use crate::agent::monotonic_nanos;
use crate::client_stream::ClientProtocol;
use crate::http1_client::{Http1Connection, PreparedRequest};
use crate::process::ServerProcess;
use anyhow::Context as _;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The destination and the request of calls.
#[derive(Clone)]
pub(crate) struct CallTarget {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: ClientProtocol,
    pub(crate) request: PreparedRequest,
}

impl CallTarget {
    /// Calls over plain HTTP/1.1.
    pub(crate) fn plain(address: SocketAddr, request: PreparedRequest) -> Self {
        Self { address, protocol: ClientProtocol::Http1, request }
    }

    /// The same calls over another protocol, which has its own listener.
    pub(crate) fn over(&self, protocol: ClientProtocol, address: SocketAddr) -> Self {
        Self { address, protocol, request: self.request.clone() }
    }

    fn connect_all(&self, connections: u64) -> anyhow::Result<Vec<Http1Connection>> {
        (0..connections).map(|_| self.connect()).collect()
    }

    fn connect(&self) -> anyhow::Result<Http1Connection> {
        Http1Connection::connect(self.protocol, self.address)
    }

    /// Makes one call and fails with the response's text unless the status is 200. Shows before a measurement that it
    /// measures the right thing.
    pub(crate) fn try_once(&self) -> anyhow::Result<()> {
        if self.protocol == ClientProtocol::Http2Tls {
            return h2::try_once(self);
        }
        let mut connection = self.connect()?;
        let (status, response) = connection.call_and_read(&self.request)?;
        let response = String::from_utf8_lossy(response);
        anyhow::ensure!(status == 200, "the first call failed:\n{response}");
        Ok(())
    }
}

/// The result of a saturating load.
pub(crate) struct SaturationResult {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) elapsed: Duration,
    /// CPU time that the measured process used meanwhile, without connecting.
    pub(crate) cpu: Option<Duration>,
}

impl SaturationResult {
    pub(crate) fn per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds of CPU time per call.
    pub(crate) fn cpu_per_call(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.calls as f64)
    }
}

/// How long a saturating load lasts.
#[derive(Clone, Copy)]
pub(crate) struct LoadLimit {
    pub(crate) time: Duration,
    /// The maximum of calls over all connections. HTTP/2 ignores it.
    pub(crate) max_calls: u64,
}

impl From<Duration> for LoadLimit {
    fn from(time: Duration) -> Self {
        Self { time, max_calls: u64::MAX }
    }
}

/// Keeps `connections` busy, and measures the CPU time of `process` meanwhile.
pub(crate) fn saturate(
    target: &CallTarget,
    connections: u64,
    until: impl Into<LoadLimit>,
    process: Option<&ServerProcess>,
) -> anyhow::Result<SaturationResult> {
    let until = until.into();
    if target.protocol == ClientProtocol::Http2Tls {
        return h2::saturate(target, connections, until.time, process);
    }
    let open = target.connect_all(connections)?;
    let calls_left = Arc::new(AtomicU64::new(until.max_calls));
    let cpu = || process.map(ServerProcess::cpu_time).transpose();
    let (cpu_before, started) = (cpu()?, Instant::now());
    let threads = open.into_iter().map(|connection| {
        let (target, calls_left) = (target.clone(), Arc::clone(&calls_left));
        std::thread::spawn(move || run_saturated_connection(&target, connection, (&calls_left, started + until.time)))
    });
    let mut result = SaturationResult { calls: 0, failed: 0, elapsed: until.time, cpu: None };
    for (calls, failed) in join_all(threads.collect())? {
        result.calls += calls;
        result.failed += failed;
    }
    let cpu = cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(SaturationResult { elapsed: started.elapsed(), cpu, ..result })
}

/// Calls over one connection until `end`. Returns the number of calls, and of those that failed.
fn run_saturated_connection(
    target: &CallTarget,
    mut connection: Http1Connection,
    (calls_left, end): (&AtomicU64, Instant),
) -> anyhow::Result<(u64, u64)> {
    let (mut calls, mut failed) = (0, 0);
    let take_call = || calls_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
    while Instant::now() < end && take_call() {
        calls += 1;
        if !matches!(connection.call(&target.request), Ok(200)) {
            failed += 1;
            connection = target.connect()?;
        }
    }
    Ok((calls, failed))
}

/// Nanoseconds from the start of a load at a constant rate until its first call is due.
const START_DELAY_NANOS: u64 = 20_000_000;

/// The result of a load at a constant rate: times in nanoseconds, sorted.
#[derive(Default)]
pub(crate) struct PacedResult {
    pub(crate) latencies: Vec<u64>,
    /// How late the load itself began calls although their connection was free: the load's own part of the latencies.
    pub(crate) lateness: Vec<u64>,
    pub(crate) failed: u64,
}

/// Makes `rate` calls a second for `time`, spread evenly over `connections`. A call waits while its connection is busy
/// with the previous call, and the wait counts.
pub(crate) fn run_at_rate(
    target: &CallTarget,
    connections: u64,
    rate: u64,
    time: Duration,
) -> anyhow::Result<PacedResult> {
    let period = 1_000_000_000 / rate.max(1);
    if target.protocol == ClientProtocol::Http2Tls {
        return h2::run_at_rate(target, connections, Duration::from_nanos(period), time);
    }
    let open = target.connect_all(connections)?;
    // The delay gives every thread time to start.
    let first = monotonic_nanos() + START_DELAY_NANOS;
    let end = first + u64::try_from(time.as_nanos())?;
    let threads = (0..).zip(open).map(|(index, connection)| {
        let target = target.clone();
        let due = (first + index * period..end).step_by(usize::try_from(period * connections).unwrap_or(usize::MAX));
        std::thread::spawn(move || run_paced_connection(&target, connection, due))
    });
    let mut result = PacedResult::default();
    for part in join_all(threads.collect())? {
        result.latencies.extend(part.latencies);
        result.lateness.extend(part.lateness);
        result.failed += part.failed;
    }
    result.latencies.sort_unstable();
    result.lateness.sort_unstable();
    Ok(result)
}

/// Makes the calls of one connection, each when it is due.
fn run_paced_connection(
    target: &CallTarget,
    mut connection: Http1Connection,
    due: impl Iterator<Item = u64>,
) -> anyhow::Result<PacedResult> {
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut result = PacedResult::default();
    for moment in due {
        if monotonic_nanos() < moment {
            wait_until(moment)?;
            result.lateness.push(monotonic_nanos().saturating_sub(moment));
        }
        if matches!(connection.call(&target.request), Ok(200)) {
            result.latencies.push(monotonic_nanos().saturating_sub(moment));
        } else {
            result.failed += 1;
            connection = target.connect()?;
        }
    }
    Ok(result)
}

fn wait_until(moment: u64) -> anyhow::Result<()> {
    let moment = i64::try_from(moment)?;
    let time = Timespec { tv_sec: moment / 1_000_000_000, tv_nsec: moment % 1_000_000_000 };
    Ok(clock_nanosleep_absolute(ClockId::Monotonic, &time)?)
}

/// Measures each subject once a round, in an order that starts at another subject each round.
pub(crate) fn measure_in_rotation<T>(
    rounds: u64,
    subjects: &mut [T],
    mut measure: impl FnMut(&mut T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        let offset = usize::try_from(round)?.checked_rem(subjects.len()).unwrap_or_default();
        subjects.rotate_left(offset);
        subjects.iter_mut().try_for_each(&mut measure)?;
        subjects.rotate_right(offset);
    }
    Ok(())
}

/// Joins the threads. Returns their results, or the first failure.
pub(crate) fn join_all<T>(threads: Vec<JoinHandle<anyhow::Result<T>>>) -> anyhow::Result<Vec<T>> {
    let results = threads.into_iter().map(JoinHandle::join);
    results.map(|result| result.ok().context("a thread of the load panicked")?).collect()
}

#[cfg(test)]
mod tests;
