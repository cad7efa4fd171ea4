//! Whether a schema accepts arrays: an array for an agent that takes one object is a batch, and an array for an agent
//! that takes arrays is one input (R44).

use super::schema_walk::SchemaWalk;
use json_schema::schema_index::SchemaLocation;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum number of references and combinators that are followed one within the other.
const MAX_DEPTH: u8 = 100;
/// Units of fuel for a subschema.
const VISIT_COST: u64 = 50;

/// Keywords that apply to arrays alone.
const ARRAY_KEYWORDS: &[&str] = &[
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
];

/// What a schema says of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrayStance {
    /// No array is valid.
    Excludes,
    /// The schema does not mention arrays.
    Silent,
    /// The schema describes arrays.
    Describes,
}

use ArrayStance::{Describes, Excludes, Silent};

/// Returns whether the schema describes arrays and does not exclude them. A schema that does not mention them, such as
/// `{}`, does not accept them.
pub(super) fn accepts_array(root: &Value, max_fuel: u64) -> bool {
    // Most inputs are objects.
    if root.as_object().is_some_and(|keywords| own_stance(keywords) == Excludes) {
        return false;
    }
    let Some(walk) = SchemaWalk::begin(root, max_fuel) else { return false };
    let Some(root) = walk.root() else { return false };
    ArrayReader { walk, known: HashMap::new() }.stance(root, MAX_DEPTH) == Describes
}

struct ArrayReader<'a> {
    walk: SchemaWalk<'a>,
    /// What the subschemas say that were read; `Silent` while they are being read.
    known: HashMap<*const Value, ArrayStance>,
}

impl<'a> ArrayReader<'a> {
    fn stance(&mut self, location: SchemaLocation<'a>, depth_left: u8) -> ArrayStance {
        let Some(depth_left) = depth_left.checked_sub(1).filter(|_| self.walk.charge(VISIT_COST)) else {
            return Silent;
        };
        let keywords = match location.schema {
            Value::Bool(false) => return Excludes,
            Value::Object(keywords) => keywords,
            _ => return Silent,
        };
        let address = std::ptr::from_ref(location.schema);
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        self.known.insert(address, Silent);
        let mut stances = vec![own_stance(keywords)];
        for target in self.walk.targets(location) {
            stances.push(self.stance(target, depth_left));
        }
        let mut each = |keyword: &str| -> Vec<ArrayStance> {
            let schemas = keywords.get(keyword).and_then(Value::as_array).into_iter().flatten();
            schemas.map(|schema| self.stance(self.walk.child(location, schema), depth_left)).collect()
        };
        stances.extend(each("allOf"));
        stances.extend(["anyOf", "oneOf"].into_iter().filter_map(|keyword| any_of(each(keyword).into_iter())));
        let mut within = |schema: &'a Value| self.stance(self.walk.child(location, schema), depth_left);
        stances.extend(keywords.get("not").map(|schema| negate(schema, within(schema))));
        stances.push(conditional(keywords, within));
        let stance = all_of(stances);
        self.known.insert(address, stance);
        stance
    }
}

/// Returns the stance of the keywords that have no subschemas for the same value.
fn own_stance(keywords: &Map<String, Value>) -> ArrayStance {
    let of_options = |has_array: bool| if has_array { Describes } else { Excludes };
    let of_type = keywords.get("type").map(|name| of_options(names_array(name)));
    let of_enum = keywords.get("enum").and_then(Value::as_array);
    let of_enum = of_enum.map(|options| of_options(options.iter().any(Value::is_array)));
    let of_const = keywords.get("const").map(|constant| of_options(constant.is_array()));
    let restricts = |keyword: &&str| keywords.get(*keyword).is_some_and(restricts_arrays);
    let of_keywords = ARRAY_KEYWORDS.iter().any(restricts).then_some(Describes);
    all_of([of_type, of_enum, of_const, of_keywords].into_iter().flatten())
}

fn names_array(name: &Value) -> bool {
    match name {
        Value::String(name) => name == "array",
        Value::Array(names) => names.iter().any(|name| name == "array"),
        _ => false,
    }
}

/// Returns whether the value of an array keyword restricts anything: `items: {}` does not.
fn restricts_arrays(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
        _ => false,
    }
}

fn all_of(stances: impl IntoIterator<Item = ArrayStance>) -> ArrayStance {
    stances.into_iter().fold(Silent, |sum, stance| match (sum, stance) {
        (Excludes, _) | (_, Excludes) => Excludes,
        (Describes, _) | (_, Describes) => Describes,
        (Silent, Silent) => Silent,
    })
}

/// Returns the stance of alternatives, if there are any.
fn any_of(stances: impl Iterator<Item = ArrayStance>) -> Option<ArrayStance> {
    stances.reduce(|sum, stance| match (sum, stance) {
        (Describes, _) | (_, Describes) => Describes,
        (Silent, _) | (_, Silent) => Silent,
        (Excludes, Excludes) => Excludes,
    })
}

/// Returns the stance of `not`: what excludes all arrays, excludes none when it is negated.
fn negate(schema: &Value, stance: ArrayStance) -> ArrayStance {
    let excludes_all = match schema {
        Value::Bool(excludes) => *excludes,
        Value::Object(keywords) => {
            keywords.keys().all(|keyword| keyword == "type" && keywords.get(keyword).is_some_and(names_array))
        }
        _ => false,
    };
    match (excludes_all, stance) {
        (true, _) => Excludes,
        (false, Describes) => Describes,
        (false, Silent | Excludes) => Silent,
    }
}

/// Returns the stance of `if`, `then` and `else`: arrays are excluded if both branches exclude them.
fn conditional<'a>(keywords: &'a Map<String, Value>, within: impl FnMut(&'a Value) -> ArrayStance) -> ArrayStance {
    let mut within = within;
    let Some(condition) = keywords.get("if") else { return Silent };
    let condition = within(condition);
    let mut branch = |keyword: &str| keywords.get(keyword).map_or(Silent, &mut within);
    let (then, otherwise) = (branch("then"), branch("else"));
    match (condition, then, otherwise) {
        (_, Excludes, Excludes) | (Excludes, _, Excludes) => Excludes,
        (Describes, _, _) | (_, Describes, _) | (_, _, Describes) => Describes,
        _ => Silent,
    }
}
