//! An MCP server behind the gateway, used by the clients of fastmcp and of the MCP SDKs for Python and TypeScript, in both
//! eras of the protocol.

use super::{Peer, run_node, server::PeerServer};

const PEER: &str = "peers/mcp";

/// Methods of the clients in an era that has them no more, and what this server does not offer.
const METHODS_THAT_FAIL: [&str; 9] = [
    "fastmcp ping: MCPError: Method not found",
    "fastmcp set_logging_level: RuntimeError",
    "initialize subscribe_resource: MCPError: Method not found",
    "initialize unsubscribe_resource: MCPError: Method not found",
    "discover send_ping: MCPError: Method not found",
    "discover set_logging_level: MCPError: Method not found",
    "discover subscribe_resource: MCPError: Method not found",
    "discover unsubscribe_resource: MCPError: Method not found",
    "client listen: MCPError: Method not found",
];

#[tokio::test]
async fn r30_every_method_of_fastmcp_and_the_mcp_sdks_works_through_the_gateway_as_without_it() {
    let server = PeerServer::start(PEER, &["server.py", "skills/tea/SKILL.md"], |python, port| {
        python.args(["server.py", &port.to_string()]);
    });
    let server = server.await;
    let peer = Peer { name: PEER, server: &server, preset: "mcp", endpoint: "/mcp" };
    let alone = run_node("mcp.mjs", server.url("/mcp"), None).await;
    assert!(alone.contains("complete: completion\n"), "{alone}");
    let gate = peer.start_gateway().await;
    assert_eq!(run_node("mcp.mjs", gate.url("/agents/peer/api"), Some(&gate)).await, alone);

    let [alone, through] = peer.run_client_twice("/mcp").await;
    assert_eq!(through, alone);
    let failed: Vec<&str> = alone.lines().filter(|line| line.contains("Error")).collect();
    assert_eq!(failed.len(), METHODS_THAT_FAIL.len(), "{failed:?}");
    assert!(failed.iter().zip(METHODS_THAT_FAIL).all(|(line, expected)| line.starts_with(expected)), "{failed:?}");
}
