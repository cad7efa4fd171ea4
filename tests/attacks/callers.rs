//! Requests as a hostile caller sends them.

use super::resident_bytes;
use crate::support::{
    agent::{Agent, Step},
    eventually,
    gateway::{gateway, send},
    websocket,
};
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

/// Fields that proxies and frameworks set for the programs behind them, in spellings that such programs accept.
const IDENTITY_CLAIMS: [&str; 12] = [
    "x-internal-token",
    "x_internal_token",
    "x-remote-user",
    "remote_user",
    "remote-groups",
    "cf-access-jwt-assertion",
    "x-goog-iap-jwt-assertion",
    "x-tenant-id",
    "x-user-id",
    "x-forwarded-user",
    "x-gatepost-caller",
    "from",
];

#[tokio::test]
async fn r4_fields_that_claim_an_identity_reach_no_agent_over_any_protocol() {
    let agent = Agent::echo().await;
    let (raw, record) = websocket::echo_agent().await;
    let gate = gateway().agent("a", &agent).document(websocket::websocket_document(&raw, "w")).start().await;
    let http1 = reqwest::Client::builder().no_proxy().build().unwrap();
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    for client in [http1, http2] {
        for with_underscores in [true, false] {
            let request = client.post(gate.url("/agents/a/invoke")).header("x-api-key", gate.key("team-a"));
            let claims = IDENTITY_CLAIMS.iter().filter(|name| with_underscores || !name.contains('_'));
            let request = claims.fold(request, |request, name| request.header(*name, "claimed"));
            let status = send(request.header("x-correlation-id", "c-1").json(&json!({}))).await.status;
            assert_eq!(status, 200, "the fields are left out");
        }
    }
    let claims = IDENTITY_CLAIMS.iter().filter(|name| !name.contains('_')).map(|name| (*name, "claimed"));
    let headers: Vec<_> = claims.chain([("x-api-key", gate.key("team-a"))]).collect();
    let (mut socket, _) = websocket::connect_with_headers(&gate, "/agents/w/invoke", &headers).await.unwrap();
    websocket::send_text(&mut socket, "{}").await;
    websocket::receive_text(&mut socket).await;
    assert!(agent.call_count() >= 2);
    for request in agent.requests() {
        assert!(!request.head.contains("claimed"), "{}", request.head);
        assert_eq!(request.header("x-correlation-id"), Some("c-1"));
    }
    for name in IDENTITY_CLAIMS {
        assert_eq!(record.handshake_header(name), None, "{name}");
    }
}

/// Tasks of one caller whose webhooks hang: more than the gateway delivers at once.
const HANGING_WEBHOOKS: usize = 120;

#[tokio::test]
async fn r79_webhooks_that_hang_delay_no_webhook_to_another_receiver() {
    let agent = Agent::echo().await;
    let (hanging, honest) = (Agent::with_steps(vec![Step::Hang]).await, Agent::echo().await);
    let tasks =
        "tasks:\n  sqlite_file: tasks.db\n  callbacks: {secret: env:HOOK_SECRET, allowed_addresses: [127.0.0.0/8]}\n";
    let build = gateway().section(tasks).caller("team-b", &[]).env("HOOK_SECRET", "0123456789abcdef0123456789abcdef");
    let gate = build.agent("echo", &agent).start().await;
    let start_task = async |caller: &str, receiver: &Agent| {
        let call = gate.request("POST", "/agents/echo/invoke").header("x-api-key", gate.key(caller));
        let call = call.header("x-callback-url", format!("http://{}/hook", receiver.address));
        assert_eq!(send(call.json(&json!({}))).await.status, 202);
    };
    for _ in 0..HANGING_WEBHOOKS {
        start_task("team-a", &hanging).await;
    }
    eventually("webhooks hang", async || hanging.call_count() >= 10).await;
    // Another caller's webhook, and one of the same caller to another receiver.
    for (caller, delivered) in [("team-b", 1), ("team-a", 2)] {
        let started = std::time::Instant::now();
        start_task(caller, &honest).await;
        eventually("the webhook arrives", async || honest.call_count() == delivered).await;
        println!("{caller}: a webhook beside {HANGING_WEBHOOKS} that hang takes {:?}", started.elapsed());
        assert!(started.elapsed().as_secs() < 6, "{caller}: {:?}", started.elapsed());
    }
    assert!(hanging.call_count() <= 40, "one receiver has {} of the places", hanging.call_count());
}
