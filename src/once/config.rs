//! Configuration of idempotency: how many responses are stored, and for how long.

use crate::unit::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Idempotent calls: requests with an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Idempotency")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long the first response is replayed; 1s to 1d, or 0s to forward keys and store nothing. Default: 10m.
    pub keep: Span,
    /// Maximum number of stored keys; the oldest are dropped first; 1 to 1000000. Default: 100000.
    pub most: u32,
    /// Maximum size of all stored responses; at most 4GiB. Beyond it the oldest responses are dropped, and requests
    /// with their keys get a 409: their calls are not repeated. Default: 64MiB.
    pub size: Size,
    /// Maximum size of one stored response; at most 16MiB. A larger one is returned once and not stored. Default: 1MiB.
    pub max_answer: Size,
}

impl Default for Config {
    fn default() -> Self {
        Self { keep: Span::secs(600), most: 100_000, size: Size::kib(64 << 10), max_answer: Size::kib(1_024) }
    }
}

impl Config {
    /// Returns every unusable value, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.keep != Span::secs(0) && !(Span::secs(1)..=Span::secs(86_400)).contains(&self.keep) {
            problems.push(format!("keep: must be 1s to 1d, or 0s to store nothing, not {}", self.keep));
        }
        if !(1..=1_000_000).contains(&self.most) {
            problems.push(format!("most: must be 1 to 1000000, not {}", self.most));
        }
        if self.size > Size::kib(4 << 20) {
            problems.push(format!("size: must be at most 4GiB, not {}", self.size));
        }
        if self.max_answer > Size::kib(16 << 10) {
            problems.push(format!("max_answer: must be at most 16MiB, not {}", self.max_answer));
        }
        problems
    }

    /// Whether responses are stored.
    pub fn is_on(&self) -> bool {
        self.keep != Span::secs(0)
    }
}
