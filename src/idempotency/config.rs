//! Configuration of idempotency: how many responses are stored, and for how long.

use crate::values::{ByteSize, ConfigDuration, MaxShare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Idempotent calls: requests with an `Idempotency-Key`. Keys are in memory, or in the state that gateways share (`state`):
/// then the bounds hold for all gateways together.
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
    /// How long a call with a key waits for the state that gateways share (`state`); 1ms to 10s. A call whose key cannot be
    /// claimed in this time is refused with 503, and its agent is not called. Default: 250ms.
    pub store_timeout: ConfigDuration,
    /// What becomes of calls with new keys after the shared state has lost its data, because it came back empty or older
    /// than it was: `refuse` answers 503 for one `ttl`, because they may have been made before; `open` makes them.
    /// Default: refuse.
    pub on_data_loss: OnDataLoss,
    /// The share of keys and responses that one caller may have: `limits.max_share`.
    #[serde(skip)]
    pub(super) max_share: MaxShare,
}

/// What becomes of calls with new keys after the shared state has lost its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDataLoss {
    /// They are refused for one `ttl`.
    #[default]
    Refuse,
    /// They are made, perhaps for the second time.
    Open,
}

impl Default for IdempotencyConfig {
    fn default() -> Self {
        Self {
            ttl: ConfigDuration::from_secs(600),
            max_keys: 100_000,
            max_size: ByteSize::from_kib(64 << 10),
            max_response_size: ByteSize::from_kib(1_024),
            store_timeout: ConfigDuration::from_millis(250),
            on_data_loss: OnDataLoss::default(),
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
        let timeouts = ConfigDuration::from_millis(1)..=ConfigDuration::from_secs(10);
        if !timeouts.contains(&self.store_timeout) {
            problems.push(format!("store_timeout: must be 1ms to 10s, not {}", self.store_timeout));
        }
        problems
    }

    /// Whether responses are stored.
    pub fn is_enabled(&self) -> bool {
        self.ttl != ConfigDuration::from_secs(0)
    }
}
