//! The API server of Google's Agent Development Kit behind the gateway: sessions, runs and streams.

use crate::external::peers::{Peer, server::PeerServer};

const PEER: &str = "peers/adk";

#[tokio::test]
async fn r30_sessions_runs_and_streams_of_adk_work_through_the_gateway() {
    let server = PeerServer::start(PEER, &["repeater/__init__.py", "repeater/agent.py"], |python, port| {
        python.args(["-m", "google.adk.cli", "api_server", "--host", "127.0.0.1", "--port", &port.to_string(), "."]);
    })
    .await;
    let peer = Peer { name: PEER, server: &server, preset: "adk", endpoint: "/run" };
    assert_eq!(peer.run_client_twice("").await, ["ok", "ok"]);
}
