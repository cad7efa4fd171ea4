//! Contract: validates inputs and outputs against the schemas that the agent declares (R13, R29, R32). Schemas are
//! compiled once, when a document is read; the crate `json_schema` runs them. This module fetches no references.

mod array_acceptance;
mod body_tape;
mod call_checks;
mod check_scheduler;
mod compiled_schema;
mod config;
mod document_checks;
mod openapi_schema;
mod operation_contract;
mod query_input;
mod schema_budget;
mod schema_walk;
mod shared_cache;
#[cfg(test)]
mod tests;
mod text_types;

pub use body_tape::{BodyTape, JsonBounds, MemoryAccount, MemoryAccounts, parse_json, text_of};
pub use call_checks::{CallChecks, CheckOwner, CountedValue, ParseFailure};
pub use check_scheduler::{AgentSuspendedChecks, CheckScheduler, SuspendRequest, SuspendedWork};
pub use compiled_schema::CompiledSchema;
pub use config::{BatchConfig, CheckFuel, ContractConfig, ContractMode, ContractRule, SuspendedCheckConfig};
pub use document_checks::{DocumentChecks, DocumentFindings, FindingMode, OperationSchemas, UnsupportedMode};
pub use json_schema::{
    Tape,
    tape::{Node, NodeKind},
};
pub use openapi_schema::{SchemaDialect, SubschemaPlace, convert_exclusive_bounds, subschemas_of};
pub use operation_contract::OperationContract;
pub use query_input::QueryTypes;
pub use schema_budget::{CompileCost, DocumentBudget, SchemaBudget, SchemaCharge, SchemaDigest, SchemaLimits};
pub use text_types::TextTypes;
