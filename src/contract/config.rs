//! Contract configuration: which bodies are checked against their schema, and how large and deep a body may be.

use crate::values::{ByteSize, json::MAX_DEPTH};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the gateway does with a body that violates its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContractMode {
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
pub struct ContractConfig {
    /// Inputs: enforce (default), report or off.
    pub input: ContractMode,
    /// Outputs: enforce, report (default) or off.
    pub output: ContractMode,
    /// Largest body that is read for a check; larger ones are refused with 413. 1B to 64MiB; default 1MiB.
    pub max_body_size: ByteSize,
    /// Deepest nesting of arrays and objects in a checked body; 1 to 120, default 64.
    pub max_depth: u16,
    /// Batches: arrays of inputs for agents that take one input per call.
    pub batch: BatchConfig,
}

impl Default for ContractConfig {
    fn default() -> Self {
        Self {
            input: ContractMode::Enforce,
            output: ContractMode::Report,
            max_body_size: ByteSize::from_kib(1024),
            max_depth: 64,
            batch: BatchConfig::default(),
        }
    }
}

/// Batches: arrays of inputs that the gateway splits into calls (R44).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// Maximum number of inputs in one batch; 1 to 10000, default 100.
    pub max_items: u16,
    /// Maximum number of concurrent calls to the agent for one batch; 1 to 256, default 8.
    pub max_concurrency: u16,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { max_items: 100, max_concurrency: 8 }
    }
}

impl ContractConfig {
    /// Returns every value that is out of bounds, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |path: &str, value: usize, max: usize| {
            if !(1..=max).contains(&value) {
                problems.push(format!("{path}: {value} is out of bounds (1 to {max})"));
            }
        };
        check("max_depth", self.max_depth.into(), MAX_DEPTH.into());
        check("batch.max_items", self.batch.max_items.into(), 10_000);
        check("batch.max_concurrency", self.batch.max_concurrency.into(), 256);
        if !(1..=64 << 20).contains(&self.max_body_size.get()) {
            problems.push(format!("max_body_size: {} is out of bounds (1B to 64MiB)", self.max_body_size));
        }
        problems
    }
}
