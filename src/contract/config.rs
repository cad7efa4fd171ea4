//! Contract configuration: which bodies are checked against their schema, and how large and deep a body may be.

use crate::unit::{Size, json::DEEPEST};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the gateway does with a body that violates its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Refuse it: 400 for an input, 502 for an output.
    Enforce,
    /// Let it pass, count and log it.
    Report,
    /// Do not check it.
    Off,
}

/// Checks of inputs and outputs against the operation's schema.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Contract")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Inputs: enforce (default), report or off.
    pub input: Mode,
    /// Outputs: enforce, report (default) or off.
    pub output: Mode,
    /// Largest body that is read for a check; larger ones are refused with 413. 1B to 64MiB; default 1MiB.
    pub max_body: Size,
    /// Deepest nesting of arrays and objects in a checked body; 1 to 120, default 64.
    pub max_depth: u16,
    /// Batches: arrays of inputs for agents that take one input per call.
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

/// Batches: arrays of inputs that the gateway splits into calls (R44).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Maximum number of inputs in one batch; 1 to 10000, default 100.
    pub max_items: u16,
    /// Maximum number of concurrent calls to the agent for one batch; 1 to 256, default 8.
    pub concurrency: u16,
}

impl Default for Batch {
    fn default() -> Self {
        Self { max_items: 100, concurrency: 8 }
    }
}

impl Config {
    /// Returns every value that is out of bounds, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |path: &str, value: usize, max: usize| {
            if !(1..=max).contains(&value) {
                problems.push(format!("{path}: {value} is out of bounds (1 to {max})"));
            }
        };
        check("max_depth", self.max_depth.into(), DEEPEST.into());
        check("batch.max_items", self.batch.max_items.into(), 10_000);
        check("batch.concurrency", self.batch.concurrency.into(), 256);
        if !(1..=64 << 20).contains(&self.max_body.get()) {
            problems.push(format!("max_body: {} is out of bounds (1B to 64MiB)", self.max_body));
        }
        problems
    }
}
