//! The gateway behind HAProxy in TCP mode (PROXY protocol, with the client's own TLS handshake), and behind nginx
//! (`Forwarded` and `X-Forwarded-For`, many clients over one connection). Clients connect from addresses of 127.0.0.0/8.

use super::support::reverse_proxy::{PROXY_ADDRESS, ReverseProxy};
use crate::support::{
    agent::Agent,
    certs::CertificateAuthority,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    servers::{client_at, tls_client, tls_listener_section},
};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const FIRST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 21);
const SECOND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 22);

fn listeners(client_address: &str) -> String {
    format!(
        "listeners:\n  - {{address: 127.0.0.1:0, trusted_proxies: [{PROXY_ADDRESS}], client_address: {client_address}}}\n"
    )
}

/// Calls the agent `a` through a proxy with the key of `team-a`.
async fn call_through(proxy: &ReverseProxy, gate: &Gateway, client: &reqwest::Client, headers: &[(&str, &str)]) -> u16 {
    let url = format!("http://127.0.0.1:{}/agents/a/invoke", proxy.port);
    let request = client.post(url).header("x-api-key", gate.key("team-a")).json(&json!({}));
    send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await.status
}

fn limited(build: GatewayBuilder) -> GatewayBuilder {
    build.section("limits: {per_address: 2/h burst 2}\n")
}

fn peers(log: &[Value]) -> Vec<&str> {
    log.iter().map(|entry| entry["peer"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn r5_clients_behind_haproxy_have_limits_and_log_entries_of_their_own() {
    for option in ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id,ssl,cert-cn"] {
        let agent = Agent::echo().await;
        let gate = limited(gateway().listeners(&listeners("proxy_protocol")).agent("a", &agent)).start().await;
        let proxy = ReverseProxy::haproxy(gate.address().port(), option).await;
        let clients = [FIRST, SECOND].map(|address| client_at(address).build().unwrap());
        let mut statuses = Vec::new();
        for client in [0, 0, 0, 1, 1, 1] {
            statuses.push(call_through(&proxy, &gate, &clients[client], &[("x-forwarded-for", "192.0.2.66")]).await);
        }
        assert_eq!(statuses, [200, 200, 429, 200, 200, 429], "{option}");
        let log = gate.access_log(6).await;
        let (first, second) = (FIRST.to_string(), SECOND.to_string());
        assert_eq!(peers(&log), [&first, &first, &first, &second, &second, &second], "{option}");
        let forwarded: Vec<_> =
            agent.requests().iter().map(|request| request.header("forwarded").unwrap().to_owned()).collect();
        assert!(
            forwarded[0].starts_with(&format!("for={first};")) && forwarded[2].starts_with(&format!("for={second};"))
        );
        assert!(agent.requests().iter().all(|request| !request.head.contains("192.0.2.66")), "{option}");
        assert!(!gate.stderr().contains("PROXY protocol"), "{}", gate.stderr());
    }
}

#[tokio::test]
async fn r2_a_client_certificate_passes_haproxy_and_identifies_its_own_client() {
    for option in ["send-proxy", "send-proxy-v2"] {
        let authority = CertificateAuthority::new("authority");
        let agent = Agent::echo().await;
        let mut document = agent.document("a");
        document["authentication"] = json!({"type": "mtls"});
        let build = gateway().section("  mtls: {}\n").document(document);
        std::fs::write(build.folder().join("ca.pem"), authority.pem()).unwrap();
        let section = tls_listener_section(&build, &authority, Some("ca.pem")).replace(
            "address: 127.0.0.1:0,",
            &format!("address: 127.0.0.1:0, trusted_proxies: [{PROXY_ADDRESS}], client_address: proxy_protocol,"),
        );
        let gate = build.listeners(&section).start().await;
        let proxy = ReverseProxy::haproxy(gate.address().port(), option).await;
        let url = format!("https://localhost:{}/agents/a/invoke", proxy.port);
        for (address, name) in [(FIRST, "first.example"), (SECOND, "second.example")] {
            let issued = authority.client(name);
            let client = tls_client(&authority, Some(&issued)).local_address(IpAddr::V4(address)).build().unwrap();
            let forged = "Subject=\"CN=forged.example\"";
            let request = client.post(&url).header("x-forwarded-client-cert", forged).json(&json!({}));
            assert_eq!(send(request).await.status, 200, "{option}");
        }
        let log = gate.access_log(2).await;
        for (entry, (address, name)) in log.iter().zip([(FIRST, "first.example"), (SECOND, "second.example")]) {
            assert_eq!(entry["peer"], address.to_string(), "{option}");
            assert_eq!(entry["caller"], format!("cert:dns:{name}"), "{option}");
        }
        assert!(agent.requests().iter().all(|request| !request.head.contains("forged.example")));
    }
}

#[tokio::test]
async fn r5_clients_behind_nginx_have_limits_and_log_entries_of_their_own_on_one_connection() {
    for (client_address, line, spoofed) in [
        ("x_forwarded_for", "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;", "x-forwarded-for"),
        ("forwarded", "proxy_set_header Forwarded \"$http_forwarded, for=$remote_addr;proto=$scheme\";", "forwarded"),
        (
            "forwarded",
            "proxy_set_header Forwarded \"for=$remote_addr;proto=$scheme;host=\\\"$http_host\\\"\";",
            "forwarded",
        ),
    ] {
        let agent = Agent::echo().await;
        let gate = limited(gateway().listeners(&listeners(client_address)).agent("a", &agent)).start().await;
        let proxy = ReverseProxy::nginx(gate.address().port(), line).await;
        let clients = [FIRST, SECOND].map(|address| client_at(address).build().unwrap());
        let mut statuses = Vec::new();
        for client in [0, 1, 0, 1, 0, 1] {
            let invented = if spoofed == "forwarded" { "for=192.0.2.66" } else { "192.0.2.66" };
            statuses.push(call_through(&proxy, &gate, &clients[client], &[(spoofed, invented)]).await);
        }
        assert_eq!(statuses, [200, 200, 200, 200, 429, 429], "{line}");
        let log = gate.access_log(6).await;
        let (first, second) = (FIRST.to_string(), SECOND.to_string());
        assert_eq!(peers(&log), [&first, &second, &first, &second, &first, &second], "{line}");
        for (request, address) in agent.requests().iter().zip([&first, &second, &first, &second]) {
            assert!(request.header("forwarded").unwrap().starts_with(&format!("for={address};proto=http")));
            assert!(!request.head.contains("192.0.2.66"), "{}", request.head);
        }
        let connections = gate.metric("gatepost_connections_total{result=\"accepted\"}").await;
        assert!(connections.is_some_and(|connections| connections < 6.0), "nginx reuses connections: {connections:?}");
    }
}

#[tokio::test]
async fn r4_a_quoted_string_that_a_client_begins_does_not_swallow_what_nginx_appends() {
    let agent = Agent::echo().await;
    let gate = gateway().listeners(&listeners("forwarded")).agent("a", &agent).start().await;
    let line = "proxy_set_header Forwarded \"$http_forwarded, for=$remote_addr\";";
    let proxy = ReverseProxy::nginx(gate.address().port(), line).await;
    let client = client_at(FIRST).build().unwrap();
    let begun = [("forwarded", "for=127.0.0.1;x=\"")];
    assert_eq!(call_through(&proxy, &gate, &client, &begun).await, 400);
    assert_eq!(agent.call_count(), 0);
    assert_eq!(call_through(&proxy, &gate, &client, &[]).await, 200);
}

#[tokio::test]
async fn r4_clients_that_reach_the_gateway_past_its_proxies_are_not_believed() {
    let agent = Agent::echo().await;
    let gate = gateway().listeners(&listeners("proxy_protocol")).agent("a", &agent).start().await;
    let header = "PROXY TCP4 192.0.2.66 127.0.0.1 4711 443\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut direct = TcpStream::connect(gate.address()).await.unwrap();
    direct.write_all(header.as_bytes()).await.unwrap();
    let mut response = String::new();
    direct.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    gate.invoke("a", &json!({})).await.expect_ok();
    let log = gate.access_log(2).await;
    assert_eq!(peers(&log), ["127.0.0.1", "127.0.0.1"]);
    // A proxy that does not send the header is closed, logged and counted.
    let proxy = ReverseProxy::haproxy(gate.address().port(), "").await;
    let url = format!("http://127.0.0.1:{}/agents/a/invoke", proxy.port);
    client_at(FIRST).build().unwrap().post(url).json(&json!({})).send().await.unwrap_err();
    assert!(gate.metric("gatepost_connections_total{result=\"proxy_header_invalid\"}").await >= Some(1.0));
    assert!(gate.stderr().contains("no valid PROXY protocol header"), "{}", gate.stderr());
    assert_eq!(agent.call_count(), 1);
}
