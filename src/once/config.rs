//! How much is remembered of calls that are made once, and how long.

use crate::unit::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls with an `Idempotency-Key`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Idempotency")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long a first answer is given again; 1s to 1d, default 10m. 0s passes the key on and remembers nothing.
    pub keep: Span,
    /// Keys that are remembered; the oldest are forgotten first. 1 to 1000000, default 100000.
    pub most: u32,
    /// Bytes of all answers that are remembered; at most 4GiB, default 64MiB. Beyond it the oldest answers go, and
    /// whoever sends their keys again is told so (409): the calls are not made again.
    pub size: Size,
    /// The largest answer that is remembered; a larger one is given once. At most 16MiB, default 1MiB.
    pub max_answer: Size,
}

impl Default for Config {
    fn default() -> Self {
        Self { keep: Span::secs(600), most: 100_000, size: Size::kib(64 << 10), max_answer: Size::kib(1_024) }
    }
}

impl Config {
    /// Every value that cannot be used, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.keep != Span::secs(0) && !(Span::secs(1)..=Span::secs(86_400)).contains(&self.keep) {
            problems.push(format!("keep: must be 1s to 1d, or 0s for nothing, not {}", self.keep));
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

    /// Whether anything is remembered.
    pub fn is_on(&self) -> bool {
        self.keep != Span::secs(0)
    }
}
