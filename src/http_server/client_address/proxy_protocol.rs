//! The header of the PROXY protocol, versions 1 and 2 (<https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt>):
//! read to its last byte and not further, because a TLS handshake or a request follows.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of version 2.
const V2_SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The first bytes of version 1. Its shortest header, `PROXY UNKNOWN`, is longer than the signature of version 2.
const V1_PREFIX: &[u8] = b"PROXY ";

/// The longest header of version 1, with its line end.
const MAX_V1_BYTES: usize = 107;

/// The most bytes after the fixed part of version 2: addresses and TLVs. HAProxy sends some hundred.
const MAX_V2_PAYLOAD_BYTES: usize = 4 << 10;

/// The TLV with the CRC32c of the header.
const TLV_CRC32C: u8 = 0x03;

/// Why no client address could be read from a connection.
#[derive(Debug)]
pub(in crate::http_server) enum ProxyHeaderError {
    /// The peer closed without sending a byte, as the health checks of load balancers do.
    Closed,
    /// The header did not arrive in time.
    TimedOut,
    /// The connection failed inside the header.
    Lost(io::Error),
    /// The header is not valid.
    Malformed(&'static str),
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => to.write_str("the peer closed the connection"),
            Self::TimedOut => to.write_str("the header did not arrive in time"),
            Self::Lost(error) => write!(to, "the connection failed inside the header: {error}"),
            Self::Malformed(reason) => to.write_str(reason),
        }
    }
}

impl From<io::Error> for ProxyHeaderError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Reads a header. Returns the client's address, or `None` if the header names none: the connection is the proxy's own
/// (LOCAL), or the client is not known or has no IP address.
pub(super) async fn read_proxy_header<R: AsyncRead + Unpin>(
    stream: &mut R,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let mut header = vec![0; V2_SIGNATURE.len()];
    let (first, rest) = header.split_at_mut(1);
    if stream.read(first).await? == 0 {
        return Err(ProxyHeaderError::Closed);
    }
    stream.read_exact(rest).await?;
    if header == V2_SIGNATURE {
        return read_v2(stream, header).await;
    }
    if !header.starts_with(V1_PREFIX) {
        return Err(ProxyHeaderError::Malformed("the connection does not begin with a PROXY protocol header"));
    }
    // Byte by byte, because the header ends with its line and what follows is not ours.
    while header.last() != Some(&b'\n') {
        if header.len() == MAX_V1_BYTES {
            return Err(ProxyHeaderError::Malformed("the version 1 header is too long"));
        }
        header.push(stream.read_u8().await?);
    }
    parse_v1(&header).map_err(ProxyHeaderError::Malformed)
}

/// Parses a header of version 1, with its line end.
fn parse_v1(line: &[u8]) -> Result<Option<SocketAddr>, &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "the version 1 header is not ASCII")?;
    let fields = text.strip_suffix("\r\n").ok_or("the version 1 header does not end with CR LF")?;
    let mut fields = fields.split(' ').skip(1);
    let family = fields.next().unwrap_or_default();
    // What follows UNKNOWN is to be ignored.
    if family == "UNKNOWN" {
        return Ok(None);
    }
    let mut next = || fields.next().ok_or("the version 1 header lacks a field");
    let (source, destination) = (next()?, next()?);
    let (source_port, _) = (parse_port(next()?)?, parse_port(next()?)?);
    let parse = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
            _ => None,
        }
    };
    let (Some(source), Some(_), None) = (parse(source), parse(destination), fields.next()) else {
        return Err("the version 1 header is not valid");
    };
    Ok(Some(SocketAddr::new(source.to_canonical(), source_port)))
}

/// Parses a port in digits without leading zeros.
fn parse_port(text: &str) -> Result<u16, &'static str> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    match text.parse() {
        Ok(port) if is_decimal => Ok(port),
        _ => Err("the version 1 header has an invalid port"),
    }
}

/// Reads the rest of a header of version 2, after its signature.
async fn read_v2<R: AsyncRead + Unpin>(
    stream: &mut R,
    mut header: Vec<u8>,
) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await?;
    let [version_and_command, family_and_transport, length @ ..] = fixed;
    let length = usize::from(u16::from_be_bytes(length));
    if version_and_command >> 4 != 2 {
        return Err(ProxyHeaderError::Malformed("the header has an unknown version"));
    }
    if length > MAX_V2_PAYLOAD_BYTES {
        return Err(ProxyHeaderError::Malformed("the version 2 header is too long"));
    }
    header.extend_from_slice(&fixed);
    let payload_at = header.len();
    header.resize(payload_at + length, 0);
    stream.read_exact(header.get_mut(payload_at..).unwrap_or_default()).await?;
    match version_and_command & 0x0f {
        // LOCAL: the rest of the header is ignored.
        0 => Ok(None),
        1 => parse_v2_client(&header, payload_at, family_and_transport).map_err(ProxyHeaderError::Malformed),
        _ => Err(ProxyHeaderError::Malformed("the version 2 header has an unknown command")),
    }
}

/// Parses the addresses of a complete header of version 2 with the command PROXY, and checks its TLVs.
fn parse_v2_client(header: &[u8], payload_at: usize, family: u8) -> Result<Option<SocketAddr>, &'static str> {
    const TOO_SHORT: &str = "the version 2 header is too short for its addresses";
    let payload = header.get(payload_at..).unwrap_or_default();
    let (client, tlvs) = match family {
        // AF_UNSPEC: the addresses are not known, and the rest is to be ignored.
        0x00 => return Ok(None),
        // TCP over IPv4: source, destination, source port, destination port.
        0x11 => {
            let (addresses, tlvs) = payload.split_first_chunk::<12>().ok_or(TOO_SHORT)?;
            let [a, b, c, d, _, _, _, _, port_high, port_low, _, _] = *addresses;
            let port = u16::from_be_bytes([port_high, port_low]);
            (Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port)), tlvs)
        }
        // TCP over IPv6.
        0x21 => {
            let (addresses, tlvs) = payload.split_first_chunk::<36>().ok_or(TOO_SHORT)?;
            let (source, rest) = addresses.split_first_chunk::<16>().ok_or(TOO_SHORT)?;
            let port = rest.get(16..18).and_then(|port| port.try_into().ok()).map(u16::from_be_bytes);
            let address = IpAddr::from(*source).to_canonical();
            (port.map(|port| SocketAddr::new(address, port)), tlvs)
        }
        // A unix stream socket: two paths of 108 bytes, which are no addresses of clients.
        0x31 => (None, payload.split_first_chunk::<216>().ok_or(TOO_SHORT)?.1),
        _ => return Err("the version 2 header is not about a TCP connection"),
    };
    check_tlvs(header, tlvs)?;
    Ok(client)
}

/// Checks that the TLVs fill the rest of the header exactly, and the checksum if there is one.
fn check_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<(), &'static str> {
    while let Some((&[kind, high, low], rest)) = tlvs.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, next) = rest.split_at_checked(length).ok_or("a TLV ends after the version 2 header")?;
        if kind == TLV_CRC32C {
            let checksum_at = header.len() - rest.len();
            let expected = value.try_into().map(u32::from_be_bytes).map_err(|_| "the checksum has not four bytes")?;
            if crc32c_without(header, checksum_at..checksum_at + length) != expected {
                return Err("the checksum of the version 2 header does not match");
            }
        }
        tlvs = next;
    }
    if tlvs.is_empty() { Ok(()) } else { Err("a TLV ends after the version 2 header") }
}

/// Returns the CRC32c (RFC 9260 appendix A) of `bytes`, with zeros in place of `zeroed`.
fn crc32c_without(bytes: &[u8], zeroed: std::ops::Range<usize>) -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    let bytes = bytes.iter().enumerate().map(|(at, byte)| if zeroed.contains(&at) { 0 } else { *byte });
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (REVERSED_POLYNOMIAL & (crc & 1).wrapping_neg()))
    })
}
