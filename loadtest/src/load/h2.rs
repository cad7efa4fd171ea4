//! The load over HTTP/2: few connections, each with several calls at once, on one thread with a runtime. The moments at
//! which calls are due come from a thread that sleeps by the kernel's clock; the runtime's own has millisecond steps.

use super::{Paced, SOON, Saturated, Target, wait_until};
use crate::agent::now;
use crate::client::PATIENCE;
use crate::process::Process;
use crate::wire::{Caller, config, name};
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

/// Calls at once on one connection while the load saturates: the load has as many under way as over HTTP/1.1.
const AT_ONCE: u64 = 8;

type Sender = SendRequest<Bytes>;

pub(super) fn try_once(target: &Target) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let sender = connect(target).await?;
        let status = call(sender, target).await?;
        ensure!(status == 200, "the first call was answered {status}");
        Ok(())
    })
}

pub(super) fn saturate(
    target: &Target,
    calls_at_once: u64,
    time: Duration,
    process: Option<&Process>,
) -> anyhow::Result<Saturated> {
    runtime()?.block_on(async {
        let senders = connect_all(target, calls_at_once).await?;
        let cpu = || process.map(Process::cpu).transpose();
        let (before, started) = (cpu()?, Instant::now());
        let mut lanes = JoinSet::new();
        for sender in senders {
            for _ in 0..AT_ONCE.min(calls_at_once) {
                lanes.spawn(busy(sender.clone(), target.clone(), started + time));
            }
        }
        let mut seen = Saturated { calls: 0, failed: 0, took: time, cpu: None };
        while let Some(lane) = lanes.join_next().await {
            let (calls, failed) = lane?;
            seen.calls += calls;
            seen.failed += failed;
        }
        let cpu = cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
        Ok(Saturated { took: started.elapsed(), cpu, ..seen })
    })
}

/// Calls one after the other until `end`; how many, and how many of them failed. A lane does not go on after a failure:
/// its connection may be gone, and the run counts for nothing.
async fn busy(sender: Sender, target: Target, end: Instant) -> (u64, u64) {
    let mut calls = 0;
    while Instant::now() < end {
        calls += 1;
        if !matches!(call(sender.clone(), &target).await, Ok(200)) {
            return (calls, 1);
        }
    }
    (calls, 0)
}

/// A call every `period` for `time`, each begun when it is due, however many are under way.
pub(super) fn pace(target: &Target, calls_at_once: u64, period: Duration, time: Duration) -> anyhow::Result<Paced> {
    runtime()?.block_on(async {
        let senders = connect_all(target, calls_at_once).await?;
        let mut due = moments(period, time)?;
        let mut calls = JoinSet::new();
        let mut turn = senders.iter().cycle();
        while let Some(moment) = due.recv().await {
            let (sender, target) = (turn.next().context("a connection")?.clone(), target.clone());
            calls.spawn(async move {
                let late = now().saturating_sub(moment);
                let ended = call(sender, &target).await;
                (late, matches!(ended, Ok(200)).then(|| now().saturating_sub(moment)))
            });
        }
        let mut seen = Paced::default();
        while let Some(call) = calls.join_next().await {
            let (late, latency) = call?;
            seen.late.push(late);
            match latency {
                Some(latency) => seen.latencies.push(latency),
                None => seen.failed += 1,
            }
        }
        seen.latencies.sort_unstable();
        seen.late.sort_unstable();
        Ok(seen)
    })
}

/// The moments at which calls are due, each sent when it has come.
fn moments(period: Duration, time: Duration) -> anyhow::Result<mpsc::UnboundedReceiver<u64>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (period, time) = (u64::try_from(period.as_nanos())?.max(1), u64::try_from(time.as_nanos())?);
    std::thread::spawn(move || -> anyhow::Result<()> {
        set_current_timer_slack(NonZeroU64::new(1))?;
        let first = now() + SOON;
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

async fn connect_all(target: &Target, calls_at_once: u64) -> anyhow::Result<Vec<Sender>> {
    let mut senders = Vec::new();
    for _ in 0..calls_at_once.div_ceil(AT_ONCE) {
        senders.push(connect(target).await?);
    }
    Ok(senders)
}

async fn connect(target: &Target) -> anyhow::Result<Sender> {
    let stream = TcpStream::connect(target.address).await.context("connect")?;
    stream.set_nodelay(true)?;
    let tls = TlsConnector::from(Arc::new(config(Caller::H2, Resumption::disabled())?));
    let stream = timeout(PATIENCE, tls.connect(name()?, stream)).await??;
    let (sender, connection) = h2::client::handshake(stream).await?;
    // Whoever calls over it sees its end; there is nobody else to tell.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// One call, its whole answer read; the status.
async fn call(sender: Sender, target: &Target) -> anyhow::Result<u16> {
    let exchange = async {
        let mut sender = sender.ready().await?;
        let body = target.request.body.clone();
        let (answer, mut stream) = sender.send_request(target.request.head.clone(), body.is_empty())?;
        if !body.is_empty() {
            stream.send_data(body, true)?;
        }
        let (head, mut body) = answer.await?.into_parts();
        while let Some(part) = body.data().await {
            body.flow_control().release_capacity(part?.len())?;
        }
        anyhow::Ok(head.status.as_u16())
    };
    timeout(PATIENCE, exchange).await?
}
