//! Compiled JSON Schema: draft 2020-12 unless `$schema` names another (2019-09, 7, 6, 4). `format` is an annotation
//! from 2019-09 on and an assertion before, as in the drafts. Schemas with unbounded cost are refused: remote
//! references, look-around in patterns, endless recursion.

use super::in_place_subschemas::in_place_subschemas;
use super::{
    subschema_graph::SchemaGraph,
    validation_cost::{ValidationCost, ViolationSearch},
    violation_messages,
};
use crate::{
    fault::Violation,
    values::{json::is_deeper_than, sha256},
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
/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;
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
}

impl CompiledSchema {
    /// Compiles `source`. Equal schemas are compiled once and shared while one of them is in use, because many agents
    /// may have the same schema.
    ///
    /// # Errors
    /// Returns why the schema is not valid, for its author.
    pub fn compile(source: &Value) -> Result<Arc<Self>, String> {
        let text = serde_json::to_vec(source).map_err(|why| why.to_string())?;
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("the schema has {} bytes (at most {MAX_SCHEMA_BYTES})", text.len()));
        }
        let key = sha256(&text);
        if let Some(shared) = SCHEMA_CACHE.get(&key) {
            return Ok(shared);
        }
        Ok(SCHEMA_CACHE.insert(key, Self::build(source)?))
    }

    fn build(source: &Value) -> Result<Self, String> {
        if !matches!(source, Value::Object(_) | Value::Bool(_)) {
            return Err("a schema must be an object, true or false".to_owned());
        }
        if is_deeper_than(source, MAX_SCHEMA_DEPTH) {
            return Err(format!("the schema is nested more than {MAX_SCHEMA_DEPTH} deep"));
        }
        let graph = SchemaGraph::build(source)?;
        let cost = ValidationCost::from_graph(&graph)?;
        let options = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            // The format would compile a caller's text as a pattern, and callers would determine the cost.
            .with_format("regex", |_: &str| true);
        let compile = || options.build(source).map_err(|why| violation_messages::invalid_schema_message(&why));
        let validator = if graph.subschemas.len() > MAX_SUBSCHEMAS_ON_ANY_STACK {
            run_with_large_stack(compile)
        } else {
            compile()
        }?;
        Ok(Self { validator, source: source.clone(), cost, accepts_array: allows_array(source, source, 8) })
    }

    /// Returns the violations of `value`, at most 20; none if it is valid.
    pub fn validate(&self, value: &Value) -> Vec<Violation> {
        self.validate_up_to(value, MAX_VIOLATIONS)
    }

    /// Returns the violations of `value`, at most `max_violations`.
    pub fn validate_up_to(&self, value: &Value, max_violations: usize) -> Vec<Violation> {
        let whole_value = |message: String| vec![Violation { pointer: String::new(), message }];
        if let Some(why) = self.cost.exceeded_bound(value) {
            return whole_value(why);
        }
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        let violation = |error| violation_messages::violation_from_error(&error, &self.source);
        match self.cost.violation_search(value) {
            ViolationSearch::All => self.validator.iter_errors(value).take(max_violations).map(violation).collect(),
            ViolationSearch::First => self.validator.validate(value).err().map(violation).into_iter().collect(),
            ViolationSearch::None => {
                whole_value("does not match its schema, and is too large to locate the violation".to_owned())
            }
        }
    }

    /// Returns whether the schema has `array` among the types of the top-level value. Without `type` it has not.
    pub fn accepts_array(&self) -> bool {
        self.accepts_array
    }

    /// Returns whether the schema declares a top-level property of this name.
    pub fn declares_property(&self, property: &str) -> bool {
        declares(&self.source, &self.source, property, 8)
    }
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

fn allows_array(schema: &Value, root: &Value, depth_left: u8) -> bool {
    let has_array_type = match schema.get("type") {
        Some(Value::String(name)) => name == "array",
        Some(Value::Array(names)) => names.iter().any(|name| name == "array"),
        _ => false,
    };
    has_array_type
        || (depth_left > 0
            && in_place_subschemas(schema, root).any(|schema| allows_array(schema, root, depth_left - 1)))
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
