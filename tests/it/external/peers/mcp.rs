//! An MCP server behind the gateway, used by the clients of fastmcp and of the MCP SDKs for Python and TypeScript, in both
//! eras of the protocol.

use super::{Peer, run_node, server::PeerServer};

const PEER: &str = "peers/mcp";

#[tokio::test]
async fn r30_the_clients_of_fastmcp_and_the_mcp_sdks_work_through_the_gateway() {
    let server = PeerServer::start_script(PEER).await;
    let peer = Peer { name: PEER, server: &server, preset: "mcp", endpoint: "/mcp" };
    run_node("mcp.mjs", server.url("/mcp"), None).await;
    let gate = peer.start_gateway().await;
    run_node("mcp.mjs", gate.url("/agents/peer/api"), Some(&gate)).await;
    assert_eq!(peer.run_client_twice("/mcp").await, ["ok", "ok"]);
}
