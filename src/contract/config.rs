//! Configuration of the contract: which bodies are validated against their schema, and how large and deep a body may
//! be.

use super::{
    document_checks::{DocumentChecks, FindingMode},
    schema_budget::SchemaLimits,
};
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
    /// Documents whose operations lack a schema of inputs or outputs: allow, report (in the log and on the admin page
    /// `/sources`) or refuse, which also refuses every A2A card, because cards have no schemas. Default: allow.
    pub missing_schemas: FindingMode,
    /// Documents with an example that does not match the operation's schemas: allow, report or refuse. The first 10
    /// examples of each operation are checked. Default: report.
    pub invalid_examples: FindingMode,
    /// Maximum size of a body that is validated; beyond it 413. 1B to 64MiB. Default: 1MiB.
    pub max_body_size: ByteSize,
    /// Maximum nesting of arrays and objects in a body that is validated; 1 to 120. Default: 64.
    pub max_depth: u16,
    /// Maximum memory of the compiled schemas of one document, patterns included; a document beyond it is refused.
    /// 64KiB to 256MiB. Default: 32MiB.
    pub max_compiled_size: ByteSize,
    /// Maximum memory of the compiled schemas of one source; documents beyond it are refused. Equal schemas count
    /// once. 1MiB to 16GiB. Default: 2GiB.
    pub max_compiled_size_per_source: ByteSize,
    /// Maximum memory of the compiled schemas of one publisher of the built-in registry; documents beyond it are
    /// refused. 64KiB to 16GiB. Default: 128MiB.
    pub max_compiled_size_per_publisher: ByteSize,
    /// Checks that may take longer than 10 ms, which run apart from all other calls.
    pub heavy_checks: HeavyCheckConfig,
    /// Batches: arrays of inputs for agents that take one input per call.
    pub batch: BatchConfig,
}

impl Default for ContractConfig {
    fn default() -> Self {
        Self {
            input: ContractMode::Enforce,
            output: ContractMode::Report,
            missing_schemas: FindingMode::Allow,
            invalid_examples: FindingMode::Report,
            max_body_size: ByteSize::from_kib(1024),
            max_depth: 64,
            max_compiled_size: ByteSize::from_kib(32 << 10),
            max_compiled_size_per_source: ByteSize::from_kib(2 << 20),
            max_compiled_size_per_publisher: ByteSize::from_kib(128 << 10),
            heavy_checks: HeavyCheckConfig::default(),
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

/// Checks that may take longer than 10 ms. They run on threads of their own, with a low priority.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeavyCheckConfig {
    /// Maximum number of concurrent heavy checks of one agent; beyond it 503. One caller has `limits.max_share` of
    /// them; beyond it 429. 1 to 64. Default: 4.
    pub max_per_agent: u16,
    /// Maximum number of heavy checks that wait for a thread; beyond it 503. 1 to 10000. Default: 64.
    pub max_queued: u16,
}

impl Default for HeavyCheckConfig {
    fn default() -> Self {
        Self { max_per_agent: 4, max_queued: 64 }
    }
}

impl ContractConfig {
    /// Returns which findings about documents matter.
    pub fn document_checks(&self) -> DocumentChecks {
        DocumentChecks { missing_schemas: self.missing_schemas, invalid_examples: self.invalid_examples }
    }

    /// Returns the limits of compiled schemas.
    pub fn schema_limits(&self) -> SchemaLimits {
        SchemaLimits {
            per_document: self.max_compiled_size.get() as u64,
            per_source: self.max_compiled_size_per_source.get() as u64,
            per_publisher: self.max_compiled_size_per_publisher.get() as u64,
        }
    }

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
        check("heavy_checks.max_per_agent", self.heavy_checks.max_per_agent.into(), 64);
        check("heavy_checks.max_queued", self.heavy_checks.max_queued.into(), 10_000);
        let mut check_size = |path: &str, value: ByteSize, min_kib: u64, max_kib: u64| {
            let (min, max) = (ByteSize::from_kib(min_kib), ByteSize::from_kib(max_kib));
            if !(min..=max).contains(&value) {
                problems.push(format!("{path}: {value} is out of bounds ({min} to {max})"));
            }
        };
        check_size("max_compiled_size", self.max_compiled_size, 64, 256 << 10);
        check_size("max_compiled_size_per_source", self.max_compiled_size_per_source, 1 << 10, 16 << 20);
        check_size("max_compiled_size_per_publisher", self.max_compiled_size_per_publisher, 64, 16 << 20);
        if !(1..=64 << 20).contains(&self.max_body_size.get()) {
            problems.push(format!("max_body_size: {} is out of bounds (1B to 64MiB)", self.max_body_size));
        }
        problems
    }
}
