//! What is known of the signatures of the descriptors that a resolution used (R100), and what follows from it.

use super::resolution_limiter::ResolutionLimiter;
use crate::signing::{TrustedKeys, VerifiedPart};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};

/// What the resolver does with the signatures of descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "DescriptorSignatures")]
#[serde(rename_all = "snake_case")]
pub enum SignaturePolicy {
    /// Invalid signatures are reported.
    Report,
    /// A name whose descriptor has an invalid signature is refused.
    #[default]
    RefuseInvalid,
    /// A name is refused unless the signatures of its descriptors are verified.
    Require,
}

/// What is known of the signatures of one descriptor. The order is from the best to the worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureStatus {
    /// A signature is by a key of the name's authority, or of the operator, and covers what was read.
    Verified,
    /// The descriptor has no signature.
    Unsigned,
    /// The signature could not be checked: the reason.
    NotVerified(String),
    /// The signature is forged, expired, or by another key: the reason.
    Invalid(String),
}

impl SignatureStatus {
    /// Returns the status as written in responses, if the descriptor has a signature.
    pub fn as_str(&self) -> Option<&'static str> {
        match self {
            Self::Unsigned => None,
            Self::Verified => Some("verified"),
            Self::NotVerified(_) => Some("not verified"),
            Self::Invalid(_) => Some("invalid"),
        }
    }

    /// Returns the reason.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Verified | Self::Unsigned => None,
            Self::NotVerified(reason) | Self::Invalid(reason) => Some(reason),
        }
    }
}

/// Maximum number of documents whose signatures are verified at once, and of those for one caller: each takes many times
/// its size in memory, and processor time.
const MAX_CONCURRENT_CHECKS: usize = 4;
const MAX_CHECKS_PER_CALLER: usize = 1;
/// How long a resolution waits for the checks of others.
const MAX_CHECK_WAIT: Duration = Duration::from_secs(5);

/// How long the result of a check is used again for the same document and keys. An expiry of the signature is noticed at
/// the latest then.
const RESULT_TTL: Duration = Duration::from_secs(60);
/// Maximum number of results that are kept.
const MAX_RESULTS: u64 = 10_000;

/// The result of a check, without the document.
pub(super) type CheckResult = Result<VerifiedPart, SignatureStatus>;

/// The policy, and the operator's keys, which replace those that hosts publish.
#[derive(Debug)]
pub(super) struct SignatureSettings {
    pub(super) policy: SignaturePolicy,
    pub(super) publisher_keys: Option<Arc<TrustedKeys>>,
    /// A permit for each document that is being verified.
    pub(super) checks: ResolutionLimiter,
    /// Results by the digest of document and keys.
    pub(super) results: moka::sync::Cache<[u8; 32], CheckResult>,
}

impl SignatureSettings {
    pub(super) fn new(policy: SignaturePolicy, publisher_keys: Option<Arc<TrustedKeys>>) -> Self {
        let checks = ResolutionLimiter::with_share(MAX_CONCURRENT_CHECKS, MAX_CHECKS_PER_CALLER, MAX_CHECK_WAIT);
        let results = moka::sync::Cache::builder().max_capacity(MAX_RESULTS).time_to_live(RESULT_TTL).build();
        Self { policy, publisher_keys, checks, results }
    }
}
