//! Configuration of the contract: which bodies are validated against their schema, and how large and deep a body may
//! be.

use super::{
    document_checks::{DocumentChecks, FindingMode, UnsupportedMode},
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
    /// Keywords of schemas that cannot be in force, such as a pattern that is too large: report (the agent is served
    /// without the keyword; in the log and on the admin page `/sources`) or refuse. Default: report.
    pub unsupported: UnsupportedMode,
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
    /// How much work the check of one body may take, in units of about 10 ns; beyond it 413.
    pub fuel: CheckFuel,
    /// Maximum memory of the compiled schemas of one document, with their sources and patterns; a document beyond it is
    /// refused. 64KiB to 256MiB. Default: 32MiB.
    pub max_compiled_size: ByteSize,
    /// Maximum memory of the compiled schemas of one source; documents beyond it are refused. Equal schemas count
    /// once. 1MiB to 16GiB. Default: 2GiB.
    pub max_compiled_size_per_source: ByteSize,
    /// Maximum memory of the compiled schemas of one publisher of the built-in registry; documents beyond it are
    /// refused. 64KiB to 16GiB. Default: 128MiB.
    pub max_compiled_size_per_publisher: ByteSize,
    /// Maximum work of compiling the schemas of one document, in units of about 10 ns; a document beyond it is refused.
    /// 1000000 to 100000000000. Default: 500000000.
    pub max_compile_fuel: u64,
    /// Maximum work of compiling the schemas of all documents of one publisher of the built-in registry; documents beyond
    /// it are refused. 1000000 to 10000000000000. Default: 5000000000.
    pub max_compile_fuel_per_publisher: u64,
    /// Checks that take longer than a millisecond, which go on apart from all other calls.
    pub suspended_checks: SuspendedCheckConfig,
    /// Batches: arrays of inputs for agents that take one input per call.
    pub batch: BatchConfig,
}

impl Default for ContractConfig {
    fn default() -> Self {
        Self {
            input: ContractMode::Enforce,
            output: ContractMode::Report,
            unsupported: UnsupportedMode::Report,
            missing_schemas: FindingMode::Allow,
            invalid_examples: FindingMode::Report,
            max_body_size: ByteSize::from_kib(1024),
            max_depth: 64,
            fuel: CheckFuel::default(),
            max_compiled_size: ByteSize::from_kib(32 << 10),
            max_compiled_size_per_source: ByteSize::from_kib(2 << 20),
            max_compiled_size_per_publisher: ByteSize::from_kib(128 << 10),
            max_compile_fuel: 500_000_000,
            max_compile_fuel_per_publisher: 5_000_000_000,
            suspended_checks: SuspendedCheckConfig::default(),
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

/// How much work the check of one body may take: a basis, and so much for each byte of the body. A unit is about 10 ns of
/// one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckFuel {
    /// Units for every body, however short. 10000 to 100000000000. Default: 20000000.
    pub floor: u64,
    /// Units for each byte of the body. 0 to 1000000. Default: 50.
    pub per_byte: u32,
}

impl Default for CheckFuel {
    fn default() -> Self {
        Self { floor: 20_000_000, per_byte: 50 }
    }
}

impl CheckFuel {
    /// Returns the units for a body of this length.
    pub fn of_body(self, bytes: usize) -> u64 {
        self.floor.saturating_add(u64::from(self.per_byte).saturating_mul(bytes as u64))
    }

    fn problems(self) -> Vec<String> {
        let mut problems = Vec::new();
        check_range(&mut problems, "fuel.floor", self.floor, 10_000, 100_000_000_000);
        check_range(&mut problems, "fuel.per_byte", self.per_byte.into(), 0, 1_000_000);
        problems
    }
}

/// Settings of the contract that differ for some agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContractRule {
    /// Validation of inputs: enforce, report or off. Default: `contract.input`.
    pub input: Option<ContractMode>,
    /// Validation of outputs: enforce, report or off. Default: `contract.output`.
    pub output: Option<ContractMode>,
    /// How much work the check of one body may take. Default: `contract.fuel`.
    pub fuel: Option<CheckFuel>,
    /// Keywords of schemas that cannot be in force: report or refuse. Default: `contract.unsupported`.
    pub unsupported: Option<UnsupportedMode>,
}

impl ContractRule {
    /// Returns every value that is out of bounds, by its path within this section.
    pub fn problems(&self) -> Vec<String> {
        self.fuel.map(CheckFuel::problems).unwrap_or_default()
    }
}

/// Checks that take longer than a millisecond. They go on in turn on threads of their own, with a low priority.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SuspendedCheckConfig {
    /// Maximum number of such checks of one agent; beyond it 503. One caller has `limits.max_share` of them; beyond it
    /// 429. 1 to 10000. Default: 64.
    pub max_per_agent: u16,
    /// Maximum number of such checks of all agents; beyond it 503. One caller has `limits.max_share` of them; beyond it
    /// 429. 1 to 10000. Default: 256.
    pub max_total: u16,
}

impl Default for SuspendedCheckConfig {
    fn default() -> Self {
        Self { max_per_agent: 64, max_total: 256 }
    }
}

fn check_range(problems: &mut Vec<String>, path: &str, value: u64, min: u64, max: u64) {
    if !(min..=max).contains(&value) {
        problems.push(format!("{path}: {value} is out of bounds ({min} to {max})"));
    }
}

impl ContractConfig {
    /// Returns which findings about documents matter.
    pub fn document_checks(&self) -> DocumentChecks {
        DocumentChecks {
            missing_schemas: self.missing_schemas,
            invalid_examples: self.invalid_examples,
            unsupported: self.unsupported,
        }
    }

    /// Returns the limits of compiled schemas.
    pub fn schema_limits(&self) -> SchemaLimits {
        SchemaLimits {
            per_document: self.max_compiled_size.get() as u64,
            per_source: self.max_compiled_size_per_source.get() as u64,
            per_publisher: self.max_compiled_size_per_publisher.get() as u64,
            fuel_per_document: self.max_compile_fuel,
            fuel_per_publisher: self.max_compile_fuel_per_publisher,
        }
    }

    /// Returns the settings for agents that match these rules, of which a later one overrides.
    #[must_use]
    pub fn with_rules<'r>(&self, rules: impl Iterator<Item = &'r ContractRule>) -> Self {
        let mut config = self.clone();
        for rule in rules {
            config.input = rule.input.unwrap_or(config.input);
            config.output = rule.output.unwrap_or(config.output);
            config.fuel = rule.fuel.unwrap_or(config.fuel);
            config.unsupported = rule.unsupported.unwrap_or(config.unsupported);
        }
        config
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
        check("suspended_checks.max_per_agent", self.suspended_checks.max_per_agent.into(), 10_000);
        check("suspended_checks.max_total", self.suspended_checks.max_total.into(), 10_000);
        let mut check_size = |path: &str, value: ByteSize, min_kib: u64, max_kib: u64| {
            let (min, max) = (ByteSize::from_kib(min_kib), ByteSize::from_kib(max_kib));
            if !(min..=max).contains(&value) {
                problems.push(format!("{path}: {value} is out of bounds ({min} to {max})"));
            }
        };
        check_size("max_compiled_size", self.max_compiled_size, 64, 256 << 10);
        check_size("max_compiled_size_per_source", self.max_compiled_size_per_source, 1 << 10, 16 << 20);
        check_size("max_compiled_size_per_publisher", self.max_compiled_size_per_publisher, 64, 16 << 20);
        problems.extend(self.fuel.problems());
        check_range(&mut problems, "max_compile_fuel", self.max_compile_fuel, 1_000_000, 100_000_000_000);
        let per_publisher = self.max_compile_fuel_per_publisher;
        check_range(&mut problems, "max_compile_fuel_per_publisher", per_publisher, 1_000_000, 10_000_000_000_000);
        if !(1..=64 << 20).contains(&self.max_body_size.get()) {
            problems.push(format!("max_body_size: {} is out of bounds (1B to 64MiB)", self.max_body_size));
        }
        problems
    }
}
