//! Where overload is tried: an agent that has a queue, and the gateway's configuration before it.

use super::TIERS;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// An agent in a thread of its own that works on so many calls at once; the others wait in the order in which they came.
pub(super) fn agent(hands: usize, work: Duration) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    // It ends with this program.
    std::thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let free = Rc::new(RefCell::new(vec![Instant::now(); if work.is_zero() { 0 } else { hands }]));
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let free = Rc::clone(&free);
                let service = service_fn(move |request| answer(request, Rc::clone(&free), work));
                let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // A caller that leaves ends its connection; there is nobody to tell.
                tokio::task::spawn_local(async move { drop(served.await) });
            }
        })
    });
    Ok(address)
}

async fn answer(
    request: hyper::Request<Incoming>,
    free: Rc<RefCell<Vec<Instant>>>,
    work: Duration,
) -> hyper::Result<hyper::Response<Full<Bytes>>> {
    request.into_body().collect().await?;
    let done = free.borrow_mut().iter_mut().min().map(|hand| {
        *hand = (*hand).max(Instant::now()) + work;
        *hand
    });
    if let Some(done) = done {
        tokio::time::sleep_until(done).await;
    }
    let mut response = hyper::Response::new(Full::new(Bytes::from_static(b"{\"text\":\"done\"}")));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    Ok(response)
}

/// Where the agent has hands for everybody, its bound is fixed: what makes it slow there is the load on its core.
pub(super) fn configuration(adaptive: bool) -> String {
    let tiers = TIERS.map(|(tier, priority)| format!("    {tier}: {{ priority: {priority} }}\n")).concat();
    format!(
        "listen:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
agents:
  from: [agents.json]
network:
  allow: [127.0.0.0/8]
auth:
  api_keys: {{ files: [keys.jsonl] }}
access:
  grants:
    - {{ callers: [\"*\"], agents: [\"*\"] }}
access_log:
  to: /dev/null
limits:
  per_address: null
  concurrency: {{ adaptive: {adaptive} }}
  tiers:
{tiers}"
    )
}

/// A key of this tier, made by the gateway's own command.
pub(super) fn key(program: &Path, config: &Path, tier: &str) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["key", "new", "--caller", tier, "--tier", tier, "--config"]).arg(config);
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{command:?} failed: {text}");
    Ok(text.split_ascii_whitespace().last().context("`gatepost key new` printed no key")?.to_owned())
}
