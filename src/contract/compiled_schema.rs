//! Compiled JSON Schema: draft 2020-12 unless `$schema` names another (2019-09, 7, 6, 4). `format` is an annotation
//! from 2019-09 on and an assertion before, as in the drafts.

use super::{
    array_acceptance,
    schema_budget::{CompileCost, DocumentBudget, SchemaDigest},
    shared_cache::SharedCache,
};
use crate::{
    fault::Violation,
    values::{
        json::{heap_bytes, truncate},
        sha256,
    },
};
use json_schema::{CompileError, CompileOptions, Evaluation, Outcome, Program, Tape, UnsupportedKeyword};
use serde_json::Value;
use std::{
    sync::{Arc, LazyLock},
    task::Poll,
};

/// Maximum number of violations in a response.
const MAX_VIOLATIONS: usize = 20;
/// Maximum number of characters of a reason for which a schema is refused.
const MAX_REASON: usize = 400;
/// Maximum number of keywords of one schema that are named as not in force.
const MAX_NAMED_KEYWORDS: usize = 5;
/// Maximum fuel of finding out whether a schema describes arrays.
const MAX_ARRAY_FUEL: u64 = 5_000_000;

/// A compiled schema.
#[derive(Debug)]
pub struct CompiledSchema {
    program: Arc<Program>,
    digest: SchemaDigest,
    accepts_array: bool,
    cost: CompileCost,
}

/// The schemas in use. Many agents may have the same schema.
static CACHE: LazyLock<SharedCache<CompiledSchema>> = LazyLock::new(SharedCache::default);

impl CompiledSchema {
    /// Compiles `source`. Equal schemas are compiled once and shared while one of them is in use.
    ///
    /// # Errors
    /// Returns why the schema is not valid, for its author.
    pub fn compile(source: &Value) -> Result<Arc<Self>, String> {
        Self::compile_within(&Arc::new(source.clone()), &DocumentBudget::unlimited())
    }

    /// Compiles `source` as [`CompiledSchema::compile`] does, within the budget of its document.
    ///
    /// # Errors
    /// Returns why the schema is not valid or which budget it exceeds, for its author.
    pub fn compile_within(source: &Arc<Value>, budget: &DocumentBudget<'_>) -> Result<Arc<Self>, String> {
        let text = serde_json::to_vec(source).map_err(|why| why.to_string())?;
        let digest = sha256(&text);
        if let Some(shared) = CACHE.get(&digest) {
            budget.charge(digest, shared.cost)?;
            return Ok(shared);
        }
        let (room, source_bytes) = (budget.room(), heap_bytes(source));
        let options = CompileOptions {
            max_memory: usize::try_from(room.bytes.saturating_sub(source_bytes)).unwrap_or(usize::MAX),
            max_fuel: room.fuel,
            ..CompileOptions::default()
        };
        let program = Program::compile(source, &options)
            .map_err(|why| budget.exceeded_problem(&why).unwrap_or_else(|| invalid_schema_message(&why)))?;
        let bytes = (program.memory() as u64).saturating_add(source_bytes);
        let cost = CompileCost { bytes, fuel: program.compile_fuel() };
        budget.charge(digest, cost)?;
        let accepts_array = array_acceptance::accepts_array(source, MAX_ARRAY_FUEL);
        Ok(CACHE.insert(digest, Self { program: Arc::new(program), digest, accepts_array, cost }))
    }

    /// Returns the violations of `value`, at most 20; none if it is valid. For values of operators: without a bound of
    /// fuel.
    pub fn validate(&self, value: &Value) -> Vec<Violation> {
        self.validate_up_to(value, MAX_VIOLATIONS)
    }

    /// Returns the violations of `value`, at most `max_violations`, as [`CompiledSchema::validate`] does.
    pub fn validate_up_to(&self, value: &Value, max_violations: usize) -> Vec<Violation> {
        let tape = match Tape::from_value(value) {
            Ok(tape) => tape,
            Err(why) => return vec![Violation::new(why.pointer, why.reason)],
        };
        let mut evaluation = Evaluation::new(Tape::ROOT, u64::MAX).with_max_violations(max_violations);
        loop {
            if let Poll::Ready(outcome) = evaluation.resume(&self.program, &tape, u64::MAX) {
                return violations_of(outcome);
            }
        }
    }

    /// Returns the program.
    pub(super) fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the schema.
    pub(super) fn source(&self) -> &Arc<Value> {
        self.program.schema()
    }

    /// Returns the digest of the schema's text.
    pub(super) fn digest(&self) -> &SchemaDigest {
        &self.digest
    }

    /// Returns the keywords that are not in force.
    pub fn unsupported(&self) -> &[UnsupportedKeyword] {
        self.program.unsupported()
    }

    /// Returns whether the schema describes arrays as its top-level value. A schema that does not mention arrays does
    /// not.
    pub fn accepts_array(&self) -> bool {
        self.accepts_array
    }
}

/// Returns the violations that a check found, or why it did not end.
pub(super) fn violations_of(outcome: Outcome) -> Vec<Violation> {
    let of_whole = |message: &str| vec![Violation::new("", message)];
    match outcome {
        Outcome::Valid => Vec::new(),
        Outcome::Invalid(violations) => violations.into_iter().map(Violation::from).collect(),
        Outcome::OutOfFuel => of_whole("takes more fuel to be checked against its schema than contract.fuel allows"),
        Outcome::OutOfMemory => of_whole("takes too much memory to be checked against its schema"),
    }
}

/// Returns what is not in force of a schema, for its author.
pub(super) fn unsupported_keywords(schema: &CompiledSchema) -> impl Iterator<Item = String> + '_ {
    let keywords = schema.unsupported().iter().take(MAX_NAMED_KEYWORDS);
    keywords.map(|keyword| format!("at {}: the keyword is not in force: {}", keyword.pointer, keyword.reason))
}

impl From<json_schema::Violation> for Violation {
    fn from(violation: json_schema::Violation) -> Self {
        let json_schema::Violation { pointer, keyword, message } = violation;
        Self { pointer, keyword: keyword.into(), message }
    }
}

/// Returns why a schema cannot be compiled, for its author.
fn invalid_schema_message(why: &CompileError) -> String {
    let text = truncate(&why.to_string(), MAX_REASON);
    match why {
        CompileError::Invalid { reason, .. } if !reason.starts_with("the reference ") => {
            format!("the schema is not valid: {text}")
        }
        _ => text,
    }
}
