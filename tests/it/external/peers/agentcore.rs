//! An agent in the runtime of Amazon Bedrock AgentCore behind the gateway: calls, sessions, streams and health.

use super::{Peer, server::PeerServer};

const PEER: &str = "peers/agentcore";

#[tokio::test]
async fn r30_calls_sessions_and_streams_of_agentcore_work_through_the_gateway() {
    let server = PeerServer::start_script(PEER).await;
    let peer = Peer { name: PEER, server: &server, preset: "agentcore", endpoint: "/invocations" };
    assert_eq!(peer.run_client_twice("").await, ["ok", "ok"]);
}
