//! Whose budget a call is on: a known caller's, or an address's where nobody needs to be known.

use std::net::{IpAddr, Ipv6Addr};

/// Whose budget a call is on.
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

/// Who has one address of an IPv6 /64 has them all.
pub(super) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}
