//! Keys of buckets and quotas: hashes that are equal in every gateway, process and release, so that gateways can count
//! in one store.
//!
//! A key is SipHash-1-3 with a key that is not secret: its first half is the domain in ASCII, padded with zeros; its
//! second half is [`HASH_VERSION`]. Integers are hashed in little-endian order.
//!
//! | domain     | what is hashed                                                     |
//! | ---------- | ------------------------------------------------------------------ |
//! | `caller`   | id of the caller                                                   |
//! | `address`  | 4 bytes of an IPv4 address, or the first 8 bytes of an IPv6 address |
//! | `agent`    | id of the agent                                                    |
//! | `pair`     | keys of the caller and the agent                                   |
//! | `rule`     | count, period in nanoseconds, burst and name of the limit          |
//!
//! A rate limit key holds the bucket key of the authenticated caller, or of the peer address of an anonymous call.
//!
//! Whoever chooses their own caller id can search for an id that has the bucket of another caller, which takes about
//! 2^64 attempts. Maps in this process mix keys with a secret seed, so that such ids do not slow a map down.

use crate::values::{ClientKey, counted_address};
use siphasher::sip::SipHasher13;
use std::{hash::Hasher as _, net::IpAddr};

/// Version of the hashes. A change makes every shared bucket a new one.
const HASH_VERSION: u64 = 1;

/// Key of a bucket within one rule, or of a caller's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketKey(u64);

impl BucketKey {
    /// Returns the key of an authenticated caller.
    pub fn for_caller(id: &str) -> Self {
        Self(hash(*b"caller\0\0", id.as_bytes()))
    }

    /// Returns the key of a peer address; addresses of one IPv6 /64 have the same key.
    pub fn for_address(peer: IpAddr) -> Self {
        Self(match counted_address(peer) {
            IpAddr::V4(address) => hash(*b"address\0", &address.octets()),
            IpAddr::V6(address) => hash(*b"address\0", address.octets().first_chunk::<8>().unwrap_or(&[0; 8])),
        })
    }

    /// Returns the key of an agent.
    pub fn for_agent(id: &str) -> Self {
        Self(hash(*b"agent\0\0\0", id.as_bytes()))
    }

    /// Returns the key of a caller (or address) and an agent.
    pub fn for_pair(caller: Self, agent: Self) -> Self {
        let mut pair = [0; 16];
        let (first, second) = pair.split_at_mut(8);
        first.copy_from_slice(&caller.0.to_le_bytes());
        second.copy_from_slice(&agent.0.to_le_bytes());
        Self(hash(*b"pair\0\0\0\0", &pair))
    }

    /// Returns the hash.
    pub const fn hash(self) -> u64 {
        self.0
    }
}

/// Computes a hash within a domain.
pub(super) fn hash(domain: [u8; 8], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(u64::from_le_bytes(domain), HASH_VERSION);
    hasher.write(bytes);
    hasher.finish()
}

/// Identifies the caller whose rate limits and quotas a call counts against.
#[derive(Clone, Copy, Debug)]
pub struct RateLimitKey<'a> {
    pub(super) bucket: BucketKey,
    principal: RateLimitPrincipal<'a>,
    pub(super) tier: Option<&'a str>,
}

#[derive(Clone, Copy, Debug)]
enum RateLimitPrincipal<'a> {
    Caller(&'a str),
    Address(IpAddr),
}

impl<'a> RateLimitKey<'a> {
    /// Returns the key of an authenticated caller. `id` must be unique over all kinds of credentials.
    pub fn for_caller(id: &'a str, tier: Option<&'a str>) -> Self {
        Self { bucket: quota_key(id), principal: RateLimitPrincipal::Caller(id), tier }
    }

    /// Returns the key of a caller without credentials: its address.
    pub fn for_address(peer: IpAddr) -> Self {
        let peer = counted_address(peer);
        Self { bucket: BucketKey::for_address(peer), principal: RateLimitPrincipal::Address(peer), tier: None }
    }

    /// Returns the client whose shares the call counts against.
    pub fn client(&self) -> ClientKey {
        ClientKey::new(self.bucket.hash())
    }

    /// Returns the name under which quotas are persisted; [`quota_key`] returns its key.
    pub(super) fn to_quota_name(self) -> Box<str> {
        match self.principal {
            RateLimitPrincipal::Caller(id) => id.into(),
            RateLimitPrincipal::Address(address) => format!("address:{address}").into(),
        }
    }
}

/// Returns the key of a name from [`RateLimitKey::to_quota_name`].
pub(super) fn quota_key(name: &str) -> BucketKey {
    match name.strip_prefix("address:").and_then(|address| address.parse().ok()) {
        Some(address) => BucketKey::for_address(address),
        None => BucketKey::for_caller(name),
    }
}
