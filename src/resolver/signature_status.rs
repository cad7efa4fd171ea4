//! What is known of the signatures of the descriptors that a resolution used (R100), and what follows from it.

use crate::signing::TrustedKeys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::Semaphore;

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

/// Maximum number of documents whose signatures are verified at once: each takes many times its size in memory, and
/// processor time.
const MAX_CONCURRENT_CHECKS: usize = 4;

/// The policy, and the operator's keys, which replace those that hosts publish.
#[derive(Debug)]
pub(super) struct SignatureSettings {
    pub(super) policy: SignaturePolicy,
    pub(super) publisher_keys: Option<Arc<TrustedKeys>>,
    /// A permit for each document that is being verified.
    pub(super) checks: Arc<Semaphore>,
}

impl SignatureSettings {
    pub(super) fn new(policy: SignaturePolicy, publisher_keys: Option<Arc<TrustedKeys>>) -> Self {
        Self { policy, publisher_keys, checks: Arc::new(Semaphore::new(MAX_CONCURRENT_CHECKS)) }
    }
}
