//! The subschemas that apply to the same value as their schema.

use serde_json::Value;

/// Returns the in-place subschemas of `schema`, which a reference or `anyOf`, `oneOf` and `allOf` apply to the same
/// value.
pub(super) fn in_place_subschemas<'a>(schema: &'a Value, root: &'a Value) -> impl Iterator<Item = &'a Value> {
    let target =
        schema.get("$ref").and_then(Value::as_str).and_then(|reference| root.pointer(reference.strip_prefix('#')?));
    let combined = ["anyOf", "oneOf", "allOf"].into_iter();
    let combined = combined.filter_map(|keyword| schema.get(keyword)?.as_array()).flatten();
    target.into_iter().chain(combined)
}
