//! An agent of the A2A SDK behind the gateway: every method of its client, over JSON-RPC and over HTTP+JSON.

use crate::external::peers::{Peer, server::PeerServer};

const PEER: &str = "peers/a2a";

#[tokio::test]
async fn r30_every_method_of_the_a2a_sdk_works_through_the_gateway() {
    let server = PeerServer::start_script(PEER).await;
    let peer = Peer { name: PEER, server: &server, preset: "a2a", endpoint: "/" };
    assert_eq!(peer.run_client_twice("").await, ["ok", "ok"]);
}
