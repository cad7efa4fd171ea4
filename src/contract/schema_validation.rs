//! Compiled JSON Schema: draft 2020-12 unless `$schema` names another (2019-09, 7, 6, 4). `format` is an annotation
//! from 2019-09 on and an assertion before, as in the drafts. Schemas with unbounded cost are refused: remote
//! references, look-around in patterns, endless recursion.

use super::{
    array_acceptance,
    in_place_subschemas::in_place_subschemas,
    pattern_cost::{MAX_AUTOMATON_BYTES, MAX_STATE_CACHE_BYTES},
    schema_budget::DocumentBudget,
    schema_references::SchemaReferences,
    subschema_graph::SchemaGraph,
    validation_cost::{ExceededBound, LIGHT_NANOS, ValidationCost, ViolationSearch},
    violation_messages,
};
use crate::{
    fault::Violation,
    values::{
        json::{heap_bytes, is_deeper_than},
        sha256,
    },
};
use jsonschema::{PatternOptions, Validator};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Weak},
};

/// Maximum size of a schema, in bytes of compact JSON.
const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Maximum nesting of arrays and objects in a schema.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Memory of a compiled schema for each byte of its text: names and positions are stored several times.
const COMPILED_BYTES_PER_BYTE: u64 = 6;
/// How often the values of a schema are in memory: in the document, here, and those of `enum` and `const` in the validator.
const COPIES: u64 = 3;
/// Subschemas up to which a schema compiles on any stack, however they refer to each other.
const MAX_SUBSCHEMAS_ON_ANY_STACK: usize = 100;
/// Maximum number of violations in a response.
const MAX_VIOLATIONS: usize = 20;

/// A compiled schema.
pub struct CompiledSchema {
    validator: Validator,
    source: Value,
    cost: ValidationCost,
    accepts_array: bool,
    compiled_bytes: u64,
}

/// The work of a check in nanoseconds, or the bound that the value exceeds. It is 0 for a part of a body so short that
/// every one of its length is light.
#[derive(Clone, Debug)]
pub struct CheckWork(Result<u64, ExceededBound>);

impl CheckWork {
    /// No work, for a value that is not checked.
    pub(super) const NONE: Self = Self(Ok(0));

    /// Returns whether the checks together may take so long that they must not run on a thread that serves other calls.
    /// A value that exceeds a bound is refused without work.
    pub fn are_heavy(works: &[Self]) -> bool {
        let nanos = works.iter().filter_map(|work| work.0.as_ref().ok());
        nanos.fold(0, |sum: u64, nanos| sum.saturating_add(*nanos)) > LIGHT_NANOS
    }
}

impl CompiledSchema {
    /// Compiles `source`. Equal schemas are compiled once and shared while one of them is in use, because many agents
    /// may have the same schema.
    ///
    /// # Errors
    /// Returns why the schema is not valid, for its author.
    pub fn compile(source: &Value) -> Result<Arc<Self>, String> {
        Self::compile_within(source, &DocumentBudget::unlimited())
    }

    /// Compiles `source` as [`CompiledSchema::compile`] does, within the budget of its document.
    ///
    /// # Errors
    /// Returns why the schema is not valid or which budget it exceeds, for its author.
    pub fn compile_within(source: &Value, budget: &DocumentBudget<'_>) -> Result<Arc<Self>, String> {
        let text = serde_json::to_vec(source).map_err(|why| why.to_string())?;
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("the schema has {} bytes (at most {MAX_SCHEMA_BYTES})", text.len()));
        }
        let key = sha256(&text);
        if let Some(shared) = SCHEMA_CACHE.get(&key) {
            budget.charge(key, shared.compiled_bytes)?;
            return Ok(shared);
        }
        if !matches!(source, Value::Object(_) | Value::Bool(_)) {
            return Err("a schema must be an object, true or false".to_owned());
        }
        if is_deeper_than(source, MAX_SCHEMA_DEPTH) {
            return Err(format!("the schema is nested more than {MAX_SCHEMA_DEPTH} deep"));
        }
        let references = SchemaReferences::of_document(source);
        let graph = SchemaGraph::build(source, &references, budget)?;
        let text_bytes = (COMPILED_BYTES_PER_BYTE * text.len() as u64).max(COPIES * heap_bytes(source));
        let compiled_bytes = graph.compiled_bytes.saturating_add(text_bytes);
        budget.charge(key, compiled_bytes)?;
        let compiled = Self {
            validator: compile_validator(source, &graph)?,
            source: source.clone(),
            cost: ValidationCost::from_graph(&graph)?,
            accepts_array: array_acceptance::accepts_array(source, &references),
            compiled_bytes,
        };
        Ok(SCHEMA_CACHE.insert(key, compiled))
    }

    /// Returns the violations of `value`, at most 20; none if it is valid.
    pub fn validate(&self, value: &Value) -> Vec<Violation> {
        self.validate_up_to(value, MAX_VIOLATIONS)
    }

    /// Returns the violations of `value`, at most `max_violations`.
    pub fn validate_up_to(&self, value: &Value, max_violations: usize) -> Vec<Violation> {
        match self.cost.weigh(value) {
            Ok(nanos) => self.find_violations(value, nanos, max_violations),
            Err(bound) => violation_of_whole(bound.message()),
        }
    }

    /// Returns the violations of `value`; `work` is that of the value.
    ///
    /// # Errors
    /// The bound that the value exceeds.
    pub(super) fn validate_weighed(&self, value: &Value, work: &CheckWork) -> Result<Vec<Violation>, ExceededBound> {
        work.0.clone().map(|nanos| self.find_violations(value, nanos, MAX_VIOLATIONS))
    }

    /// Returns the work to validate `value`, the whole or a part of a body of this length.
    pub(super) fn work(&self, value: &Value, body_bytes: usize) -> CheckWork {
        if self.cost.is_light(body_bytes) { CheckWork::NONE } else { CheckWork(self.cost.weigh(value)) }
    }

    /// Returns whether `value` cannot be validated within the bounds of a check.
    #[cfg(test)]
    pub(super) fn exceeds_bounds(&self, value: &Value) -> bool {
        self.cost.weigh(value).is_err()
    }

    /// Returns the first violation of `value`, or `None` if it is valid, or if its check would take more time than
    /// `nanos_left`, which it reduces.
    pub(super) fn first_violation_within(&self, value: &Value, nanos_left: &mut u64) -> Option<Violation> {
        let nanos = self.cost.weigh(value).ok().filter(|nanos| *nanos <= (*nanos_left).min(LIGHT_NANOS))?;
        *nanos_left -= nanos;
        self.find_violations(value, nanos, 1).into_iter().next()
    }

    fn find_violations(&self, value: &Value, nanos: u64, max_violations: usize) -> Vec<Violation> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let violation = |error| violation_messages::violation_from_error(&error, &self.source);
        match self.cost.violation_search(nanos) {
            ViolationSearch::All => self.validator.iter_errors(value).take(max_violations).map(violation).collect(),
            ViolationSearch::First => self.validator.validate(value).err().map(violation).into_iter().collect(),
            ViolationSearch::None => {
                violation_of_whole("does not match its schema, and is too large to locate the violation".to_owned())
            }
        }
    }

    /// Returns whether the schema describes arrays as its top-level value. A schema that does not mention arrays does
    /// not.
    pub fn accepts_array(&self) -> bool {
        self.accepts_array
    }

    /// Returns whether the schema declares a top-level property of this name.
    pub fn declares_property(&self, property: &str) -> bool {
        declares(&self.source, &self.source, property, 8)
    }
}

/// Returns the violation of a value as a whole.
pub(super) fn violation_of_whole(message: String) -> Vec<Violation> {
    vec![Violation { pointer: String::new(), message }]
}

fn compile_validator(source: &Value, graph: &SchemaGraph) -> Result<Validator, String> {
    let patterns = PatternOptions::regex().size_limit(MAX_AUTOMATON_BYTES).dfa_size_limit(MAX_STATE_CACHE_BYTES);
    let options = jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        // The format would compile a caller's text as a pattern, and callers would determine the cost.
        .with_format("regex", |_: &str| true);
    let compile = || options.build(source).map_err(|why| violation_messages::invalid_schema_message(&why));
    if graph.subschemas.len() > MAX_SUBSCHEMAS_ON_ANY_STACK { run_with_large_stack(compile) } else { compile() }
}

/// Runs `build` on a thread with a large stack, because the compiler recurses along references, and a long chain
/// overflows the stack of a worker thread.
fn run_with_large_stack<T: Send>(build: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    let failure = || "the schema could not be compiled".to_owned();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(512 << 20).spawn_scoped(scope, build);
        thread.map_err(|_| failure())?.join().map_err(|_| failure())?
    })
}

impl std::fmt::Debug for CompiledSchema {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CompiledSchema").field("source", &self.source).finish_non_exhaustive()
    }
}

fn declares(schema: &Value, root: &Value, property: &str, depth_left: u8) -> bool {
    let is_own_property = schema.get("properties").and_then(|properties| properties.get(property)).is_some();
    is_own_property
        || (depth_left > 0
            && in_place_subschemas(schema, root).any(|schema| declares(schema, root, property, depth_left - 1)))
}

/// Weak references to the compiled schemas in use, by the digest of their text.
struct SchemaCache(Mutex<CachedSchemas>);

#[derive(Default)]
struct CachedSchemas {
    schemas: HashMap<[u8; 32], Weak<CompiledSchema>>,
    sweep_at: usize,
}

static SCHEMA_CACHE: LazyLock<SchemaCache> = LazyLock::new(|| SchemaCache(Mutex::new(CachedSchemas::default())));

impl SchemaCache {
    fn get(&self, key: &[u8; 32]) -> Option<Arc<CompiledSchema>> {
        self.0.lock().schemas.get(key)?.upgrade()
    }

    /// Inserts `schema`, or returns the equal schema that another thread has inserted.
    fn insert(&self, key: [u8; 32], schema: CompiledSchema) -> Arc<CompiledSchema> {
        let mut cached = self.0.lock();
        if let Some(existing) = cached.schemas.get(&key).and_then(Weak::upgrade) {
            return existing;
        }
        if cached.schemas.len() >= cached.sweep_at.max(64) {
            cached.schemas.retain(|_, schema| schema.strong_count() > 0);
            cached.sweep_at = cached.schemas.len() * 2;
        }
        let schema = Arc::new(schema);
        cached.schemas.insert(key, Arc::downgrade(&schema));
        schema
    }
}
