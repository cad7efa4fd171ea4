//! A hosted agent of Microsoft Agent Framework behind the gateway: invocations, sessions and streams.

use crate::external::peers::{Peer, server::PeerServer};

const PEER: &str = "peers/agent_framework";

#[tokio::test]
async fn r30_invocations_sessions_and_streams_of_agent_framework_work_through_the_gateway() {
    let server = PeerServer::start_script(PEER).await;
    let peer = Peer { name: PEER, server: &server, preset: "agent_framework", endpoint: "/invocations" };
    assert_eq!(peer.run_client_twice("").await, ["ok", "ok"]);
}
