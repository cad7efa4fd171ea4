//! Headers that name a client, valid and malformed: none panics, and a malformed one names no client.

use super::{
    forwarded_header::{ForwardedClient, client_from_forwarded, client_from_x_forwarded_for},
    proxy_protocol::{ProxyHeaderError, read_proxy_header},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::net::{IpAddr, SocketAddr};

const PROXY: &str = "10.0.0.1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn is_proxy(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.octets()[0] == 10)
}

fn fields(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    headers
}

fn forwarded(lines: &[&str]) -> Option<ForwardedClient> {
    let lines: Vec<_> = lines.iter().map(|line| ("forwarded", line.as_bytes())).collect();
    client_from_forwarded(&fields(&lines), ip(PROXY), is_proxy)
}

fn x_forwarded_for(lines: &[&str]) -> Option<IpAddr> {
    let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
    client_from_x_forwarded_for(&fields(&lines), ip(PROXY), is_proxy).map(|client| client.address)
}

/// Reads a header, and checks that the bytes after it are left.
async fn read_header(header: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let bytes = [header, b"GET /"].concat();
    let mut stream = bytes.as_slice();
    let client = read_proxy_header(&mut stream).await?;
    assert_eq!(stream, b"GET /", "what follows the header is not read");
    Ok(client)
}

/// A header of version 2 with the command PROXY.
fn v2(family: u8, payload: &[u8]) -> Vec<u8> {
    v2_with_command(0x21, family, payload)
}

fn v2_with_command(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[command, family], &length, payload].concat()
}

const IPV4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb];

#[tokio::test]
async fn version_1_headers_name_the_client() {
    for (header, client) in [
        ("PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\r\n", Some("192.0.2.7:12345")),
        ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", Some("255.255.255.255:65535")),
        ("PROXY TCP6 2001:db8::7 ::1 12345 443\r\n", Some("[2001:db8::7]:12345")),
        ("PROXY TCP6 ::ffff:192.0.2.7 ::1 0 443\r\n", Some("192.0.2.7:0")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    ] {
        let expected = client.map(|client| client.parse().unwrap());
        assert_eq!(read_header(header.as_bytes()).await.unwrap(), expected, "{header}");
    }
}

#[tokio::test]
async fn malformed_version_1_headers_are_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "a".repeat(100));
    for header in [
        "PROXY TCP4 192.0.2.7 10.0.0.1 12345 443\n",
        "PROXY TCP4 192.0.2.7 10.0.0.1 12345\r\n",
        "PROXY TCP4 192.0.2.7 10.0.0.1 12345 443 1\r\n",
        "PROXY TCP4  192.0.2.7 10.0.0.1 12345 443\r\n",
        "PROXY TCP4 192.0.2.7 10.0.0.1 012345 443\r\n",
        "PROXY TCP4 192.0.2.7 10.0.0.1 65536 443\r\n",
        "PROXY TCP4 192.0.2.7 10.0.0.1 +1 443\r\n",
        "PROXY TCP4 192.0.2.7 10.0.0.1 1 \r\n",
        "PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n",
        "PROXY TCP4 192.0.02.7 10.0.0.1 1 2\r\n",
        "PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
        "PROXY TCP4 192.0.2.7 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.7 10.0.0.1 1 2\r\n",
        "PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n",
        "PROXY TCP4 192.0.2.7\0 10.0.0.1 1 2\r\n",
        "PROXY \r\n\r\n\r\n\r\n",
        "proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n",
        "PROXYTCP4 192.0.2.7 10.0.0.1 1 2\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{fc}\u{3}\u{3}aaaaaaaaaa",
        long.as_str(),
    ] {
        let error = read_header(header.as_bytes()).await.unwrap_err();
        assert!(matches!(error, ProxyHeaderError::Malformed(_)), "{header:?}: {error}");
    }
    let not_ascii = read_header(b"PROXY TCP4 192.0.2.7 10.0.0.1 1 \xff\r\n").await;
    assert!(matches!(not_ascii, Err(ProxyHeaderError::Malformed(_))));
}

#[tokio::test]
async fn version_2_headers_name_the_client() {
    let ipv6 =
        [&"2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets()[..], &[0; 16], &[0x30, 0x39, 1, 0xbb]].concat();
    let tlvs: Vec<u8> = [&IPV4[..], &[0x01, 0, 2, b'h', b'2', 0x04, 0, 0, 0x05, 0, 1, b'x']].concat();
    for (header, client) in [
        (v2(0x11, &IPV4), Some("192.0.2.7:12345")),
        (v2(0x11, &tlvs), Some("192.0.2.7:12345")),
        (v2(0x21, &ipv6), Some("[2001:db8::7]:12345")),
        (v2(0x31, &[b'/'; 216]), None),
        (v2(0x00, &[]), None),
        (v2(0x00, &[1, 2, 3]), None),
        (v2_with_command(0x20, 0x11, &IPV4), None),
        (v2_with_command(0x20, 0xff, &[0xff; 5]), None),
        (v2_with_command(0x20, 0, &[]), None),
    ] {
        let expected = client.map(|client| client.parse().unwrap());
        assert_eq!(read_header(&header).await.unwrap(), expected, "{header:?}");
    }
}

#[tokio::test]
async fn malformed_version_2_headers_are_refused() {
    let with_tlv = |tlv: &[u8]| v2(0x11, &[&IPV4[..], tlv].concat());
    for header in [
        v2_with_command(0x11, 0x11, &IPV4),
        v2_with_command(0x31, 0x11, &IPV4),
        v2_with_command(0x22, 0x11, &IPV4),
        v2_with_command(0x2f, 0x11, &IPV4),
        v2(0x11, &IPV4[..11]),
        v2(0x11, &[]),
        v2(0x21, &[0; 35]),
        v2(0x31, &[0; 215]),
        v2(0x12, &IPV4),
        v2(0x10, &IPV4),
        v2(0x22, &[0; 36]),
        v2(0x41, &IPV4),
        v2(0xff, &IPV4),
        v2(0x11, &[0; 5000]),
        with_tlv(&[1]),
        with_tlv(&[1, 0]),
        with_tlv(&[1, 0, 1]),
        with_tlv(&[1, 0xff, 0xff, 1]),
        with_tlv(&[4, 0, 0, 9]),
        with_tlv(&[3, 0, 4, 0, 0, 0, 0]),
        with_tlv(&[3, 0, 3, 0, 0, 0]),
        with_tlv(&[3, 0, 0]),
    ] {
        let error = read_header(&header).await.unwrap_err();
        assert!(matches!(error, ProxyHeaderError::Malformed(_)), "{header:?}: {error}");
    }
}

#[tokio::test]
async fn the_checksum_of_a_version_2_header_is_checked() {
    let header = v2(0x11, &[&IPV4[..], &[1, 0, 2, b'h', b'2', 3, 0, 4, 0, 0, 0, 0]].concat());
    // An independent implementation: bit by bit, most significant first, on reflected bytes.
    let mut crc = u32::MAX;
    for bit in header.iter().flat_map(|byte| (0..8).map(move |at| byte >> at & 1)) {
        let carry = (crc >> 31) ^ u32::from(bit);
        crc = (crc << 1) ^ (0x1edc_6f41 * carry);
    }
    let checksum = (!crc.reverse_bits()).to_be_bytes();
    let mut valid = header.clone();
    let at = valid.len() - 4;
    valid[at..].copy_from_slice(&checksum);
    assert_eq!(read_header(&valid).await.unwrap(), Some("192.0.2.7:12345".parse().unwrap()));
    // Without its own type, the TLV is no checksum.
    let type_at = valid.len() - 7;
    for at in (16..valid.len() - 4).filter(|at| *at != type_at) {
        let mut altered = valid.clone();
        altered[at] ^= 1;
        assert!(read_header(&altered).await.is_err(), "a flipped bit in byte {at}");
    }
}

#[tokio::test]
async fn a_header_that_ends_early_is_an_error_at_every_length() {
    for header in [v2(0x11, &IPV4), b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec()] {
        for length in 0..header.len() {
            let error = read_proxy_header(&mut &header[..length]).await.unwrap_err();
            let is_closed = matches!(error, ProxyHeaderError::Closed);
            assert_eq!(is_closed, length == 0, "{length} bytes of {header:?}: {error}");
        }
    }
}

#[tokio::test]
async fn random_bytes_after_a_signature_never_panic() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random.to_le_bytes()[0]
        };
        let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
        header.extend([0x20 | next() & 3, [0x11, 0x21, 0x31, 0][usize::from(next() & 3)], 0, next()]);
        header.extend((0..next()).map(|_| next() & 7));
        let _ = read_proxy_header(&mut header.as_slice()).await;
        let line: Vec<u8> = b"PROXY TCP4 "
            .iter()
            .copied()
            .chain((0..60).map(|_| b" .:\r\n0129afx"[usize::from(next() % 12)]))
            .collect();
        let _ = read_proxy_header(&mut line.as_slice()).await;
    }
}

#[test]
fn forwarded_is_read_from_the_right_past_trusted_proxies() {
    for (lines, client) in [
        (&["for=192.0.2.7"][..], "192.0.2.7"),
        (&["for=192.0.2.7;proto=https;host=a.example;by=10.0.0.1"], "192.0.2.7"),
        (&["For=\"192.0.2.7:4711\""], "192.0.2.7"),
        (&["for=192.0.2.7:4711"], "192.0.2.7"),
        (&["for=\"[2001:db8::7]:4711\""], "2001:db8::7"),
        (&["for=\"[2001:db8::7]\""], "2001:db8::7"),
        (&["for=[2001:db8::7]"], "2001:db8::7"),
        (&["for=\"[::ffff:192.0.2.7]\""], "192.0.2.7"),
        (&["for=\"1\\92.0.2.7\""], "192.0.2.7"),
        // What stands left of the first address that is no proxy is the client's own.
        (&["for=127.0.0.1, for=192.0.2.7"], "192.0.2.7"),
        (&["for=127.0.0.1", "for=192.0.2.7"], "192.0.2.7"),
        (&["for=192.0.2.7, for=10.0.0.2"], "192.0.2.7"),
        (&["for=127.0.0.1, for=192.0.2.7", "for=10.0.0.3, for=10.0.0.2"], "192.0.2.7"),
        (&["garbage \"", "for=192.0.2.7"], "192.0.2.7"),
        (&["for=10.0.0.4, for=10.0.0.3"], "10.0.0.4"),
        // Behind a hidden node no client is known: the nearest proxy counts.
        (&["for=127.0.0.1, for=unknown"], PROXY),
        (&["for=127.0.0.1, for=_hidden, for=10.0.0.2"], "10.0.0.2"),
        (&["for=127.0.0.1, for=\"_hidden:_port\""], PROXY),
        (&["for=127.0.0.1, proto=https"], PROXY),
        (&[""], PROXY),
        (&[], PROXY),
        (&[" , for=192.0.2.7 ,, "], "192.0.2.7"),
        (&["for=192.0.2.7;;proto=http;"], "192.0.2.7"),
        (&["for=192.0.2.7;extension=\"a,for=127.0.0.1\""], "192.0.2.7"),
    ] {
        assert_eq!(forwarded(lines).map(|client| client.address), Some(ip(client)), "{lines:?}");
    }
}

#[test]
fn the_scheme_and_the_host_are_those_of_the_clients_element() {
    let client = forwarded(&[
        "for=1.1.1.1;proto=http;host=evil, for=192.0.2.7;proto=https;host=\"a.example:8443\", for=10.0.0.2;proto=http;host=b",
    ]);
    let expected =
        ForwardedClient { address: ip("192.0.2.7"), is_secure: Some(true), host: Some("a.example:8443".into()) };
    assert_eq!(client, Some(expected));
    let too_long = format!("\"{}\"", "a".repeat(256));
    for host in ["\"user@evil\"", "\"a:80@evil\"", "\"a b\"", "\"a/b\"", "\"::1\"", "\"\"", &too_long] {
        assert_eq!(forwarded(&[&format!("for=192.0.2.7;host={host}")]).unwrap().host, None, "{host}");
    }
    assert_eq!(forwarded(&["for=192.0.2.7;proto=gopher"]).unwrap().is_secure, None);
}

#[test]
fn malformed_forwarded_lines_name_no_client() {
    for line in [
        "for",
        "for=",
        "=192.0.2.7",
        "192.0.2.7",
        "for=192.0.2.7 for=127.0.0.1",
        "for=192.0.2.7;for=127.0.0.1",
        "for=192.0.2.7;For=192.0.2.7",
        "for=\"192.0.2.7",
        // The client began a quoted string, which would swallow what its proxy wrote.
        "for=\"127.0.0.1, for=192.0.2.7",
        "for=127.0.0.1;x=\"\\\", for=192.0.2.7",
        "for=\"192.0.2.7\"x",
        "for=\"192.0.2.7\\",
        "for = 192.0.2.7",
        "for=2001:db8::7:x",
        "for=\"[2001:db8::7\"",
        "for=\"[192.0.2.7]\"",
        "for=\"[2001:db8::7]4711\"",
        "for=\"192.0.2.7:\"",
        "for=\"192.0.2.7:65536\"",
        "for=\"192.0.2.7:4711:1\"",
        "for=192.0.2.256",
        "for=3221225991",
        "for=0x7f.1",
        "for=_",
        "for=\"_a b\"",
        "for=localhost",
        "for=\"\"",
        "for=(192.0.2.7)",
        "f\u{f6}r=192.0.2.7",
    ] {
        assert_eq!(forwarded(&[line]), None, "{line}");
    }
}

#[test]
fn x_forwarded_for_is_read_from_the_right_past_trusted_proxies() {
    for (lines, client) in [
        (&["192.0.2.7"][..], "192.0.2.7"),
        (&["127.0.0.1, 192.0.2.7"], "192.0.2.7"),
        (&["127.0.0.1", "192.0.2.7"], "192.0.2.7"),
        (&["192.0.2.7,10.0.0.2 , 10.0.0.3"], "192.0.2.7"),
        (&["\"garbage, 192.0.2.7"], "192.0.2.7"),
        (&["2001:db8::7"], "2001:db8::7"),
        (&["[2001:db8::7]:4711"], "2001:db8::7"),
        (&["192.0.2.7:4711"], "192.0.2.7"),
        (&["::ffff:192.0.2.7"], "192.0.2.7"),
        (&["192.0.2.7,"], "192.0.2.7"),
        (&["127.0.0.1, unknown"], PROXY),
        (&["127.0.0.1, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["10.0.0.5"], "10.0.0.5"),
        (&[""], PROXY),
        (&[], PROXY),
    ] {
        assert_eq!(x_forwarded_for(lines), Some(ip(client)), "{lines:?}");
    }
    for line in [
        "x",
        "192.0.2",
        "192.0.2.7 1.1.1.1",
        "for=192.0.2.7",
        "192.0.2.7, -",
        "localhost",
        "192.0.2.7, [::1",
        "0x7f000001",
        "\u{f6}",
    ] {
        assert_eq!(x_forwarded_for(&[line]), None, "{line}");
    }
}

#[test]
fn the_other_header_is_not_read() {
    let headers = fields(&[
        ("forwarded", b"for=192.0.2.7;proto=https"),
        ("x-forwarded-for", b"192.0.2.8"),
        ("x-forwarded-host", b"b"),
    ]);
    let forwarded = client_from_forwarded(&headers, ip(PROXY), is_proxy).unwrap();
    assert_eq!(forwarded, ForwardedClient { address: ip("192.0.2.7"), is_secure: Some(true), host: None });
    let x_forwarded = client_from_x_forwarded_for(&headers, ip(PROXY), is_proxy).unwrap();
    assert_eq!(x_forwarded, ForwardedClient { address: ip("192.0.2.8"), is_secure: None, host: Some("b".into()) });
}

#[test]
fn the_scheme_and_the_host_beside_x_forwarded_for_are_the_last_of_their_headers() {
    let headers = fields(&[
        ("x-forwarded-for", b"192.0.2.7"),
        ("x-forwarded-proto", b"http"),
        ("x-forwarded-proto", b"http, HTTPS"),
        ("x-forwarded-host", b"evil.example, a.example"),
    ]);
    let client = client_from_x_forwarded_for(&headers, ip(PROXY), is_proxy).unwrap();
    assert_eq!(
        client,
        ForwardedClient { address: ip("192.0.2.7"), is_secure: Some(true), host: Some("a.example".into()) }
    );
}
