//! Schema graph: which subschemas apply to the same value, which apply to the values below it, and what each costs.

use super::{
    pattern_cost::PatternCost,
    schema_budget::DocumentBudget,
    schema_references::{SchemaNode, SchemaReferences, node_address, resource_root},
    work_rates::{COMPARISON_NANOS, EVALUATION_NANOS, WorkRates},
};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum number of subschemas in one schema.
const MAX_SUBSCHEMAS: usize = 20_000;
/// Maximum number of subschemas that references lead to, counted for each reference: a dynamic one has many targets.
const MAX_REFERENCE_TARGETS: usize = 100_000;
/// Memory of a compiled subschema, with the positions that its messages have; measured.
const SUBSCHEMA_BYTES: u64 = 3 << 10;
/// Memory of a compiled subschema without keywords.
const EMPTY_SUBSCHEMA_BYTES: u64 = 3 << 9;
/// Memory of a compiled reference, which holds its target's position and state.
const REFERENCE_BYTES: u64 = 1 << 10;
/// Time per byte of a text whose format or encoding is checked.
const FORMAT_NANOS: u64 = 50;
/// Time of a division of numbers that do not fit a machine word.
const DIVISION_NANOS: u64 = 20_000;

/// One subschema.
#[derive(Debug, Default)]
pub(super) struct Subschema {
    /// Work of the subschema alone.
    pub(super) work: WorkRates,
    /// In-place applicators: subschemas that apply to the same value.
    pub(super) in_place: Vec<usize>,
    /// Child applicators: groups of subschemas for the values below. One subschema of each group applies to a value.
    pub(super) children: Vec<Vec<usize>>,
    /// Subschemas for the names of an object.
    pub(super) names: Vec<usize>,
}

/// The reachable subschemas of a schema; the first is the root.
#[derive(Debug)]
pub(super) struct SchemaGraph {
    pub(super) subschemas: Vec<Subschema>,
    /// Whether the schema has alternatives (`anyOf`, `oneOf`).
    pub(super) has_alternatives: bool,
    /// Memory of the compiled schema, in bytes.
    pub(super) compiled_bytes: u64,
}

impl SchemaGraph {
    /// Follows every keyword and reference from `root`.
    ///
    /// # Errors
    /// A reference that leaves the document or has no target, a pattern that is not supported, too many subschemas, or
    /// a compiled size beyond the budget of the document.
    pub(super) fn build(
        root: &Value,
        references: &SchemaReferences<'_>,
        budget: &DocumentBudget<'_>,
    ) -> Result<Self, String> {
        let mut builder = SchemaGraphBuilder {
            references,
            budget,
            root,
            indices: HashMap::new(),
            queue: Vec::new(),
            patterns: HashMap::new(),
            reference_targets: 0,
            compiled_bytes: 0,
        };
        builder.enqueue(SchemaNode { schema: root, resource: root });
        let (mut subschemas, mut has_alternatives) = (Vec::new(), false);
        while let Some(&node) = builder.queue.get(subschemas.len()) {
            subschemas.push(builder.build_subschema(node)?);
            budget.check(builder.compiled_bytes)?;
            has_alternatives |= node.schema.get("anyOf").is_some() || node.schema.get("oneOf").is_some();
            if builder.queue.len() > MAX_SUBSCHEMAS {
                return Err(format!("the schema has more than {MAX_SUBSCHEMAS} subschemas"));
            }
        }
        Ok(Self { subschemas, has_alternatives, compiled_bytes: builder.compiled_bytes })
    }
}

struct SchemaGraphBuilder<'a, 'r> {
    references: &'r SchemaReferences<'a>,
    budget: &'r DocumentBudget<'r>,
    root: &'a Value,
    indices: HashMap<usize, usize>,
    queue: Vec<SchemaNode<'a>>,
    /// Equal patterns are compiled once.
    patterns: HashMap<&'a str, PatternCost>,
    reference_targets: usize,
    compiled_bytes: u64,
}

impl<'a> SchemaGraphBuilder<'a, '_> {
    fn enqueue(&mut self, node: SchemaNode<'a>) -> usize {
        let next = self.queue.len();
        let index = *self.indices.entry(node_address(node.schema)).or_insert(next);
        if index == next {
            let resource = resource_root(node.schema, node.resource);
            self.queue.push(SchemaNode { schema: node.schema, resource });
        }
        index
    }

    fn build_subschema(&mut self, node: SchemaNode<'a>) -> Result<Subschema, String> {
        let is_empty = node.schema.as_object().is_none_or(Map::is_empty);
        self.compiled_bytes += if is_empty { EMPTY_SUBSCHEMA_BYTES } else { SUBSCHEMA_BYTES };
        let mut subschema =
            Subschema { work: WorkRates { value: EVALUATION_NANOS, ..WorkRates::default() }, ..Subschema::default() };
        let Value::Object(keywords) = node.schema else { return Ok(subschema) };
        subschema.work = subschema.work.plus(own_work(keywords));
        let (mut members, mut items) = (Vec::new(), Vec::new());
        for (keyword, value) in keywords {
            let child = SchemaNode { schema: value, resource: node.resource };
            match keyword.as_str() {
                "allOf" | "anyOf" | "oneOf" => subschema.in_place.extend(self.enqueue_all(child)),
                "not" | "if" | "then" | "else" => subschema.in_place.push(self.enqueue(child)),
                "dependentSchemas" | "dependencies" => subschema.in_place.extend(self.enqueue_all(child)),
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    self.compiled_bytes += REFERENCE_BYTES;
                    self.follow_reference(keyword, child, &mut subschema.in_place)?;
                }
                "properties" => members.extend(self.enqueue_all(child)),
                "additionalProperties" => members.push(self.enqueue(child)),
                "items" | "prefixItems" | "additionalItems" => match value {
                    Value::Array(_) => items.extend(self.enqueue_all(child)),
                    _ => items.push(self.enqueue(child)),
                },
                "pattern" => {
                    let cost = value.as_str().map(|pattern| self.pattern_cost(pattern, value)).transpose()?;
                    subschema.work = subschema.work.plus(cost.map(matching_work).unwrap_or_default());
                }
                "patternProperties" => {
                    for pattern in value.as_object().into_iter().flat_map(Map::keys) {
                        let cost = self.pattern_cost(pattern, value)?;
                        subschema.work = subschema.work.plus(matching_work(cost).of_names());
                    }
                    subschema.children.extend(self.enqueue_all(child).into_iter().map(|index| vec![index]));
                }
                "contains" | "unevaluatedItems" | "unevaluatedProperties" => {
                    let child = self.enqueue(child);
                    subschema.children.push(vec![child]);
                }
                "propertyNames" => {
                    let names = self.enqueue(child);
                    subschema.names.push(names);
                }
                _ => {}
            }
        }
        subschema.children.extend([members, items].into_iter().filter(|group| !group.is_empty()));
        // The other keywords are evaluated a second time to find the unevaluated items and properties.
        if keywords.keys().any(|keyword| keyword.starts_with("unevaluated")) {
            subschema.in_place.extend_from_within(..);
            subschema.work = subschema.work.plus(subschema.work);
        }
        Ok(subschema)
    }

    fn enqueue_all(&mut self, node: SchemaNode<'a>) -> Vec<usize> {
        let is_schema = |value: &&Value| matches!(value, Value::Object(_) | Value::Bool(_));
        let mut enqueue = |schema: &'a Value| self.enqueue(SchemaNode { schema, resource: node.resource });
        match node.schema {
            Value::Array(items) => items.iter().filter(is_schema).map(&mut enqueue).collect(),
            Value::Object(members) => members.values().filter(is_schema).map(&mut enqueue).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the cost of a pattern; `keyword` is the value that has it.
    fn pattern_cost(&mut self, pattern: &'a str, keyword: &Value) -> Result<PatternCost, String> {
        if let Some(cost) = self.patterns.get(pattern) {
            return Ok(*cost);
        }
        let cost = PatternCost::estimate(pattern).map_err(|why| self.locate(keyword, &why))?;
        self.patterns.insert(pattern, cost);
        self.compiled_bytes = self.compiled_bytes.saturating_add(cost.compiled_bytes);
        // Before the next pattern, because an estimate takes time, too.
        self.budget.check(self.compiled_bytes)?;
        Ok(cost)
    }

    /// Adds to a problem the pointer to the value that has it.
    fn locate(&self, value: &Value, why: &str) -> String {
        match pointer_to(self.root, value) {
            Some(pointer) => format!("at {pointer}: {why}"),
            None => why.to_owned(),
        }
    }

    fn follow_reference(
        &mut self,
        keyword: &str,
        node: SchemaNode<'a>,
        in_place: &mut Vec<usize>,
    ) -> Result<(), String> {
        let Some(reference) = node.schema.as_str() else {
            return Ok(());
        };
        let targets = self.references.resolve(reference, node.resource);
        let mut targets = targets.map_err(|why| self.locate(node.schema, &why))?;
        targets.extend(self.references.dynamic_targets(reference));
        // `$recursiveRef` may lead to the root of the document.
        if keyword == "$recursiveRef" {
            targets.push(SchemaNode { schema: self.root, resource: self.root });
        }
        let mut indices: Vec<usize> = targets.into_iter().map(|target| self.enqueue(target)).collect();
        indices.sort_unstable();
        indices.dedup();
        self.reference_targets += indices.len();
        if self.reference_targets > MAX_REFERENCE_TARGETS {
            return Err(format!("the schema's references have more than {MAX_REFERENCE_TARGETS} targets"));
        }
        in_place.extend(indices);
        Ok(())
    }
}

/// Returns the JSON Pointer to a value within a schema, whose depth is bounded.
fn pointer_to(root: &Value, value: &Value) -> Option<String> {
    if std::ptr::eq(root, value) {
        return Some(String::new());
    }
    let join = |step: &str, rest: String| format!("/{}{rest}", step.replace('~', "~0").replace('/', "~1"));
    match root {
        Value::Object(members) => {
            members.iter().find_map(|(name, member)| Some(join(name, pointer_to(member, value)?)))
        }
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, item)| Some(join(&at.to_string(), pointer_to(item, value)?)))
        }
        _ => None,
    }
}

fn matching_work(cost: PatternCost) -> WorkRates {
    WorkRates { value: cost.nanos_per_text, byte: cost.nanos_per_byte, ..WorkRates::default() }
}

/// Returns the work of the keywords that have no subschemas.
fn own_work(keywords: &Map<String, Value>) -> WorkRates {
    let mut work = WorkRates::default();
    let comparisons = |count: usize| COMPARISON_NANOS.saturating_mul(count as u64);
    for (keyword, value) in keywords {
        match keyword.as_str() {
            "enum" => {
                let options = value.as_array().map(Vec::as_slice).unwrap_or_default();
                // Texts and whole numbers are looked up in a table; all other options are compared one after the other.
                let is_in_table = |option: &Value| option.is_null() || option.is_string();
                let is_table = options.iter().all(is_in_table)
                    || options.iter().all(|option| option.is_null() || option.as_i64().is_some());
                work.value = work.value.saturating_add(comparisons(if is_table { 8 } else { 1 }));
                work.byte += 2;
                if !is_table {
                    work.node = work.node.saturating_add(comparisons(options.len()));
                }
            }
            "const" => work.node = work.node.saturating_add(COMPARISON_NANOS),
            // Up to 15 items are compared with each other; more are hashed.
            "uniqueItems" if value == &Value::Bool(true) => work.node = work.node.saturating_add(comparisons(16)),
            "required" => {
                work.object = work.object.saturating_add(comparisons(value.as_array().map_or(0, Vec::len)));
            }
            "properties" => {
                let count = value.as_object().map_or(0, Map::len);
                work.object = work.object.saturating_add(comparisons(count));
                work.name = work.name.saturating_add(COMPARISON_NANOS);
            }
            "dependentRequired" | "dependencies" | "dependentSchemas" => {
                let names = value.as_object().into_iter().flatten();
                let count = names.map(|(_, required)| 1 + required.as_array().map_or(0, Vec::len)).sum();
                work.object = work.object.saturating_add(comparisons(count));
            }
            "additionalProperties" | "unevaluatedProperties" => {
                work.name = work.name.saturating_add(2 * COMPARISON_NANOS);
            }
            "multipleOf" => {
                let is_small = value.as_i64().is_some();
                work.value = work.value.saturating_add(if is_small { COMPARISON_NANOS } else { DIVISION_NANOS });
            }
            "format" | "contentEncoding" | "contentMediaType" => work.byte = work.byte.saturating_add(FORMAT_NANOS),
            "minLength" | "maxLength" => work.byte = work.byte.saturating_add(1),
            _ => {}
        }
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn r127_keywords_cost_what_grows_with_the_value() {
        let work = |schema: Value| own_work(schema.as_object().unwrap());
        let texts = work(json!({"enum": ["a", "b", null]}));
        assert!(
            texts.byte == 2 && texts.node == 0 && texts.value > 0,
            "a table is looked up with the digest of a text"
        );
        let structures = work(json!({"enum": [[1], [2], [3]]}));
        assert!(structures.byte == 2 && structures.node == 3 * COMPARISON_NANOS, "each option is compared");
        assert!(work(json!({"required": ["a", "b"]})).object == 2 * COMPARISON_NANOS);
        assert!(work(json!({"dependentRequired": {"a": ["b", "c"], "d": []}})).object == 4 * COMPARISON_NANOS);
        assert!(work(json!({"format": "email", "maxLength": 9})).byte == FORMAT_NANOS + 1);
        assert!(work(json!({"multipleOf": 3})).value < work(json!({"multipleOf": 0.1})).value);
        let pattern = PatternCost { compiled_bytes: 1, nanos_per_byte: 2, nanos_per_text: 3 };
        assert_eq!(matching_work(pattern), WorkRates { byte: 2, value: 3, ..WorkRates::default() });
        assert!(work(json!({"uniqueItems": false})).node == 0 && work(json!({"uniqueItems": true})).node > 0);
    }
}
