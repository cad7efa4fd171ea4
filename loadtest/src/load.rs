//! The load: saturating (each connection calls again as soon as it has a response), or at a constant rate of arrivals.
//! At a constant rate, a latency counts from the moment at which the call was due, so that a proxy that stalls does not
//! hide the calls that waited behind the stall.
//!
//! Each HTTP/1.1 connection has a thread that blocks: this costs less per call than a runtime, and its timer is the
//! kernel's. HTTP/2 is in `h2.rs`.

mod call_target;
mod h2;
mod h2_connection;
mod load_results;
mod pacing;

pub(crate) use self::call_target::CallTarget;
use self::load_results::CallCounts;
pub(crate) use self::load_results::{PacedResult, SaturationResult};
use self::pacing::START_DELAY_NANOS;
pub(crate) use self::pacing::wait_until;
use crate::agent::monotonic_nanos;
use crate::client_stream::ClientProtocol;
use crate::http1_client::Http1Connection;
use crate::process::ServerProcess;
use anyhow::Context as _;
use rustix::thread::set_current_timer_slack;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
        std::thread::spawn(move || run_saturated_connection(&target, connection, &calls_left, started + until.time))
    });
    let mut result = SaturationResult { calls: 0, failed: 0, elapsed: until.time, cpu: None };
    for counts in join_all(threads.collect())? {
        result.calls += counts.calls;
        result.failed += counts.failed;
    }
    let cpu = cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(SaturationResult { elapsed: started.elapsed(), cpu, ..result })
}

/// Calls over one connection until `end`, or until no calls are left.
fn run_saturated_connection(
    target: &CallTarget,
    mut connection: Http1Connection,
    calls_left: &AtomicU64,
    end: Instant,
) -> anyhow::Result<CallCounts> {
    let mut counts = CallCounts::default();
    let take_call = || calls_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
    while Instant::now() < end && take_call() {
        counts.calls += 1;
        if !matches!(connection.call(&target.request), Ok(200)) {
            counts.failed += 1;
            connection = target.connect()?;
        }
    }
    Ok(counts)
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
