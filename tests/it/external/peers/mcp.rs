//! An MCP server behind the gateway, used by the clients of fastmcp and of the MCP SDK, in both eras of the protocol.

use super::{run_client, run_script, server::PeerServer};
use crate::support::gateway::gateway;
use serde_json::json;

const PEER: &str = "peers/mcp";

#[tokio::test]
async fn r30_the_clients_of_fastmcp_and_the_mcp_sdk_work_through_the_gateway() {
    let server = PeerServer::start(PEER, &["server.py"], |python, port| {
        python.arg("server.py").arg(port.to_string());
    })
    .await;
    let url = server.url("/mcp");
    let direct = tokio::task::spawn_blocking(move || run_script(PEER, &url, None)).await.unwrap();
    assert!(direct.status.success(), "without the gateway: {}", String::from_utf8_lossy(&direct.stderr));
    let document =
        json!({"id": "tools", "name": "Tools", "endpoint": server.url("/mcp"), "authentication": {"type": "api_key"}});
    let rules = "agents:\n  sources: [agents.json]\n  rules:\n    - {agents: [tools], api: {preset: mcp}}\n";
    let gate = gateway().document(document).section(rules).start().await;
    assert_eq!(run_client(PEER, &gate, "/agents/tools/api").await.trim(), "ok");
}
