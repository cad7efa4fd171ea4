//! Clients of frameworks, unchanged, in front of the gateway, and servers of frameworks behind it, each from its package
//! registry. `make test-peers` runs them all; `make test` only those that are not marked as ignored.

mod adk;
mod langgraph;
mod mcp;
mod openai;
mod server;

use super::support::python_packages::PythonPackages;
use crate::support::gateway::Gateway;
use std::process::Output;

/// Runs the script `client.py` of a peer with the URL of the gateway, and the key of `team-a`.
async fn run_client(peer: &'static str, gate: &Gateway, path: &str) -> String {
    let (url, key) = (gate.url(path), gate.key("team-a").to_owned());
    let output = tokio::task::spawn_blocking(move || run_script(peer, &url, Some(&key))).await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{peer}: {stdout}{stderr}\n{}", gate.stderr());
    stdout.into_owned()
}

fn run_script(peer: &'static str, url: &str, key: Option<&str>) -> Output {
    let packages = PythonPackages::install(peer);
    let mut python = packages.python();
    python.arg(packages.source().join("client.py")).arg(url).envs(key.map(|key| ("API_KEY", key)));
    python.output().unwrap()
}
