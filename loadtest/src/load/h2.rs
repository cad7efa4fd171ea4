//! The load over HTTP/2: few connections with several concurrent calls each, on one thread with a runtime. A thread
//! that sleeps by the kernel's timer sends the moments at which calls are due, because the runtime's timer has steps of
//! a millisecond.

use super::{CallTarget, PacedResult, START_DELAY_NANOS, SaturationResult, wait_until};
use crate::agent::monotonic_nanos;
use crate::client_stream::{ClientProtocol, server_name, tls_config};
use crate::http1_client::RESPONSE_TIMEOUT;
use crate::process::ServerProcess;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use rustix::thread::set_current_timer_slack;
use rustls::client::Resumption;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Concurrent calls of a connection at saturation, so that there are as many in total as over HTTP/1.1.
const CALLS_PER_CONNECTION: u64 = 8;

type RequestSender = SendRequest<Bytes>;

pub(super) fn try_once(target: &CallTarget) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let sender = connect(target).await?;
        let status = call(sender, target).await?;
        ensure!(status == 200, "the first call failed with status {status}");
        Ok(())
    })
}

pub(super) fn saturate(
    target: &CallTarget,
    concurrent_calls: u64,
    time: Duration,
    process: Option<&ServerProcess>,
) -> anyhow::Result<SaturationResult> {
    runtime()?.block_on(async {
        let senders = connect_all(target, concurrent_calls).await?;
        let cpu = || process.map(ServerProcess::cpu_time).transpose();
        let (cpu_before, started) = (cpu()?, Instant::now());
        let mut tasks = JoinSet::new();
        for sender in senders {
            for _ in 0..CALLS_PER_CONNECTION.min(concurrent_calls) {
                tasks.spawn(run_saturated_stream(sender.clone(), target.clone(), started + time));
            }
        }
        let mut result = SaturationResult { calls: 0, failed: 0, elapsed: time, cpu: None };
        while let Some(task) = tasks.join_next().await {
            let (calls, failed) = task?;
            result.calls += calls;
            result.failed += failed;
        }
        let cpu = cpu()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        Ok(SaturationResult { elapsed: started.elapsed(), cpu, ..result })
    })
}

/// Calls one after the other until `end`. Returns the number of calls, and of those that failed. Stops at the first
/// failure: the connection may be gone, and the run does not count.
async fn run_saturated_stream(sender: RequestSender, target: CallTarget, end: Instant) -> (u64, u64) {
    let mut calls = 0;
    while Instant::now() < end {
        calls += 1;
        if !matches!(call(sender.clone(), &target).await, Ok(200)) {
            return (calls, 1);
        }
    }
    (calls, 0)
}

/// Makes a call every `period` for `time`. Each begins when it is due, however many are under way.
pub(super) fn run_at_rate(
    target: &CallTarget,
    concurrent_calls: u64,
    period: Duration,
    time: Duration,
) -> anyhow::Result<PacedResult> {
    runtime()?.block_on(async {
        let senders = connect_all(target, concurrent_calls).await?;
        let mut due = send_due_moments(period, time)?;
        let mut calls = JoinSet::new();
        let mut rotation = senders.iter().cycle();
        while let Some(moment) = due.recv().await {
            let (sender, target) = (rotation.next().context("no connection")?.clone(), target.clone());
            calls.spawn(async move {
                let late = monotonic_nanos().saturating_sub(moment);
                let status = call(sender, &target).await;
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

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn connect_all(target: &CallTarget, concurrent_calls: u64) -> anyhow::Result<Vec<RequestSender>> {
    let mut senders = Vec::new();
    for _ in 0..concurrent_calls.div_ceil(CALLS_PER_CONNECTION) {
        senders.push(connect(target).await?);
    }
    Ok(senders)
}

async fn connect(target: &CallTarget) -> anyhow::Result<RequestSender> {
    let stream = TcpStream::connect(target.address).await.context("connect")?;
    stream.set_nodelay(true)?;
    let tls = TlsConnector::from(Arc::new(tls_config(ClientProtocol::Http2Tls, Resumption::disabled())?));
    let stream = timeout(RESPONSE_TIMEOUT, tls.connect(server_name()?, stream)).await??;
    let (sender, connection) = h2::client::handshake(stream).await?;
    // The calls over the connection see its error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Makes one call, reads the complete response, and returns its status.
async fn call(sender: RequestSender, target: &CallTarget) -> anyhow::Result<u16> {
    let exchange = async {
        let mut sender = sender.ready().await?;
        let body = target.request.body.clone();
        let (response, mut stream) = sender.send_request(target.request.head.clone(), body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        let (head, mut body) = response.await?.into_parts();
        while let Some(part) = body.data().await {
            body.flow_control().release_capacity(part?.len())?;
        }
        anyhow::Ok(head.status.as_u16())
    };
    timeout(RESPONSE_TIMEOUT, exchange).await?
}
