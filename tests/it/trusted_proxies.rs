//! Clients behind trusted proxies, and clients that pretend to be behind one. The proxy connects from 127.0.0.9.

use crate::support::{
    agent::Agent,
    certs::CertificateAuthority,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    servers::{client_at, tls_client, tls_listener_section},
    websocket,
};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};

const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A gateway behind 127.0.0.9, which writes the client's address into the header that `client_address` names.
fn behind_proxy(client_address: &str) -> GatewayBuilder {
    gateway().listeners(&format!(
        "listeners:\n  - {{address: 127.0.0.1:0, trusted_proxies: [127.0.0.9], client_address: {client_address}}}\n"
    ))
}

fn proxy() -> reqwest::Client {
    client_at(PROXY).build().unwrap()
}

/// A call with the key of `team-a`.
fn call(client: &reqwest::Client, gate: &Gateway) -> reqwest::RequestBuilder {
    client.post(gate.url("/agents/a/invoke")).header("x-api-key", gate.key("team-a")).json(&json!({}))
}

#[tokio::test]
async fn r5_clients_behind_a_proxy_have_limits_of_their_own_on_one_connection() {
    for (setting, header, of) in [
        (
            "forwarded",
            "forwarded",
            (|address: &str| format!("for=127.0.0.1, for={address};proto=https")) as fn(&str) -> String,
        ),
        ("x_forwarded_for", "x-forwarded-for", |address| format!("127.0.0.1, {address}")),
    ] {
        let agent = Agent::echo().await;
        let gate =
            behind_proxy(setting).agent("a", &agent).section("limits: {per_address: 2/h burst 2}\n").start().await;
        let proxy = proxy();
        let mut statuses = Vec::new();
        for address in ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.2", "192.0.2.2"] {
            statuses.push(send(call(&proxy, &gate).header(header, of(address))).await.status);
        }
        assert_eq!(statuses, [200, 200, 429, 200, 429, 200, 429], "{setting}");
        let peers: Vec<_> =
            gate.access_log(7).await.iter().map(|entry| entry["peer"].as_str().unwrap().to_owned()).collect();
        assert_eq!(peers[..4], ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"], "{setting}");
        let forwarded = agent.requests()[2].header("forwarded").unwrap().to_owned();
        assert!(forwarded.starts_with("for=192.0.2.2;proto=http"), "{forwarded}");
    }
}

#[tokio::test]
async fn r4_forwarding_headers_of_clients_are_neither_believed_nor_passed_on() {
    let agent = Agent::echo().await;
    let (raw, record) = websocket::echo_agent().await;
    let gate = behind_proxy("x_forwarded_for")
        .agent("a", &agent)
        .document(websocket::websocket_document(&raw, "w"))
        .start()
        .await;
    let spoofed = [
        ("x-forwarded-for", "192.0.2.66"),
        ("forwarded", "for=192.0.2.66;host=evil.example"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "192.0.2.66"),
        ("x-forwarded-client-cert", "Subject=\"CN=evil.example\""),
        ("client-cert", ":evil.example:"),
        ("ssl-client-cert", "evil.example"),
        ("x-client-cert", "evil.example"),
    ];
    let here = client_at(Ipv4Addr::LOCALHOST);
    let over_http2 = client_at(Ipv4Addr::LOCALHOST).http2_prior_knowledge();
    for client in [here.build().unwrap(), over_http2.build().unwrap()] {
        let request = spoofed.iter().fold(call(&client, &gate), |request, (name, value)| request.header(*name, *value));
        assert_eq!(send(request).await.status, 200);
    }
    let headers: Vec<_> = spoofed.iter().copied().chain([("x-api-key", gate.key("team-a"))]).collect();
    let (mut socket, _) = websocket::connect_with_headers(&gate, "/agents/w/invoke", &headers).await.unwrap();
    websocket::send_text(&mut socket, "{}").await;
    websocket::receive_text(&mut socket).await;
    drop(socket);
    for request in agent.requests() {
        assert!(!request.head.contains("192.0.2.66") && !request.head.contains("evil.example"), "{}", request.head);
        assert!(request.header("forwarded").unwrap().starts_with("for=127.0.0.1;proto=http"), "{}", request.head);
    }
    for (name, _) in spoofed {
        let received = record.handshake_header(name).unwrap_or_default();
        assert!(!received.contains("192.0.2.66") && !received.contains("evil.example"), "{name}: {received}");
    }
    assert!(gate.access_log(3).await.iter().all(|entry| entry["peer"] == "127.0.0.1"));
}

#[tokio::test]
async fn r4_a_proxys_malformed_header_is_refused_and_only_the_configured_header_is_read() {
    let agent = Agent::echo().await;
    let gate = behind_proxy("forwarded").agent("a", &agent).start().await;
    let proxy = proxy();
    // A client began a quoted string, into which its proxy then wrote the address.
    let hidden = call(&proxy, &gate).header("forwarded", "for=\"127.0.0.1, for=192.0.2.1");
    send(hidden).await.expect_fault(400, "InvalidInput");
    let other = call(&proxy, &gate).header("x-forwarded-for", "192.0.2.66").header("forwarded", "for=192.0.2.1");
    assert_eq!(send(other).await.status, 200);
    assert_eq!(send(call(&proxy, &gate).header("x-forwarded-for", "192.0.2.66")).await.status, 200);
    let log = gate.access_log(3).await;
    let peers: Vec<_> = log.iter().map(|entry| entry["peer"].as_str().unwrap()).collect();
    assert_eq!(peers, ["127.0.0.9", "192.0.2.1", "127.0.0.9"]);
    assert_eq!(agent.call_count(), 2);
}

#[tokio::test]
async fn r3_anonymous_clients_behind_a_proxy_do_not_share_idempotency_keys() {
    let agent = Agent::echo().await;
    let mut document = agent.document("a");
    document["authentication"] = json!({"type": "none"});
    let access = "access:\n  grants:\n    - {callers: [anonymous], agents: ['*']}\n";
    let gate = behind_proxy("x_forwarded_for").document(document).access(access).start().await;
    let proxy = proxy();
    for (address, calls) in [("192.0.2.1", 1), ("192.0.2.2", 2), ("192.0.2.1", 2)] {
        let request = proxy.post(gate.url("/agents/a/invoke")).json(&json!({}));
        let request = request.header("idempotency-key", "k").header("x-forwarded-for", address);
        assert_eq!(send(request).await.status, 200);
        assert_eq!(agent.call_count(), calls, "{address}");
    }
}

#[tokio::test]
async fn r2_the_certificate_of_a_proxy_identifies_none_of_its_clients() {
    let authority = CertificateAuthority::new("authority");
    let agent = Agent::echo().await;
    let mut document = agent.document("a");
    document["authentication"] = json!({"type": "mtls"});
    let build = gateway().section("  mtls: {}\n").document(document);
    std::fs::write(build.folder().join("ca.pem"), authority.pem()).unwrap();
    let section = tls_listener_section(&build, &authority, Some("ca.pem"));
    let section = section.replace(
        "address: 127.0.0.1:0,",
        "address: 127.0.0.1:0, trusted_proxies: [127.0.0.9], client_address: x_forwarded_for,",
    );
    let gate = build.listeners(&section).start().await;
    let issued = authority.client("proxy.example");
    let client = |address| tls_client(&authority, Some(&issued)).local_address(IpAddr::V4(address)).build().unwrap();
    let url = format!("https://localhost:{}/agents/a/invoke", gate.address().port());
    let request = |address| client(address).post(&url).json(&json!({}));
    send(request(PROXY).header("x-forwarded-for", "192.0.2.1")).await.expect_fault(401, "Unauthorized");
    send(request(PROXY)).await.expect_fault(401, "Unauthorized");
    assert_eq!(send(request(Ipv4Addr::LOCALHOST)).await.status, 200, "the certificate of a client counts");
}

#[tokio::test]
async fn the_urls_in_documents_are_those_under_which_the_client_reached_the_proxy() {
    let agent = Agent::echo().await;
    let gate = behind_proxy("forwarded").agent("a", &agent).start().await;
    let card = |client: reqwest::Client| {
        let url = gate.url("/agents/a/agent.json");
        client
            .get(url)
            .header("x-api-key", gate.key("team-a"))
            .header("forwarded", "for=192.0.2.1;proto=https;host=agents.example.com")
    };
    assert!(send(card(proxy())).await.text().contains("https://agents.example.com/agents/a"));
    assert!(!send(card(client_at(Ipv4Addr::LOCALHOST).build().unwrap())).await.text().contains("agents.example.com"));
}
