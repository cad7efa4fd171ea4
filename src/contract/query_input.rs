//! Input of a `GET` invocation (R49): converts the query to the object that a body would have, with the types of the
//! schema. A text that does not fit its type stays a string, so that the validation reports the violation. Objects and
//! nested arrays require a `POST`.

use super::{
    schema_budget::{CompileCost, DocumentBudget, SchemaDigest},
    schema_walk::SchemaWalk,
    shared_cache::SharedCache,
    text_types::TextTypes,
};
use crate::{
    fault::{Fault, FaultCode},
    values::{form_pairs, sha256},
};
use json_schema::schema_index::SchemaLocation;
use serde_json::{Map, Value};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// Maximum number of parameters in one query.
const MAX_PARAMETERS: usize = 256;
/// Maximum length of one query, in bytes.
const MAX_QUERY_BYTES: usize = 64 << 10;
/// Maximum fuel of finding the types of one operation's properties; those beyond it are strings.
const MAX_FUEL: u64 = 10_000_000;
/// Memory of a property beside its name and types.
const PROPERTY_BYTES: u64 = 64;

/// The types of the properties of an input, by name.
#[derive(Debug, Default)]
pub struct QueryTypes {
    by_name: HashMap<Box<str>, Arc<TextTypes>, foldhash::fast::RandomState>,
    cost: CompileCost,
}

/// Those in use. Many agents may have the same schema.
static CACHE: LazyLock<SharedCache<QueryTypes>> = LazyLock::new(SharedCache::default);

impl QueryTypes {
    /// Determines the types of a schema's properties, within the budget of its document. `digest` is that of its text.
    ///
    /// # Errors
    /// The budget is exceeded.
    pub(super) fn of_schema(
        schema: &Value,
        digest: &SchemaDigest,
        budget: &DocumentBudget<'_>,
    ) -> Result<Arc<Self>, String> {
        // The types are charged beside the schema, and no text has this digest.
        let charged_digest = sha256(&[digest, &b"query"[..]].concat());
        let types = match CACHE.get(digest) {
            Some(shared) => shared,
            None => CACHE.insert(*digest, Self::read(schema, budget.room().fuel.min(MAX_FUEL))),
        };
        budget.charge(charged_digest, types.cost)?;
        Ok(types)
    }

    /// Determines the types of a schema's properties, without a budget.
    #[cfg(test)]
    pub(super) fn of_value(schema: &Value) -> Self {
        Self::read(schema, MAX_FUEL)
    }

    fn read(schema: &Value, max_fuel: u64) -> Self {
        let mut types = Self::default();
        let Some(mut walk) = SchemaWalk::begin(schema, max_fuel) else { return types };
        let mut known: HashMap<*const Value, Arc<TextTypes>> = HashMap::new();
        let root = walk.root();
        for location in root.map(|root| walk.in_place(root)).unwrap_or_default() {
            for (name, property) in location.schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if !walk.charge(10 + name.len() as u64 / 16) {
                    break;
                }
                if types.by_name.contains_key(name.as_str()) {
                    continue;
                }
                let place = follow_plain_references(walk.child(location, property), &mut walk);
                let of_property = known.entry(place.schema).or_insert_with(|| {
                    let of_place = TextTypes::of_location(place, &mut walk);
                    types.cost.bytes += of_place.memory();
                    Arc::new(of_place)
                });
                types.cost.bytes += PROPERTY_BYTES + name.len() as u64;
                types.by_name.insert(name.as_str().into(), Arc::clone(of_property));
            }
        }
        types.cost.fuel = walk.fuel_used();
        types
    }

    /// Returns whether the schema declares a property of this name.
    pub fn declares(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Converts `query` (without its `?`) to an object.
    ///
    /// # Errors
    /// 400 `InvalidInput` for invalid percent-encoding, a repeated parameter that is not an array, or too many
    /// parameters; 414 for a query longer than 64 KiB.
    pub fn input_from_query(&self, query: &str) -> Result<Map<String, Value>, Fault> {
        if query.len() > MAX_QUERY_BYTES {
            let message = "The query is too long (at most 64 KiB; use POST)";
            return Err(Fault::new(FaultCode::InvalidInput, message).with_status(414));
        }
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        for (at, pair) in form_pairs(query).enumerate() {
            if at == MAX_PARAMETERS {
                return Err(Fault::new(
                    FaultCode::InvalidInput,
                    format!("The query has more than {MAX_PARAMETERS} parameters (use POST)"),
                ));
            }
            let malformed = "The query is not percent-encoded UTF-8 (write %25 for %)";
            let (name, value) = pair.ok_or_else(|| Fault::new(FaultCode::InvalidInput, malformed))?;
            if name.is_empty() {
                return Err(Fault::new(FaultCode::InvalidInput, "The query has a parameter without a name"));
            }
            match parameters.iter_mut().find(|(existing, _)| *existing == name) {
                Some((_, values)) => values.push(value),
                None => parameters.push((name, vec![value])),
            }
        }
        let unknown = TextTypes::default();
        let mut members = Map::new();
        for (name, values) in parameters {
            let types = self.by_name.get(name.as_str()).map_or(&unknown, |types| &**types);
            let value = types.convert_parameter(&name, values)?;
            members.insert(name, value);
        }
        Ok(members)
    }
}

/// Follows references that have nothing beside them, so that what they lead to is read once.
fn follow_plain_references<'a>(start: SchemaLocation<'a>, walk: &mut SchemaWalk<'a>) -> SchemaLocation<'a> {
    let mut location = start;
    loop {
        let is_plain = location.schema.as_object().is_some_and(|keywords| keywords.len() == 1);
        let is_plain = is_plain && location.schema.get("$ref").is_some();
        match walk.targets(location).first().filter(|_| is_plain) {
            // A circle ends with the fuel.
            Some(target) if walk.charge(10) => location = *target,
            _ => return location,
        }
    }
}
