//! The setup of `floods`: an agent that obeys its input, the gateway's configuration, and the two callers.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

/// An input that makes the agent work for [`SLOW_WORK`].
pub(super) const SLOW_INPUT: &str = "{\"slow\":true}";
const SLOW_WORK: Duration = Duration::from_secs(5);

/// The response of `large`, which is larger than the buffers of the kernel.
static LARGE_RESPONSE: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(format!("\"{}\"", "x".repeat(32 << 20))));

/// The keys of the two callers.
pub(super) struct Callers {
    pub(super) honest: String,
    pub(super) greedy: String,
}

impl Callers {
    /// Creates both keys with the gateway's own command.
    pub(super) fn create(program: &Path, config: &Path) -> anyhow::Result<Self> {
        let create = |caller: &str| {
            let mut command = Command::new(program);
            command.args(["key", "new", "--caller", caller, "--config"]).arg(config);
            let output = command.output()?;
            ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
            let stdout = String::from_utf8(output.stdout)?;
            anyhow::Ok(stdout.split_ascii_whitespace().last().context("no key was printed")?.to_owned())
        };
        Ok(Self { honest: create("honest")?, greedy: create("greedy")? })
    }
}

/// Starts the agent, whose thread ends with this program.
pub(super) fn start_agent() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(respond));
                // An error ends the connection and has no recipient: the gateway has closed it.
                tokio::spawn(async move { drop(connection.await) });
            }
        })
    });
    Ok(address)
}

async fn respond(request: hyper::Request<Incoming>) -> hyper::Result<hyper::Response<Full<Bytes>>> {
    let is_large = request.uri().path() == "/large";
    let body = request.into_body().collect().await?.to_bytes();
    if body == SLOW_INPUT {
        tokio::time::sleep(SLOW_WORK).await;
    }
    let text = if is_large { LARGE_RESPONSE.clone() } else { Bytes::from_static(b"{\"text\":\"done\"}") };
    let mut response = hyper::Response::new(Full::new(text));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    Ok(response)
}

/// Writes the configuration: every limit has its default.
pub(super) fn write_config(folder: &Path, agent: SocketAddr) -> anyhow::Result<PathBuf> {
    let document = |id: &str, inputs: serde_json::Value| {
        json!({
            "id": id, "name": id, "endpoint": format!("http://{agent}/{id}"), "authentication": { "type": "api_key" },
            "operations": [{ "name": "ask", "inputs": inputs }],
        })
    };
    let slow_to_validate = json!({ "type": "object", "properties": { "x": { "pattern": "^[ab]*a[ab]{6000}$" } } });
    let documents = json!([
        document("worker", json!({ "type": "object" })),
        document("narrow", json!({ "type": "object" })),
        document("heavy", slow_to_validate),
        document("large", json!({ "type": "object" })),
    ]);
    std::fs::write(folder.join("agents.json"), documents.to_string())?;
    let config = folder.join("gatepost.yaml");
    std::fs::write(
        &config,
        "listeners:
  - address: 127.0.0.1:0
admin:
  address: 127.0.0.1:0
agents:
  sources: [agents.json]
  rules:
    - agents: [narrow]
      max_concurrency: 4
network:
  allowed_addresses: [127.0.0.0/8]
auth:
  api_keys: { files: [keys.jsonl] }
access:
  grants:
    - { callers: [\"*\"], agents: [\"*\"] }
access_log:
  output: /dev/null
tasks: {}
",
    )?;
    Ok(config)
}
