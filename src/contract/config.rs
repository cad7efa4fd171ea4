//! What the operator decides about contracts: which sides are checked, and how large and deep a body may be.

use crate::unit::{Size, json::DEEPEST};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to a body that breaks its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It is refused: 400 for an input, 502 for an output.
    Enforce,
    /// It passes, and is counted and logged.
    Report,
    /// It is not looked at.
    Off,
}

/// How inputs and outputs are checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Contract")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Inputs against the operation's schema: enforce (default), report or off.
    pub input: Mode,
    /// Outputs against the operation's schema: enforce, report (default) or off.
    pub output: Mode,
    /// The largest body that is read to be checked; larger ones are refused with 413. Default 1MiB, at most 64MiB.
    pub max_body: Size,
    /// The deepest nesting of arrays and objects in a checked body; 1 to 120, default 64.
    pub max_depth: u16,
    /// Arrays of inputs for agents that take one at a time.
    pub batch: Batch,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            input: Mode::Enforce,
            output: Mode::Report,
            max_body: Size::kib(1024),
            max_depth: 64,
            batch: Batch::default(),
        }
    }
}

/// Arrays of inputs that the gateway takes apart (R44).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// The most inputs in one array; 1 to 10000, default 100.
    pub max_items: u16,
    /// How many of them are with the agent at once; 1 to 256, default 8.
    pub concurrency: u16,
}

impl Default for Batch {
    fn default() -> Self {
        Self { max_items: 100, concurrency: 8 }
    }
}

impl Config {
    /// Every value out of its bounds, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |path: &str, value: usize, most: usize| {
            if !(1..=most).contains(&value) {
                problems.push(format!("{path}: must be 1 to {most}, not {value}"));
            }
        };
        check("max_depth", self.max_depth.into(), DEEPEST.into());
        check("batch.max_items", self.batch.max_items.into(), 10_000);
        check("batch.concurrency", self.batch.concurrency.into(), 256);
        if !(1..=64 << 20).contains(&self.max_body.get()) {
            problems.push(format!("max_body: must be 1B to 64MiB, not {}", self.max_body));
        }
        problems
    }
}
