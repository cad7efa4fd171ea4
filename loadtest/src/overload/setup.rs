//! The setup of `overload`: an agent with a queue, the gateway's configuration, and API keys.

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

/// The tiers, lowest first, each with its priority.
pub(super) const TIERS: [(&str, u8); 3] = [("low", 1), ("middle", 5), ("high", 9)];

/// Starts an agent that works on `slots` calls at once, each for `work`. The other calls queue in order of their
/// arrival.
pub(super) fn start_queueing_agent(slots: usize, work: Duration) -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    // The thread ends with this program.
    std::thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let slots = Rc::new(RefCell::new(vec![Instant::now(); if work.is_zero() { 0 } else { slots }]));
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let slots = Rc::clone(&slots);
                let service = service_fn(move |request| respond(request, Rc::clone(&slots), work));
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // An error ends the connection and has no recipient: the gateway has closed it.
                tokio::task::spawn_local(async move { drop(connection.await) });
            }
        })
    });
    Ok(address)
}

async fn respond(
    request: hyper::Request<Incoming>,
    slots: Rc<RefCell<Vec<Instant>>>,
    work: Duration,
) -> hyper::Result<hyper::Response<Full<Bytes>>> {
    request.into_body().collect().await?;
    let end_of_work = slots.borrow_mut().iter_mut().min().map(|free_from| {
        *free_from = (*free_from).max(Instant::now()) + work;
        *free_from
    });
    if let Some(end_of_work) = end_of_work {
        tokio::time::sleep_until(end_of_work).await;
    }
    let mut response = hyper::Response::new(Full::new(Bytes::from_static(b"{\"text\":\"done\"}")));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    Ok(response)
}

/// Builds the gateway's configuration. The concurrency limit is adaptive only where the agent queues: an agent that
/// never queues is slow because of the load on its core, which an adaptive limit would take for overload of the agent.
pub(super) fn gateway_config(adaptive: bool) -> String {
    let tiers = TIERS.map(|(tier, priority)| format!("    {tier}: {{ priority: {priority} }}\n")).concat();
    format!(
        "listeners:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
agents:
  sources: [agents.json]
network:
  allowed_addresses: [127.0.0.0/8]
auth:
  api_keys: {{ files: [keys.jsonl] }}
access:
  grants:
    - {{ callers: [\"*\"], agents: [\"*\"] }}
access_log:
  output: /dev/null
limits:
  per_address: null
  concurrency: {{ adaptive: {adaptive} }}
  tiers:
{tiers}"
    )
}

/// Creates an API key of this tier with the gateway's own command.
pub(super) fn create_key(program: &Path, config: &Path, tier: &str) -> anyhow::Result<String> {
    let mut command = Command::new(program);
    command.args(["key", "new", "--caller", tier, "--tier", tier, "--config"]).arg(config);
    let output = command.stderr(Stdio::inherit()).output()?;
    let stdout = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{command:?} failed: {stdout}");
    Ok(stdout.split_ascii_whitespace().last().context("`gatepost key new` printed no key")?.to_owned())
}
