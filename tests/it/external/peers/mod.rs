//! Clients of frameworks, unchanged, in front of the gateway, and servers of frameworks behind it, each from its package
//! registry. `make test-peers` runs them all; `make test` leaves out the module `large`.

mod agentcore;
mod large;
mod mcp;
mod openai;
mod server;

use super::support::{npm, python_packages::PythonPackages};
use crate::support::gateway::{Gateway, gateway};
use serde_json::json;
use server::PeerServer;
use std::process::Output;

/// A server of a framework behind the gateway.
struct Peer<'a> {
    /// The folder of its packages and scripts.
    name: &'static str,
    server: &'a PeerServer,
    preset: &'static str,
    /// Path of the agent's endpoint.
    endpoint: &'static str,
}

impl Peer<'_> {
    /// Starts a gateway with the agent `peer`, whose API has the preset.
    async fn start_gateway(&self) -> Gateway {
        let endpoint = self.server.url(self.endpoint);
        let document =
            json!({"id": "peer", "name": "Peer", "endpoint": endpoint, "authentication": {"type": "api_key"}});
        let rule = format!("    - {{agents: [peer], api: {{preset: {}}}}}\n", self.preset);
        gateway()
            .document(document)
            .section(&format!("agents:\n  sources: [agents.json]\n  rules:\n{rule}"))
            .start()
            .await
    }

    /// Runs the script `client.py` with the server at `path`, and with the gateway. Returns what it prints of each.
    async fn run_client_twice(&self, path: &str) -> [String; 2] {
        let (name, url) = (self.name, self.server.url(path));
        let direct = tokio::task::spawn_blocking(move || run_script(name, &url, None)).await.unwrap();
        let [stdout, stderr] = [direct.stdout, direct.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(direct.status.success(), "{name} without the gateway: {stdout}{stderr}");
        let gate = self.start_gateway().await;
        let through = run_client(name, &gate, "/agents/peer/api").await;
        [stdout, through].map(|text| text.trim().to_owned())
    }
}

/// Runs the script `client.py` of a peer with the URL of the gateway, and the key of `team-a`.
async fn run_client(peer: &'static str, gate: &Gateway, path: &str) -> String {
    let (url, key) = (gate.url(path), gate.key("team-a").to_owned());
    let output = tokio::task::spawn_blocking(move || run_script(peer, &url, Some(&key))).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{peer}: {stdout}{stderr}\n{}", gate.stderr());
    stdout.into_owned()
}

/// Runs a script of `tests/peers/javascript` with this URL, and the key of `team-a` for a gateway. Returns what it prints.
async fn run_node(script: &'static str, url: String, gate: Option<&Gateway>) -> String {
    let key = gate.map(|gate| gate.key("team-a").to_owned());
    let run = move || {
        let folder = npm::install_packages("peers/javascript");
        npm::node_command().arg(folder.join(script)).arg(url).envs(key.map(|key| ("API_KEY", key))).output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let log = gate.map(Gateway::stderr).unwrap_or_default();
    assert!(output.status.success(), "{script}: {stdout}{stderr}\n{log}");
    stdout.into_owned()
}

fn run_script(peer: &'static str, url: &str, key: Option<&str>) -> Output {
    let packages = PythonPackages::install(peer);
    let mut python = packages.python();
    python.arg(packages.source().join("client.py")).arg(url).envs(key.map(|key| ("API_KEY", key)));
    python.output().unwrap()
}
