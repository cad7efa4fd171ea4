//! Key that rate limits and quotas count a call by: the authenticated caller, or the peer address of an anonymous call.

use std::net::{IpAddr, Ipv6Addr};

/// Identifies the caller whose rate limits and quotas a call counts against.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    pub(super) key: u64,
    pub(super) name: Name<'a>,
    pub(super) tier: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    Caller(&'a str),
    Visitor(IpAddr),
}

impl Name<'_> {
    pub(super) fn owned(self) -> Box<str> {
        match self {
            Name::Caller(id) => id.into(),
            Name::Visitor(address) => format!("address:{address}").into(),
        }
    }
}

/// Masks an IPv6 address to its /64: a client that has one address of a /64 usually has all of them.
pub(super) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}
