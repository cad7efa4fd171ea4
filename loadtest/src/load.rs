//! The load: saturating (each connection calls again as soon as it has a response), or at a constant rate of arrivals.
//! At a constant rate, a latency counts from the moment at which the call was due, so that a proxy that stalls does not
//! hide the calls that waited behind the stall.
//!
//! Each HTTP/1.1 connection has a thread that blocks: this costs less per call than a runtime, and its timer is the
//! kernel's. HTTP/2 is in `h2.rs`.

mod h2;

use crate::agent::now;
use crate::client::{Connection, Request};
use crate::process::Process;
use crate::wire::Caller;
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
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) caller: Caller,
    pub(crate) request: Request,
}

impl Target {
    /// Calls over plain HTTP/1.1.
    pub(crate) fn plain(address: SocketAddr, request: Request) -> Self {
        Self { address, caller: Caller::Plain, request }
    }

    /// The same calls over another protocol, which has its own listener.
    pub(crate) fn by(&self, protocol: Caller, address: SocketAddr) -> Self {
        Self { address, caller: protocol, request: self.request.clone() }
    }

    fn connect_all(&self, connections: u64) -> anyhow::Result<Vec<Connection>> {
        (0..connections).map(|_| self.connect()).collect()
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        Connection::by(self.caller, self.address)
    }

    /// Makes one call and fails with the response's text unless the status is 200. Shows before a measurement that it
    /// measures the right thing.
    pub(crate) fn try_once(&self) -> anyhow::Result<()> {
        if self.caller == Caller::H2 {
            return h2::try_once(self);
        }
        let mut connection = self.connect()?;
        let (status, response) = connection.answer(&self.request)?;
        let response = String::from_utf8_lossy(response);
        anyhow::ensure!(status == 200, "the first call failed:\n{response}");
        Ok(())
    }
}

/// The result of a saturating load.
pub(crate) struct Saturated {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) took: Duration,
    /// CPU time that the measured process used meanwhile, without connecting.
    pub(crate) cpu: Option<Duration>,
}

impl Saturated {
    pub(crate) fn per_second(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64()
    }

    /// Microseconds of CPU time per call.
    pub(crate) fn cpu_per_call(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.calls as f64)
    }
}

/// How long a saturating load lasts.
#[derive(Clone, Copy)]
pub(crate) struct Until {
    pub(crate) time: Duration,
    /// The maximum of calls over all connections. HTTP/2 ignores it.
    pub(crate) most: u64,
}

impl From<Duration> for Until {
    fn from(time: Duration) -> Self {
        Self { time, most: u64::MAX }
    }
}

/// Keeps `connections` busy, and measures the CPU time of `process` meanwhile.
pub(crate) fn saturate(
    target: &Target,
    connections: u64,
    until: impl Into<Until>,
    process: Option<&Process>,
) -> anyhow::Result<Saturated> {
    let until = until.into();
    if target.caller == Caller::H2 {
        return h2::saturate(target, connections, until.time, process);
    }
    let open = target.connect_all(connections)?;
    let calls_left = Arc::new(AtomicU64::new(until.most));
    let cpu = || process.map(Process::cpu).transpose();
    let (cpu_before, started) = (cpu()?, Instant::now());
    let threads = open.into_iter().map(|connection| {
        let (target, calls_left) = (target.clone(), Arc::clone(&calls_left));
        std::thread::spawn(move || busy(&target, connection, (&calls_left, started + until.time)))
    });
    let mut result = Saturated { calls: 0, failed: 0, took: until.time, cpu: None };
    for (calls, failed) in join(threads.collect())? {
        result.calls += calls;
        result.failed += failed;
    }
    let cpu = cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    Ok(Saturated { took: started.elapsed(), cpu, ..result })
}

/// Calls over one connection until `end`. Returns the number of calls, and of those that failed.
fn busy(
    target: &Target,
    mut connection: Connection,
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
const SOON: u64 = 20_000_000;

/// The result of a load at a constant rate: times in nanoseconds, sorted.
#[derive(Default)]
pub(crate) struct Paced {
    pub(crate) latencies: Vec<u64>,
    /// How late the load itself began calls although their connection was free: the load's own part of the latencies.
    pub(crate) late: Vec<u64>,
    pub(crate) failed: u64,
}

/// Makes `rate` calls a second for `time`, spread evenly over `connections`. A call waits while its connection is busy
/// with the previous call, and the wait counts.
pub(crate) fn pace(target: &Target, connections: u64, rate: u64, time: Duration) -> anyhow::Result<Paced> {
    let period = 1_000_000_000 / rate.max(1);
    if target.caller == Caller::H2 {
        return h2::pace(target, connections, Duration::from_nanos(period), time);
    }
    let open = target.connect_all(connections)?;
    // The delay gives every thread time to start.
    let first = now() + SOON;
    let end = first + u64::try_from(time.as_nanos())?;
    let threads = (0..).zip(open).map(|(index, connection)| {
        let target = target.clone();
        let due = (first + index * period..end).step_by(usize::try_from(period * connections).unwrap_or(usize::MAX));
        std::thread::spawn(move || punctual(&target, connection, due))
    });
    let mut result = Paced::default();
    for part in join(threads.collect())? {
        result.latencies.extend(part.latencies);
        result.late.extend(part.late);
        result.failed += part.failed;
    }
    result.latencies.sort_unstable();
    result.late.sort_unstable();
    Ok(result)
}

/// Makes the calls of one connection, each when it is due.
fn punctual(target: &Target, mut connection: Connection, due: impl Iterator<Item = u64>) -> anyhow::Result<Paced> {
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut result = Paced::default();
    for moment in due {
        if now() < moment {
            wait_until(moment)?;
            result.late.push(now().saturating_sub(moment));
        }
        if matches!(connection.call(&target.request), Ok(200)) {
            result.latencies.push(now().saturating_sub(moment));
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
pub(crate) fn in_turns<T>(
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
pub(crate) fn join<T>(threads: Vec<JoinHandle<anyhow::Result<T>>>) -> anyhow::Result<Vec<T>> {
    let results = threads.into_iter().map(JoinHandle::join);
    results.map(|result| result.ok().context("a thread of the load panicked")?).collect()
}

#[cfg(test)]
mod tests;
