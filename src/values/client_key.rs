//! Who counts as one client where clients share something.

use std::net::{IpAddr, Ipv6Addr};

/// The client whose share is counted: all users of an OAuth client together, and the address of a caller without a
/// credential. A hash that is unique over all kinds of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

impl ClientKey {
    /// Creates the key from the hash under which the rate limits count the client.
    pub const fn new(hash: u64) -> Self {
        Self(hash)
    }

    /// Returns the hash as databases store it. It is equal in every gateway, process and release.
    pub const fn to_database_number(self) -> i64 {
        self.0.cast_signed()
    }

    /// Returns the key of a hash that a database stores.
    pub const fn from_database_number(number: i64) -> Self {
        Self(number.cast_unsigned())
    }
}

/// Returns the address under which a peer is counted. An IPv6 address is masked to its /64: a client that has one
/// address of a /64 usually has all of them.
pub fn counted_address(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        ipv4 => ipv4,
    }
}
