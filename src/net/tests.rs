//! Address ranges, the address policy, and bounded fetches.

use super::*;
use crate::values::{ByteSize, ConfigDuration};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn cidr_ranges_parse_and_contain_addresses() {
    let contains =
        |range: &str, address: &str| range.parse::<AddressRange>().unwrap().contains((ip(address), 80).into());
    assert!(
        contains("10.0.0.0/8", "10.255.0.1") && contains("0.0.0.0/0", "1.2.3.4") && contains("fd00::/8", "fdff::1")
    );
    assert!(
        contains("127.0.0.1", "127.0.0.1") && contains("127.0.0.0/8", "::ffff:127.0.0.1") && contains("::/0", "::1")
    );
    assert!(!contains("10.0.0.0/8", "11.0.0.1") && !contains("0.0.0.0/0", "::1") && !contains("fd00::/8", "fc00::1"));
    let with_port =
        |range: &str, address: &str| range.parse::<AddressRange>().unwrap().contains(address.parse().unwrap());
    for (range, inside, outside) in [
        ("10.0.0.0/8:443", "10.1.2.3:443", "10.1.2.3:80"),
        ("127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8081"),
        ("fd00::/8:443", "[fd01::1]:443", "[fd01::1]:80"),
        ("[::1]:8080", "[::1]:8080", "[::2]:8080"),
    ] {
        assert!(with_port(range, inside) && !with_port(range, outside), "{range}");
        assert_eq!(
            range.parse::<AddressRange>().unwrap().to_string().parse::<AddressRange>(),
            range.parse(),
            "{range}"
        );
    }
    for text in ["10.0.0.1:0", "10.0.0.1:", "10.0.0.0/8:x", "10.0.0.1:70000", "[::1]", "[::1]8080"] {
        assert!(text.parse::<AddressRange>().is_err(), "{text}");
    }
    for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "example.org", "10.0.0.0/8/8"] {
        assert!(text.parse::<AddressRange>().is_err(), "{text}");
    }
}

#[test]
fn r41_special_addresses_are_denied_in_every_spelling() {
    let policy = AddressPolicy::default();
    let denied = [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:ec2::254",
        "64:ff9b::6464:64c8",
    ];
    for text in denied {
        assert!(!policy.permits_address((ip(text), 80).into()), "{text}");
    }
    for text in ["10.0.0.1", "172.16.0.1", "192.168.1.1", "203.0.113.7", "2001:db8::1", "fd12::1", "64:ff9b::a00:1"] {
        assert!(policy.permits_address((ip(text), 80).into()), "{text}");
    }
}

#[test]
fn r41_private_networks_can_be_closed() {
    let open = NetworkConfig::default();
    let closed = NetworkConfig {
        allow_private_addresses: false,
        allowed_addresses: vec!["10.1.0.0/16:443".parse().unwrap()],
        ..NetworkConfig::default()
    };
    for (address, expected) in
        [("10.0.0.1:443", false), ("10.1.0.1:443", true), ("10.1.0.1:80", false), ("203.0.113.7:80", true)]
    {
        assert!(open.policy().permits_address(address.parse().unwrap()));
        assert_eq!(closed.policy().permits_address(address.parse().unwrap()), expected, "{address}");
    }
}

#[test]
fn listed_ranges_are_allowed_except_the_gateways_own_listeners() {
    let policy = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert!(policy.permits_address(address("127.0.0.1:80")));
    assert!(!policy.permits_address(address("[::1]:80")) && !policy.permits_address(address("169.254.169.254:80")));
    policy.set_own_listeners(vec![address("0.0.0.0:80"), address("127.0.0.1:9000")]);
    assert!(!policy.permits_address(address("127.0.0.1:80")) && !policy.permits_address(address("127.9.9.9:80")));
    assert!(!policy.permits_address(address("127.0.0.1:9000")) && policy.permits_address(address("127.0.0.2:9000")));
    assert!(!policy.permits_address(address("[::ffff:127.0.0.1]:80")));
}

#[test]
fn r41_a_unix_socket_must_be_listed_and_have_no_parent_component() {
    let policy = AddressPolicy::default().with_unix_sockets(vec!["/run/agents/*.sock".parse().unwrap()]);
    let permits = |path: &str| policy.permits_unix_socket(std::path::Path::new(path));
    assert!(permits("/run/agents/a.sock") && permits("/run/agents/b/c.sock"));
    for path in ["/run/docker.sock", "/run/agents/../docker.sock", "run/agents/a.sock", "/run/agents/a", ""] {
        assert!(!permits(path), "{path}");
    }
    assert!(!AddressPolicy::new(vec!["0.0.0.0/0".parse().unwrap()]).permits_unix_socket("/run/a.sock".as_ref()));
}

#[tokio::test]
async fn every_address_of_a_name_is_checked() {
    let closed = AddressPolicy::default();
    for host in ["localhost", "127.0.0.1", "[::1]", "127.1", "2130706433", "0x7f000001", "::ffff:127.0.0.1"] {
        assert!(resolve_host(host, 80, &closed).await.is_err(), "{host}");
    }
    let open = AddressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let addresses = resolve_host("localhost", 80, &open).await.unwrap();
    assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
    assert_eq!(resolve_host("10.1.2.3", 81, &closed).await.unwrap(), ["10.1.2.3:81".parse().unwrap()]);
}

#[tokio::test]
async fn a_name_without_an_address_is_an_error() {
    for host in ["", "no such host", "nowhere.invalid", "a..b", "[::1", &"a".repeat(300)] {
        assert!(
            matches!(resolve_host(host, 80, &AddressPolicy::default()).await, Err(ResolveError::NoAddress { .. })),
            "{host}"
        );
    }
}

/// Starts a server that sends `response` on every connection, and then closes it if `close`.
async fn server(response: Vec<u8>, close: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let response = response.clone();
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(&response).await;
                if !close {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

fn client(config: &NetworkConfig) -> FetchClient {
    FetchClient::build(config, Arc::new(AddressPolicy::new(config.allowed_addresses.clone()))).unwrap()
}

const LIMITS: FetchLimits = FetchLimits { size: ByteSize::from_bytes(64), time: ConfigDuration::from_millis(300) };

async fn fetch(response: &str, close: bool) -> Result<serde_json::Value, FetchError> {
    let address = server(response.as_bytes().to_vec(), close).await;
    client(&NetworkConfig::default()).fetch_json(&format!("http://{address}/"), UrlTrust::Operator, LIMITS).await
}

#[tokio::test]
async fn a_document_within_the_limits_is_returned() {
    let document = fetch("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}", true).await.unwrap();
    assert_eq!(document, serde_json::json!({"a": 1}));
}

#[tokio::test]
async fn responses_beyond_the_limits_truncated_or_redirected_are_refused() {
    let long = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\"{}\"", "x".repeat(100));
    assert!(matches!(fetch(&long, true).await, Err(FetchError::TooLarge { .. })));
    let large = "HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n";
    assert!(matches!(fetch(large, false).await, Err(FetchError::TooLarge { .. })));
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{}";
    assert!(matches!(fetch(cut, true).await, Err(FetchError::Failed { .. })));
    assert!(matches!(fetch(cut, false).await, Err(FetchError::Failed { .. })), "the timeout covers the body");
    assert!(matches!(fetch("", false).await, Err(FetchError::Failed { .. })), "the timeout covers the head");
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
    assert!(matches!(fetch(moved, true).await, Err(FetchError::Status { status: 302, .. })));
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    assert!(matches!(fetch(text, true).await, Err(FetchError::Invalid { .. })));
}

#[tokio::test]
async fn untrusted_urls_are_subject_to_the_address_policy() {
    let address = server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec(), true).await;
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{}/", address.port());
        let closed = client(&NetworkConfig::default()).get(&url, UrlTrust::Untrusted, LIMITS).await;
        assert!(closed.is_err(), "{host}");
    }
    let open =
        client(&NetworkConfig { allowed_addresses: vec!["127.0.0.0/8".parse().unwrap()], ..NetworkConfig::default() });
    assert_eq!(
        open.get(&format!("http://localhost:{}/", address.port()), UrlTrust::Untrusted, LIMITS).await.unwrap().status,
        200
    );
}

#[tokio::test]
async fn a_listed_port_applies_to_names_as_it_does_to_addresses() {
    let address = server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec(), true).await;
    let other = server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec(), true).await;
    let allowed = vec![format!("127.0.0.0/8:{}", address.port()).parse().unwrap()];
    let client = client(&NetworkConfig { allowed_addresses: allowed, ..NetworkConfig::default() });
    for host in ["localhost", "127.0.0.1"] {
        let url = |port: u16| format!("http://{host}:{port}/");
        let listed = client.get(&url(address.port()), UrlTrust::Untrusted, LIMITS).await;
        assert_eq!(listed.unwrap().status, 200, "{host}");
        let denied = client.get(&url(other.port()), UrlTrust::Untrusted, LIMITS).await;
        assert!(matches!(denied, Err(FetchError::Denied { .. })), "{host}");
    }
    client.policy.set_own_listeners(vec![address]);
    let own = format!("http://localhost:{}/", address.port());
    assert!(matches!(client.get(&own, UrlTrust::Untrusted, LIMITS).await, Err(FetchError::Denied { .. })));
}

#[test]
fn plain_http_to_another_machine_must_be_allowed_explicitly() {
    let strict = client(&NetworkConfig::default());
    for url in
        ["http://example.org/", "ftp://example.org/", "file:///etc/passwd", "https://a:b@example.org/", "x", "https://"]
    {
        assert!(strict.check_url(url).is_err(), "{url}");
    }
    for url in ["https://example.org/", "http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost/"] {
        assert!(strict.check_url(url).is_ok(), "{url}");
    }
    assert!(
        client(&NetworkConfig { allow_plaintext: true, ..NetworkConfig::default() })
            .check_url("http://example.org/")
            .is_ok()
    );
}

#[test]
fn a_ca_file_without_a_certificate_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for ca in [file.path(), std::path::Path::new("/nowhere/ca.pem")] {
        let config = NetworkConfig { ca: Some(ca.into()), ..NetworkConfig::default() };
        let problems = FetchClient::build(&config, Arc::default()).unwrap_err();
        assert!(problems.iter().all(|problem| problem.starts_with("ca: ")), "{problems:?}");
    }
}

#[tokio::test]
async fn only_the_configured_authority_is_trusted_besides_the_systems() {
    install_crypto_provider();
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.cert.der().clone()], key.into()).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
            }
        }
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate.cert.pem()).unwrap();
    let limits = FetchLimits { size: ByteSize::from_kib(1), time: ConfigDuration::from_secs(10) };
    let fetch = async |ca: Option<&std::path::Path>, host: &str| {
        let config = NetworkConfig { ca: ca.map(Into::into), ..NetworkConfig::default() };
        client(&config).get(&format!("https://{host}:{port}/"), UrlTrust::Operator, limits).await
    };
    assert_eq!(fetch(Some(file.path()), "localhost").await.unwrap().status, 200);
    assert!(fetch(None, "localhost").await.is_err());
    assert!(fetch(Some(file.path()), "127.0.0.1").await.is_err(), "the certificate must be valid for the name");
}
