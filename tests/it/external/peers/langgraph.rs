//! A LangGraph server behind the gateway, called by `langgraph_sdk` and `RemoteGraph`.

use super::{run_client, run_script, server::PeerServer};
use crate::support::gateway::gateway;
use serde_json::{Map, Value, json};

const PEER: &str = "peers/langgraph";

/// The methods that fail, with what the client shows.
fn failures(outcomes: &str) -> Map<String, Value> {
    let mut outcomes: Map<String, Value> = serde_json::from_str(outcomes.trim()).unwrap();
    assert!(outcomes.len() > 50, "{outcomes:?}");
    outcomes.retain(|_, error| !error.is_null());
    outcomes
}

#[tokio::test]
async fn r30_every_method_of_langgraph_sdk_and_remote_graph_works_through_the_gateway() {
    let server = PeerServer::start(PEER, &["graph.py", "langgraph.json"], |python, port| {
        python.args(["-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--port", &port.to_string()]);
        python.env("LANGSMITH_TRACING", "false");
    })
    .await;
    let url = server.url("");
    let direct = tokio::task::spawn_blocking(move || run_script(PEER, &url, None)).await.unwrap();
    assert!(direct.status.success(), "{}", String::from_utf8_lossy(&direct.stderr));
    let document = json!({"id": "planner", "name": "Planner", "endpoint": format!("{}/runs/wait", server.url("")), "authentication": {"type": "api_key"}});
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [planner], api: {preset: langgraph}}\n";
    let gate = gateway().document(document).section(rules).start().await;
    let outcomes = run_client(PEER, &gate, "/agents/planner/api").await;
    let empty = Map::new();
    assert_eq!(failures(&String::from_utf8_lossy(&direct.stdout)), empty, "without the gateway");
    assert_eq!(failures(&outcomes), empty, "through the gateway");
}
