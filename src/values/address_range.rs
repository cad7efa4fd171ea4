//! Ranges of IP addresses, perhaps with a port: `10.0.0.0/8`, `fd00::/8:8443`, `127.0.0.1:8080`, `[::1]:8080`.

use super::impl_string_deserialize_and_schema;
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// The metadata services of most clouds.
const METADATA_SERVICES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254))];

/// A range of IP addresses (CIDR), at every port or at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRange {
    network: IpAddr,
    prefix_length: u8,
    port: Option<u16>,
}

impl AddressRange {
    /// Whether the range contains `address`. An IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) counts as IPv4.
    pub fn contains(&self, address: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == address.port()) && self.contains_ip(address.ip())
    }

    /// Whether the range is a single address.
    pub fn is_one_address(&self) -> bool {
        self.prefix_length == if self.network.is_ipv4() { 32 } else { 128 }
    }

    /// Whether the range is restricted to one port.
    pub fn has_port(&self) -> bool {
        self.port.is_some()
    }

    /// Whether the range contains the address of the cloud's metadata service, at the port of HTTP.
    pub fn contains_metadata_service(&self) -> bool {
        METADATA_SERVICES.iter().any(|ip| self.contains(SocketAddr::new(*ip, 80)))
    }

    /// Whether the range contains `ip`, at some port.
    pub fn contains_ip(&self, ip: IpAddr) -> bool {
        match (self.network, ip.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(ip)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_length)).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(ip)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_length)).unwrap_or(0);
                base.to_bits() & mask == ip.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Whether the range is larger than any network of one organisation: 10.0.0.0/8 and fc00::/7 are the largest.
    pub fn is_unbounded(&self) -> bool {
        self.prefix_length < if self.network.is_ipv4() { 8 } else { 7 }
    }

    /// Whether the range is written as IPv4-mapped addresses of IPv6, which no peer has.
    pub fn is_ipv4_mapped(&self) -> bool {
        matches!(self.network, IpAddr::V6(network) if network.to_ipv4_mapped().is_some())
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "'{text}' is not an address range (write 10.0.0.0/8, fd00::/8 or one address; for one port 10.0.0.0/8:443, [::1]:443)"
            )
        };
        let (base, prefix_length, port) = split_range(text).ok_or_else(invalid)?;
        let base: IpAddr = base.parse().map_err(|_| invalid())?;
        let max_prefix_length = if base.is_ipv4() { 32 } else { 128 };
        let prefix_length = prefix_length.unwrap_or(max_prefix_length);
        if prefix_length > max_prefix_length || port == Some(0) {
            return Err(invalid());
        }
        Ok(Self { network: base, prefix_length, port })
    }
}

/// Splits a range into the address, the length of the prefix and the port.
fn split_range(text: &str) -> Option<(&str, Option<u8>, Option<u16>)> {
    if let Some((base, rest)) = text.split_once('/') {
        let (length, port) = match rest.split_once(':') {
            Some((length, port)) => (length, Some(parse_digits(port)?)),
            None => (rest, None),
        };
        return Some((base, Some(parse_digits(length)?), port));
    }
    if let Some((base, rest)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return Some((base, None, Some(parse_digits(rest.strip_prefix(':')?)?)));
    }
    match text.split_once(':') {
        // An IPv6 address has several colons, and takes a port in brackets only.
        Some((base, port)) if !port.contains(':') => Some((base, None, Some(parse_digits(port)?))),
        _ => Some((text, None, None)),
    }
}

/// Parses a number without a sign.
fn parse_digits<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for AddressRange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.network, self.prefix_length)?;
        self.port.map_or(Ok(()), |port| write!(to, ":{port}"))
    }
}

impl serde::Serialize for AddressRange {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl_string_deserialize_and_schema!(
    AddressRange,
    "A range of IP addresses, such as 10.0.0.0/8 or fd00::/8, or one address; with a port 10.0.0.0/8:8443, 10.0.0.1:8443 \
     or [fd00::1]:8443.",
    r"^\[?[0-9A-Fa-f:.]+\]?(/\d{1,3})?(:\d{1,5})?$"
);
