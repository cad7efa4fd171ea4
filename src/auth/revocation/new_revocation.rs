//! A revocation: what it revokes, from when, and how long it must be remembered.

use super::revocation_key::RevocationKey;
use crate::store::NewValue;
use std::time::Duration;
use time::OffsetDateTime;

/// How long the revocation of a credential without an expiry is remembered, and the longest time for every other one.
pub(super) const MAX_LIFETIME: Duration = Duration::from_secs(3_650 * 86_400);

/// The first byte of a revocation in the shared state.
const FORMAT: u8 = 1;

/// What is revoked of the credentials that a name finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revocation {
    /// First second from which they are not accepted.
    pub(super) from: i64,
    /// Only tokens that were issued until this second are revoked; `i64::MAX` revokes all.
    pub(super) issued_until: i64,
}

impl Revocation {
    /// Returns a revocation that revokes what both revoke.
    pub(super) fn merge(self, other: Self) -> Self {
        Self { from: self.from.min(other.from), issued_until: self.issued_until.max(other.issued_until) }
    }

    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.from.to_be_bytes());
        bytes.extend_from_slice(&self.issued_until.to_be_bytes());
        bytes
    }

    /// Reads a revocation of the shared state. One that a later version wrote in another format revokes everything.
    pub(super) fn decode(bytes: &[u8]) -> Self {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
        let decoded = match bytes {
            [FORMAT, numbers @ ..] => numbers.split_at_checked(8).and_then(|(from, issued_until)| {
                Some(Self { from: number(from)?, issued_until: number(issued_until)? })
            }),
            _ => None,
        };
        decoded.unwrap_or(Self { from: i64::MIN, issued_until: i64::MAX })
    }
}

/// A revocation to put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRevocation {
    pub(super) key: RevocationKey,
    pub(super) revocation: Revocation,
    /// How long from now it must be remembered.
    pub(super) lifetime: Duration,
}

impl NewRevocation {
    /// Converts the revocation for the shared state.
    pub(super) fn to_value(&self) -> NewValue {
        NewValue { key: self.key.0, value: self.revocation.encode(), lifetime: self.lifetime }
    }
}

/// An API key that was disabled or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedKey {
    /// The public prefix of the key.
    pub prefix: String,
    /// How long from now it stays valid; `None` revokes it at once.
    pub overlap: Option<Duration>,
    /// When the key file lets it expire; `None` is never.
    pub expires: Option<OffsetDateTime>,
}

impl RevokedKey {
    /// Returns the revocation. `now` is the time since the Unix epoch by the clock of the gateways.
    pub fn to_revocation(&self, now: Duration) -> NewRevocation {
        let from = |overlap: Duration| i64::try_from(now.saturating_add(overlap).as_secs()).unwrap_or(i64::MAX);
        let rest = self.expires.map(|at| Duration::try_from(at - OffsetDateTime::now_utc()).unwrap_or_default());
        NewRevocation {
            key: RevocationKey::of_api_key(self.prefix.as_bytes()),
            revocation: Revocation { from: self.overlap.map_or(i64::MIN, from), issued_until: i64::MAX },
            lifetime: bound_lifetime(rest.unwrap_or(MAX_LIFETIME)),
        }
    }
}

/// Bounds a lifetime: at most [`MAX_LIFETIME`], and at least a minute, because clocks differ.
pub(super) fn bound_lifetime(lifetime: Duration) -> Duration {
    lifetime.clamp(Duration::from_secs(60), MAX_LIFETIME)
}
