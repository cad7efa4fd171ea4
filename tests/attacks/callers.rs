//! Requests as a hostile caller sends them.

use super::resident_bytes;
use crate::support::{agent::Agent, eventually, gateway::gateway};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// Connections that each declare a body of almost 1 MiB and send one byte of it.
const CONNECTIONS: usize = 300;

#[tokio::test]
async fn r127_a_declared_length_reserves_no_memory() {
    let agent = Agent::echo().await;
    let mut document = agent.document("a");
    document["inputs"] = json!({"type": "object"});
    let gate = gateway().document(document).start().await;
    gate.invoke("a", &json!({})).await.expect_ok();
    let before = resident_bytes(&gate);
    let head = format!(
        "POST /agents/a/invoke HTTP/1.1\r\nhost: x\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
         content-length: 1048000\r\n\r\n{{",
        gate.key("team-a")
    );
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = TcpStream::connect(gate.address()).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connections.push(connection);
    }
    eventually("the gateway reads every body", async || {
        gate.metric("gatepost_calls_in_flight").await.is_some_and(|calls| calls >= CONNECTIONS as f64)
    })
    .await;
    let cost = resident_bytes(&gate).saturating_sub(before);
    println!("{CONNECTIONS} declared bodies: {} KiB each", (cost >> 10) / CONNECTIONS as u64);
    assert!(cost < CONNECTIONS as u64 * (256 << 10), "{} MiB", cost >> 20);
    gate.invoke("a", &json!({})).await.expect_ok();
}
