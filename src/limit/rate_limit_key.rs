//! Key under which rate limits and quotas count a call: the authenticated caller, or the peer address of an anonymous
//! call.

use std::net::{IpAddr, Ipv6Addr};

/// Identifies the caller whose rate limits and quotas a call counts against.
#[derive(Clone, Copy, Debug)]
pub struct RateLimitKey<'a> {
    pub(super) hash: u64,
    pub(super) principal: RateLimitPrincipal<'a>,
    pub(super) tier: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RateLimitPrincipal<'a> {
    Caller(&'a str),
    Address(IpAddr),
}

impl RateLimitPrincipal<'_> {
    pub(super) fn to_quota_name(self) -> Box<str> {
        match self {
            RateLimitPrincipal::Caller(id) => id.into(),
            RateLimitPrincipal::Address(address) => format!("address:{address}").into(),
        }
    }
}

/// Masks an IPv6 address to its /64: a client that has one address of a /64 usually has all of them.
pub(super) fn mask_ipv6_to_64(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        ipv4 => ipv4,
    }
}
