//! The API server of Google's Agent Development Kit behind the gateway: sessions, runs and streams.

use super::{run_client, run_script, server::PeerServer};
use crate::support::gateway::gateway;
use serde_json::json;

const PEER: &str = "peers/adk";

#[tokio::test]
async fn r30_sessions_runs_and_streams_of_adk_work_through_the_gateway() {
    let server = PeerServer::start(PEER, &["repeater/__init__.py", "repeater/agent.py"], |python, port| {
        python.args(["-m", "google.adk.cli", "api_server", "--host", "127.0.0.1", "--port", &port.to_string(), "."]);
    })
    .await;
    let url = server.url("/");
    let direct = tokio::task::spawn_blocking(move || run_script(PEER, &url, None)).await.unwrap();
    assert!(direct.status.success(), "without the gateway: {}", String::from_utf8_lossy(&direct.stderr));
    let endpoint = server.url("/run");
    let document =
        json!({"id": "repeater", "name": "Repeater", "endpoint": endpoint, "authentication": {"type": "api_key"}});
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [repeater], api: {preset: adk}}\n";
    let gate = gateway().document(document).section(rules).start().await;
    assert_eq!(run_client(PEER, &gate, "/agents/repeater/api/").await.trim(), "ok");
}
