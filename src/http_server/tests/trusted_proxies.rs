//! Connections of trusted proxies with the PROXY protocol, and of peers that only pretend to be proxies.

use super::{
    tls::{ALL_VERSIONS, TestPki, get_facts},
    *,
};
use crate::values::AddressRange;
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

const FACTS: &str = "GET /facts HTTP/1.1\r\nHost: a\r\n\r\n";
const V1: &str = "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n";

fn behind_proxies(networks: &[&str], config: ListenerConfig) -> ListenerConfig {
    ListenerConfig {
        trusted_proxies: networks.iter().map(|network| network.parse::<AddressRange>().unwrap()).collect(),
        client_address: ClientAddressSource::ProxyProtocol,
        ..config
    }
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_before_the_request() {
    let server = start_server(&behind_proxies(&["127.0.0.0/8"], plain_listener()), short_timeouts());
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x08\x0a\0\0\x01\x12\x67\x01\xbb".to_vec();
    v2.extend_from_slice(FACTS.as_bytes());
    let unknown = format!("PROXY UNKNOWN\r\n{FACTS}");
    for (bytes, client) in [
        (format!("{V1}{FACTS}").into_bytes(), "\"192.0.2.7:4711\""),
        (v2, "\"192.0.2.8:4711\""),
        (unknown.into_bytes(), "\"127.0.0.1:"),
    ] {
        let mut client_connection = server.connect().await;
        client_connection.send(&bytes).await;
        let response = client_connection.read_response().await.unwrap();
        assert!(response.body.contains(client), "{}", response.body);
        // The header is the connection's: the next request has none.
        client_connection.send(FACTS).await;
        assert!(client_connection.read_response().await.unwrap().body.contains(client));
    }
    assert_eq!(server.metric_sum("proxy_header_invalid"), 0);
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_before_the_tls_handshake() {
    let pki = TestPki::new();
    let server = start_server(&behind_proxies(&["127.0.0.1"], pki.config()), short_timeouts());
    let mut tcp = TcpStream::connect(server.address).await.unwrap();
    tcp.write_all(V1.as_bytes()).await.unwrap();
    let name = ServerName::try_from("gateway.example").unwrap();
    let tls = TlsConnector::from(pki.client(ALL_VERSIONS, &[], None)).connect(name, tcp).await.unwrap();
    assert_eq!(get_facts(&mut RawClient(tls)).await.unwrap()["peer"], "192.0.2.7:4711");
}

#[tokio::test]
async fn connections_through_a_proxy_count_for_their_client() {
    let limits = ConnectionLimits { max_connections_per_address: Some(2), ..short_timeouts() };
    let server = start_server(&behind_proxies(&["127.0.0.0/8"], plain_listener()), limits);
    let mut open = Vec::new();
    for (client, is_served) in [(7, true), (7, true), (7, false), (8, true), (8, true), (8, false), (9, true)] {
        let mut connection = server.connect().await;
        connection.send(format!("PROXY TCP4 192.0.2.{client} 10.0.0.1 4711 443\r\n{FACTS}")).await;
        assert_eq!(connection.read_response().await.is_some(), is_served, "{client}");
        open.push(connection);
    }
    assert_eq!(server.metric_sum("refused_address"), 2);
}

#[tokio::test]
async fn a_proxy_without_a_valid_header_is_disconnected_and_counted() {
    let server = start_server(&behind_proxies(&["127.0.0.0/8"], plain_listener()), short_timeouts());
    for bytes in [FACTS.to_owned(), format!("PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n{FACTS}"), "PROXY TCP4 ".to_owned()]
    {
        let mut client = server.connect().await;
        client.send(&bytes).await;
        assert_eq!(client.read_to_end().await, "", "{bytes:?}");
    }
    until("all are counted", || server.metric_sum("proxy_header_invalid") == 3).await;
    // A health check that only connects is no error.
    drop(server.connect().await);
    until("the connection ends", || server.http_server.open_connections() == 0).await;
    assert_eq!(server.metric_sum("proxy_header_invalid"), 3);
    assert_eq!(server.echo.served.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_header_of_a_peer_that_is_no_proxy_is_an_invalid_request() {
    let server = start_server(&behind_proxies(&["10.0.0.0/8"], plain_listener()), short_timeouts());
    let mut client = server.connect().await;
    client.send(format!("{V1}{FACTS}")).await;
    assert_eq!(client.read_response().await.unwrap().status, 400);
    let mut direct = server.connect().await;
    direct.send(FACTS).await;
    assert!(direct.read_response().await.unwrap().body.contains("\"127.0.0.1:"));
}

#[test]
fn proxies_and_the_place_of_the_address_belong_together() {
    let problems = |networks: &[&str], client_address| {
        ListenerConfig { client_address, ..behind_proxies(networks, plain_listener()) }.problems().join("; ")
    };
    use ClientAddressSource::{Connection, Forwarded, ProxyProtocol};
    assert_eq!(problems(&["10.0.0.0/8", "fd00::/8", "::1"], ProxyProtocol), "");
    assert_eq!(problems(&[], Connection), "");
    assert!(problems(&["10.0.0.0/8"], Connection).starts_with("client_address: is missing"));
    assert!(problems(&[], Forwarded).starts_with("client_address: has no effect"));
    for everyone in [&["0.0.0.0/0"][..], &["0.0.0.0/1", "128.0.0.0/1"], &["::/0"], &["2000::/3"]] {
        assert!(problems(everyone, Forwarded).contains("trusts clients of the whole internet"), "{everyone:?}");
    }
    assert!(problems(&["::ffff:0:0/96"], Forwarded).contains("matches no proxy"));
    assert_eq!(problems(&["10.0.0.0/8", "fc00::/7", "192.0.2.7"], Forwarded), "");
    assert!(problems(&["10.0.0.1:443"], Forwarded).contains("has a port"));
}
