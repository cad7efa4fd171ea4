//! Configuration of the contract: which bodies are validated against their schema, and how large and deep a body may
//! be.

use crate::values::{ByteSize, json::MAX_DEPTH};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the gateway does with a body that violates its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ContractMode {
    /// The call fails: 400 for an input, 502 for an output.
    Enforce,
    /// The body passes, and the violation is counted and logged.
    Report,
    /// Bodies are not validated.
    Off,
}

/// Validation of inputs and outputs against the operation's schemas.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Contract")]
#[serde(deny_unknown_fields, default)]
pub struct ContractConfig {
    /// Validation of inputs: enforce, report or off. Default: enforce.
    pub input: ContractMode,
    /// Validation of outputs: enforce, report or off. Default: report.
    pub output: ContractMode,
    /// Maximum size of a body that is validated; beyond it 413. 1B to 64MiB. Default: 1MiB.
    pub max_body_size: ByteSize,
    /// Maximum nesting of arrays and objects in a body that is validated; 1 to 120. Default: 64.
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
    /// Maximum number of inputs in one batch; 1 to 10000. Default: 100.
    pub max_items: u16,
    /// Maximum number of concurrent calls to the agent for one batch; 1 to 256. Default: 8.
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
