//! The load over HTTP/2: few connections with several concurrent calls each, on one thread with a runtime. A thread
//! that sleeps by the kernel's timer sends the moments at which calls are due, because the runtime's timer has steps of
//! a millisecond.

use super::call_target::CallTarget;
use super::h2_connection::{Http2Connection, runtime};
use super::load_results::{CallCounts, PacedResult, SaturationResult};
use super::pacing::{START_DELAY_NANOS, wait_until};
use crate::agent::monotonic_nanos;
use crate::process::ServerProcess;
use anyhow::Context as _;
use rustix::thread::set_current_timer_slack;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Concurrent calls of a connection at saturation, so that there are as many in total as over HTTP/1.1.
const CALLS_PER_CONNECTION: u64 = 8;

pub(super) fn saturate(
    target: &CallTarget,
    concurrent_calls: u64,
    time: Duration,
    process: Option<&ServerProcess>,
) -> anyhow::Result<SaturationResult> {
    runtime()?.block_on(async {
        let connections = connect_all(target, concurrent_calls).await?;
        let cpu = || process.map(ServerProcess::cpu_time).transpose();
        let (cpu_before, started) = (cpu()?, Instant::now());
        let mut tasks = JoinSet::new();
        for connection in connections {
            for _ in 0..CALLS_PER_CONNECTION.min(concurrent_calls) {
                tasks.spawn(run_saturated_stream(connection.clone(), target.clone(), started + time));
            }
        }
        let mut result = SaturationResult { calls: 0, failed: 0, elapsed: time, cpu: None };
        while let Some(task) = tasks.join_next().await {
            let counts = task?;
            result.calls += counts.calls;
            result.failed += counts.failed;
        }
        let cpu = cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        Ok(SaturationResult { elapsed: started.elapsed(), cpu, ..result })
    })
}

/// Calls one after the other until `end`. Stops at the first failure: the connection may be gone, and the run does not
/// count.
async fn run_saturated_stream(connection: Http2Connection, target: CallTarget, end: Instant) -> CallCounts {
    let mut counts = CallCounts::default();
    while Instant::now() < end && counts.failed == 0 {
        counts.calls += 1;
        if !matches!(connection.clone().call(&target.request).await, Ok(200)) {
            counts.failed += 1;
        }
    }
    counts
}

/// Makes a call every `period` for `time`. Each begins when it is due, however many are under way.
pub(super) fn run_at_rate(
    target: &CallTarget,
    concurrent_calls: u64,
    period: Duration,
    time: Duration,
) -> anyhow::Result<PacedResult> {
    runtime()?.block_on(async {
        let connections = connect_all(target, concurrent_calls).await?;
        let mut due = send_due_moments(period, time)?;
        let mut calls = JoinSet::new();
        let mut rotation = connections.iter().cycle();
        while let Some(moment) = due.recv().await {
            let (connection, target) = (rotation.next().context("no connection")?.clone(), target.clone());
            calls.spawn(async move {
                let late = monotonic_nanos().saturating_sub(moment);
                let status = connection.call(&target.request).await;
                (late, matches!(status, Ok(200)).then(|| monotonic_nanos().saturating_sub(moment)))
            });
        }
        let mut result = PacedResult::default();
        while let Some(call) = calls.join_next().await {
            let (late, latency) = call?;
            result.lateness.push(late);
            match latency {
                Some(latency) => result.latencies.push(latency),
                None => result.failed += 1,
            }
        }
        result.latencies.sort_unstable();
        result.lateness.sort_unstable();
        Ok(result)
    })
}

/// Sends each moment at which a call is due, when that moment comes.
fn send_due_moments(period: Duration, time: Duration) -> anyhow::Result<mpsc::UnboundedReceiver<u64>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (period, time) = (u64::try_from(period.as_nanos())?.max(1), u64::try_from(time.as_nanos())?);
    std::thread::spawn(move || -> anyhow::Result<()> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        let first = monotonic_nanos() + START_DELAY_NANOS;
        for moment in (first..first + time).step_by(usize::try_from(period)?) {
            wait_until(moment)?;
            sender.send(moment)?;
        }
        Ok(())
    });
    Ok(receiver)
}

async fn connect_all(target: &CallTarget, concurrent_calls: u64) -> anyhow::Result<Vec<Http2Connection>> {
    let mut connections = Vec::new();
    for _ in 0..concurrent_calls.div_ceil(CALLS_PER_CONNECTION) {
        connections.push(Http2Connection::connect(target.address).await?);
    }
    Ok(connections)
}
