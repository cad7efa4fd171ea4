//! A LangGraph server behind the gateway, called by `langgraph_sdk` and `RemoteGraph`.

use crate::external::peers::{Peer, server::PeerServer};
use serde_json::{Map, Value};

const PEER: &str = "peers/langgraph";

/// The methods that fail, with what the client shows.
fn failures(outcomes: &str) -> Map<String, Value> {
    let mut outcomes: Map<String, Value> = serde_json::from_str(outcomes).unwrap();
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
    let peer = Peer { name: PEER, server: &server, preset: "langgraph", endpoint: "/runs/wait" };
    let [direct, through] = peer.run_client_twice("").await;
    assert_eq!([failures(&direct), failures(&through)], [Map::new(), Map::new()], "without and with the gateway");
}
