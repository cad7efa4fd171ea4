//! The load: saturating (as fast as answers come) or at a constant rate of arrivals, where a
//! call's latency counts from the moment it *should* have started, so that a proxy which
//! stalls does not hide the calls that waited behind the stall.
//!
//! Each HTTP/1.1 connection is a thread that blocks: cheaper per call than a runtime, and its
//! clock is the kernel's. HTTP/2 has a file of its own.

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

/// Where calls go, and what each one says.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) caller: Caller,
    pub(crate) request: Request,
}

impl Target {
    /// A plain call.
    pub(crate) fn plain(address: SocketAddr, request: Request) -> Self {
        Self { address, caller: Caller::Plain, request }
    }

    /// The same call by another kind of caller, who connects elsewhere.
    pub(crate) fn by(&self, caller: Caller, address: SocketAddr) -> Self {
        Self { address, caller, request: self.request.clone() }
    }

    fn connect_all(&self, connections: u64) -> anyhow::Result<Vec<Connection>> {
        (0..connections).map(|_| self.connect()).collect()
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        Connection::by(self.caller, self.address)
    }

    /// One call, with its answer as text: shows before a measurement that it measures the
    /// right thing.
    pub(crate) fn try_once(&self) -> anyhow::Result<()> {
        if self.caller == Caller::H2 {
            return h2::try_once(self);
        }
        let mut connection = self.connect()?;
        let (status, answer) = connection.answer(&self.request)?;
        let answer = String::from_utf8_lossy(answer);
        anyhow::ensure!(status == 200, "the first call was answered:\n{answer}");
        Ok(())
    }
}

/// What a saturating load saw.
pub(crate) struct Saturated {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) took: Duration,
    /// CPU that the measured process used meanwhile, connecting left out.
    pub(crate) cpu: Option<Duration>,
}

impl Saturated {
    pub(crate) fn per_second(&self) -> f64 {
        self.calls as f64 / self.took.as_secs_f64()
    }

    /// Microseconds of CPU for a call.
    pub(crate) fn cpu_per_call(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.calls as f64)
    }
}

/// How long a saturating load goes on.
#[derive(Clone, Copy)]
pub(crate) struct Until {
    pub(crate) time: Duration,
    /// Calls, all together; over HTTP/2 only time counts.
    pub(crate) most: u64,
}

impl From<Duration> for Until {
    fn from(time: Duration) -> Self {
        Self { time, most: u64::MAX }
    }
}

/// Keeps `connections` busy, and reads what CPU that takes `process`.
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
    let left = Arc::new(AtomicU64::new(until.most));
    let cpu = || process.map(Process::cpu).transpose();
    let (before, started) = (cpu()?, Instant::now());
    let threads = open.into_iter().map(|connection| {
        let (target, left) = (target.clone(), Arc::clone(&left));
        std::thread::spawn(move || busy(&target, connection, (&left, started + until.time)))
    });
    let mut seen = Saturated { calls: 0, failed: 0, took: until.time, cpu: None };
    for (more, bad) in join(threads.collect())? {
        seen.calls += more;
        seen.failed += bad;
    }
    let cpu = cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
    Ok(Saturated { took: started.elapsed(), cpu, ..seen })
}

fn busy(target: &Target, mut connection: Connection, (left, end): (&AtomicU64, Instant)) -> anyhow::Result<(u64, u64)> {
    let (mut calls, mut failed) = (0, 0);
    let take = || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
    while Instant::now() < end && take() {
        calls += 1;
        if !matches!(connection.call(&target.request), Ok(200)) {
            failed += 1;
            connection = target.connect()?;
        }
    }
    Ok((calls, failed))
}

/// Nanoseconds from the start of a load at a constant rate to its first call.
const SOON: u64 = 20_000_000;

/// What a load at a constant rate saw: times in nanoseconds, sorted.
#[derive(Default)]
pub(crate) struct Paced {
    pub(crate) latencies: Vec<u64>,
    /// How late the load itself began calls that nothing kept it from beginning: its own part of the latencies.
    pub(crate) late: Vec<u64>,
    pub(crate) failed: u64,
}

/// `rate` calls a second for `time`, spread evenly over `connections`. A call whose connection is not back from the one
/// before waits for it, and the wait counts.
pub(crate) fn pace(target: &Target, connections: u64, rate: u64, time: Duration) -> anyhow::Result<Paced> {
    let period = 1_000_000_000 / rate.max(1);
    if target.caller == Caller::H2 {
        return h2::pace(target, connections, Duration::from_nanos(period), time);
    }
    let open = target.connect_all(connections)?;
    // Every thread is up before the first call is due.
    let first = now() + SOON;
    let end = first + u64::try_from(time.as_nanos())?;
    let threads = (0..).zip(open).map(|(lane, connection)| {
        let target = target.clone();
        let due = (first + lane * period..end).step_by(usize::try_from(period * connections).unwrap_or(usize::MAX));
        std::thread::spawn(move || punctual(&target, connection, due))
    });
    let mut all = Paced::default();
    for part in join(threads.collect())? {
        all.latencies.extend(part.latencies);
        all.late.extend(part.late);
        all.failed += part.failed;
    }
    all.latencies.sort_unstable();
    all.late.sort_unstable();
    Ok(all)
}

fn punctual(target: &Target, mut connection: Connection, due: impl Iterator<Item = u64>) -> anyhow::Result<Paced> {
    set_current_timer_slack(NonZeroU64::new(1))?;
    let mut seen = Paced::default();
    for moment in due {
        if now() < moment {
            wait_until(moment)?;
            seen.late.push(now().saturating_sub(moment));
        }
        if matches!(connection.call(&target.request), Ok(200)) {
            seen.latencies.push(now().saturating_sub(moment));
        } else {
            seen.failed += 1;
            connection = target.connect()?;
        }
    }
    Ok(seen)
}

fn wait_until(moment: u64) -> anyhow::Result<()> {
    let moment = i64::try_from(moment)?;
    let time = Timespec { tv_sec: moment / 1_000_000_000, tv_nsec: moment % 1_000_000_000 };
    Ok(clock_nanosleep_absolute(ClockId::Monotonic, &time)?)
}

/// Measures each of some things once a round, beginning with another one each time.
pub(crate) fn in_turns<T>(
    rounds: u64,
    things: &mut [T],
    mut measure: impl FnMut(&mut T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        let turn = usize::try_from(round)?.checked_rem(things.len()).unwrap_or_default();
        things.rotate_left(turn);
        things.iter_mut().try_for_each(&mut measure)?;
        things.rotate_right(turn);
    }
    Ok(())
}

/// What every thread brought, or the first failure.
pub(crate) fn join<T>(threads: Vec<JoinHandle<anyhow::Result<T>>>) -> anyhow::Result<Vec<T>> {
    let ended = threads.into_iter().map(JoinHandle::join);
    ended.map(|end| end.ok().context("a thread of the load panicked")?).collect()
}

#[cfg(test)]
mod tests;
