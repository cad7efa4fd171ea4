//! Entry points for fuzzing: what proxies say about clients.

use super::{
    forwarded_header::{client_from_forwarded, client_from_x_forwarded_for},
    proxy_protocol::{ProxyHeaderError, read_proxy_header},
};
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::net::{IpAddr, Ipv4Addr};

/// The proxy that sends every header.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// The longest header: the fixed part of version 2, and 4 KiB.
const MAX_HEADER_BYTES: usize = 16 + 4096;

/// Reads the header of a connection: it ends within its bound, and what follows it does not count.
pub fn check_proxy_header(data: &[u8]) {
    let read = |mut stream: &[u8]| {
        let client = read_proxy_header(&mut stream).now_or_never();
        (client.unwrap_or(Err(ProxyHeaderError::TimedOut)).ok(), stream.len())
    };
    let (client, rest) = read(data);
    let (header, _) = data.split_at(data.len() - rest);
    assert!(header.len() <= MAX_HEADER_BYTES, "a header of {} bytes", header.len());
    let Some(client) = client else { return };
    assert!(client.is_none_or(|client| client.ip().to_canonical() == client.ip()), "an IPv4 address in IPv6");
    assert_eq!(read(header), (Some(client), 0), "what follows the header counts");
}

/// Reads the lines as `Forwarded` and as `X-Forwarded-For`. What stands before an entry that the proxy wrote is the
/// client's, and counts for nothing.
pub fn check_forwarded_headers(data: &[u8]) {
    let headers = |name: &'static str, first: &[u8]| {
        let lines = [first].into_iter().chain(data.split(|byte| *byte == b'\n'));
        let values = lines.filter(|line| !line.is_empty()).filter_map(|line| HeaderValue::from_bytes(line).ok());
        values.map(|value| (HeaderName::from_static(name), value)).collect::<HeaderMap>()
    };
    let is_proxy = |address: IpAddr| address == PROXY;
    let clients = |first: &[u8]| {
        let forwarded = client_from_forwarded(&headers("forwarded", first), PROXY, is_proxy);
        let x_forwarded_for = client_from_x_forwarded_for(&headers("x-forwarded-for", first), PROXY, is_proxy);
        [forwarded, x_forwarded_for].map(|client| client.map(|client| client.address))
    };
    let with_own_line = clients(b"for=203.0.113.9, 203.0.113.9");
    for (address, with_own_line) in clients(b"").into_iter().zip(with_own_line) {
        assert!(address.is_none_or(|address| address.to_canonical() == address), "an IPv4 address in IPv6");
        if address.is_some_and(|address| address != PROXY) {
            assert_eq!(with_own_line, address, "a line of the client counts");
        }
    }
}
