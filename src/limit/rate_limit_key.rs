//! Key under which rate limits and quotas count a call: the authenticated caller, or the peer address of an anonymous
//! call.

use super::bucket_key::{BucketKey, mask_ipv6_to_64};
use std::net::IpAddr;

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
        let peer = mask_ipv6_to_64(peer);
        Self { bucket: BucketKey::for_address(peer), principal: RateLimitPrincipal::Address(peer), tier: None }
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
