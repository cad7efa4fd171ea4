//! A server of OpenAI's API behind the gateway, called by OpenAI's own SDK: what agents as models cannot honour passes.

use crate::external::peers::{Peer, server::PeerServer};

const PEER: &str = "peers/openai_api";

#[tokio::test]
async fn r30_openais_sdk_uses_a_server_of_its_api_through_the_gateway() {
    let server = PeerServer::start_script(PEER).await;
    let peer = Peer { name: PEER, server: &server, preset: "openai", endpoint: "/v1/chat/completions" };
    assert_eq!(peer.run_client_twice("/v1").await, ["ok", "ok"]);
}
