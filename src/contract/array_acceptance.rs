//! Whether a schema accepts arrays: an array for an agent that takes one object is a batch, and an array for an agent
//! that takes arrays is one input (R44).

use super::schema_references::{SchemaNode, SchemaReferences, resource_root};
use serde_json::{Map, Value};

/// Maximum number of references and combinators that are followed one within the other.
const MAX_DEPTH: u8 = 24;

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
pub(super) fn accepts_array(root: &Value, references: &SchemaReferences<'_>) -> bool {
    ArrayReader { references }.stance(SchemaNode { schema: root, resource: root }, MAX_DEPTH) == Describes
}

struct ArrayReader<'a, 'r> {
    references: &'r SchemaReferences<'a>,
}

impl<'a> ArrayReader<'a, '_> {
    fn stance(&self, node: SchemaNode<'a>, depth_left: u8) -> ArrayStance {
        let (keywords, Some(depth_left)) = (node.schema, depth_left.checked_sub(1)) else { return Silent };
        let keywords = match keywords {
            Value::Bool(false) => return Excludes,
            Value::Object(keywords) => keywords,
            _ => return Silent,
        };
        let resource = resource_root(node.schema, node.resource);
        let within = |schema| self.stance(SchemaNode { schema, resource }, depth_left);
        let each = |keyword: &str| keywords.get(keyword).and_then(Value::as_array).into_iter().flatten().map(&within);
        let references = ["$ref", "$dynamicRef", "$recursiveRef"].into_iter();
        let references = references.filter_map(|keyword| keywords.get(keyword)?.as_str());
        let targets = references.flat_map(|reference| self.references.resolve(reference, resource).unwrap_or_default());
        let mut stances = vec![own_stance(keywords)];
        stances.extend(targets.map(|target| self.stance(target, depth_left)));
        stances.extend(each("allOf"));
        stances.extend(["anyOf", "oneOf"].into_iter().filter_map(|keyword| any_of(each(keyword))));
        stances.extend(keywords.get("not").map(|schema| negate(schema, within(schema))));
        stances.push(conditional(keywords, within));
        all_of(stances)
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
fn conditional<'a>(keywords: &'a Map<String, Value>, within: impl Fn(&'a Value) -> ArrayStance) -> ArrayStance {
    let Some(condition) = keywords.get("if") else { return Silent };
    let branch = |keyword: &str| keywords.get(keyword).map_or(Silent, &within);
    let (condition, then, otherwise) = (within(condition), branch("then"), branch("else"));
    match (condition, then, otherwise) {
        (_, Excludes, Excludes) | (Excludes, _, Excludes) => Excludes,
        (Describes, _, _) | (_, Describes, _) | (_, _, Describes) => Describes,
        _ => Silent,
    }
}
