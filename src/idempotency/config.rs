//! Configuration of idempotency: how many responses are stored, and for how long.

use crate::values::{ByteSize, ConfigDuration, MaxShare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Idempotent calls: requests with an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Idempotency")]
#[serde(deny_unknown_fields, default)]
pub struct IdempotencyConfig {
    /// How long the first response is replayed; 1s to 1d, or 0s to forward keys and store nothing. Default: 10m.
    pub ttl: ConfigDuration,
    /// Maximum number of stored keys; 1 to 1000000. One caller has `limits.max_share` of them, and its oldest are dropped
    /// first; if all callers have more, the oldest of the caller with the most keys are dropped. Default: 100000.
    pub max_keys: u32,
    /// Maximum size of all stored responses, of which one caller has `limits.max_share`; at most 4GiB. Beyond it the
    /// oldest responses are dropped, as keys are, and requests with their keys get a 409: their calls are not repeated.
    /// Default: 64MiB.
    pub max_size: ByteSize,
    /// Maximum size of one stored response; at most 16MiB. A larger one is returned once and not stored. Default: 1MiB.
    pub max_response_size: ByteSize,
    /// The share of keys and responses that one caller may have: `limits.max_share`.
    #[serde(skip)]
    pub(super) max_share: MaxShare,
}

impl Default for IdempotencyConfig {
    fn default() -> Self {
        Self {
            ttl: ConfigDuration::from_secs(600),
            max_keys: 100_000,
            max_size: ByteSize::from_kib(64 << 10),
            max_response_size: ByteSize::from_kib(1_024),
            max_share: MaxShare::default(),
        }
    }
}

impl IdempotencyConfig {
    /// Returns this configuration with the share of one caller.
    #[must_use]
    pub fn with_max_share(mut self, max_share: MaxShare) -> Self {
        self.max_share = max_share;
        self
    }

    /// Returns every unusable value, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.ttl != ConfigDuration::from_secs(0)
            && !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(86_400)).contains(&self.ttl)
        {
            problems.push(format!("ttl: must be 1s to 1d, or 0s to store nothing, not {}", self.ttl));
        }
        if !(1..=1_000_000).contains(&self.max_keys) {
            problems.push(format!("max_keys: must be 1 to 1000000, not {}", self.max_keys));
        }
        if self.max_size > ByteSize::from_kib(4 << 20) {
            problems.push(format!("max_size: must be at most 4GiB, not {}", self.max_size));
        }
        if self.max_response_size > ByteSize::from_kib(16 << 10) {
            problems.push(format!("max_response_size: must be at most 16MiB, not {}", self.max_response_size));
        }
        problems
    }

    /// Whether responses are stored.
    pub fn is_enabled(&self) -> bool {
        self.ttl != ConfigDuration::from_secs(0)
    }
}
