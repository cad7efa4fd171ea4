//! Schema graph: which subschemas apply to the same value, and which apply to the values below it. References within
//! the document are followed, and all others are refused.

use crate::values::{json::truncate, percent_decode};
use serde_json::Value;
use std::collections::HashMap;

/// Maximum number of subschemas in one schema.
const MAX_SUBSCHEMAS: usize = 20_000;

/// One subschema.
#[derive(Debug, Default)]
pub(super) struct Subschema {
    /// Cost of the subschema alone, in evaluations.
    pub(super) weight: u64,
    /// In-place applicators: subschemas that apply to the same value.
    pub(super) in_place: Vec<usize>,
    /// Child applicators: groups of subschemas for the values below. One subschema of each group applies to a value.
    pub(super) children: Vec<Vec<usize>>,
}

/// The reachable subschemas of a schema; the first is the root.
#[derive(Debug)]
pub(super) struct SchemaGraph {
    pub(super) subschemas: Vec<Subschema>,
    /// Whether the schema has alternatives (`anyOf`, `oneOf`).
    pub(super) has_alternatives: bool,
}

impl SchemaGraph {
    /// Follows every keyword and reference from `root`.
    ///
    /// # Errors
    /// A reference that leaves the document or has no target, or too many subschemas.
    pub(super) fn build(root: &Value) -> Result<Self, String> {
        let mut targets = ReferenceTargets::default();
        targets.collect(root, root);
        let mut builder = SchemaGraphBuilder { targets, root, indices: HashMap::new(), queue: Vec::new() };
        builder.enqueue(root, root);
        let (mut subschemas, mut has_alternatives) = (Vec::new(), false);
        while let Some(&(schema, base)) = builder.queue.get(subschemas.len()) {
            subschemas.push(builder.build_subschema(schema, base)?);
            has_alternatives |= schema.get("anyOf").is_some() || schema.get("oneOf").is_some();
            if builder.queue.len() > MAX_SUBSCHEMAS {
                return Err(format!("the schema has more than {MAX_SUBSCHEMAS} subschemas"));
            }
        }
        Ok(Self { subschemas, has_alternatives })
    }
}

/// Targets of references by `$id` and by anchor. An anchor belongs to its resource.
#[derive(Default)]
struct ReferenceTargets<'a> {
    ids: HashMap<&'a str, &'a Value>,
    anchors: HashMap<(usize, &'a str), &'a Value>,
    dynamic_anchors: HashMap<&'a str, Vec<&'a Value>>,
}

impl<'a> ReferenceTargets<'a> {
    /// Collects the identifiers in `value`. The recursion is bounded by the depth that was checked before.
    fn collect(&mut self, value: &'a Value, base: &'a Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, base)),
            Value::Object(members) => {
                let base = resource_root(value, base);
                for keyword in ["$id", "id"] {
                    match members.get(keyword).and_then(Value::as_str) {
                        Some(id) if id.starts_with('#') => {
                            self.anchors.insert((node_address(base), id.trim_start_matches('#')), value);
                        }
                        Some(id) => {
                            self.ids.insert(id.trim_end_matches('#'), value);
                        }
                        None => {}
                    }
                }
                for keyword in ["$anchor", "$dynamicAnchor"] {
                    if let Some(anchor) = members.get(keyword).and_then(Value::as_str) {
                        self.anchors.insert((node_address(base), anchor), value);
                        self.dynamic_anchors.entry(anchor).or_default().push(value);
                    }
                }
                members.values().for_each(|member| self.collect(member, base));
            }
            _ => {}
        }
    }

    fn find_resource(&self, id: &str) -> Option<&'a Value> {
        let is_relative_match = |known: &&str| known.strip_suffix(id).is_some_and(|rest| rest.ends_with('/'));
        let find_relative = || self.ids.iter().find(|(known, _)| is_relative_match(known)).map(|(_, value)| value);
        self.ids.get(id).or_else(find_relative).copied()
    }
}

fn node_address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns the root of the resource: `value` if it starts one, otherwise `base`.
fn resource_root<'a>(value: &'a Value, base: &'a Value) -> &'a Value {
    let is_root = ["$id", "id"]
        .iter()
        .any(|keyword| value.get(keyword).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#')));
    if is_root { value } else { base }
}

struct SchemaGraphBuilder<'a> {
    targets: ReferenceTargets<'a>,
    root: &'a Value,
    indices: HashMap<usize, usize>,
    queue: Vec<(&'a Value, &'a Value)>,
}

impl<'a> SchemaGraphBuilder<'a> {
    fn enqueue(&mut self, schema: &'a Value, base: &'a Value) -> usize {
        let next = self.queue.len();
        let index = *self.indices.entry(node_address(schema)).or_insert(next);
        if index == next {
            self.queue.push((schema, resource_root(schema, base)));
        }
        index
    }

    fn build_subschema(&mut self, schema: &'a Value, base: &'a Value) -> Result<Subschema, String> {
        let Value::Object(keywords) = schema else {
            return Ok(Subschema { weight: 1, ..Subschema::default() });
        };
        let mut subschema = Subschema { weight: 1, ..Subschema::default() };
        let (mut members, mut items) = (Vec::new(), Vec::new());
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "allOf" | "anyOf" | "oneOf" => subschema.in_place.extend(self.enqueue_all(value, base)),
                "not" | "if" | "then" | "else" => subschema.in_place.push(self.enqueue(value, base)),
                "dependentSchemas" | "dependencies" => subschema.in_place.extend(self.enqueue_all(value, base)),
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    self.follow_reference(value, base, &mut subschema.in_place)?
                }
                "properties" => members.extend(self.enqueue_all(value, base)),
                "additionalProperties" => members.push(self.enqueue(value, base)),
                "items" | "prefixItems" | "additionalItems" => match value {
                    Value::Array(_) => items.extend(self.enqueue_all(value, base)),
                    _ => items.push(self.enqueue(value, base)),
                },
                "patternProperties" => {
                    subschema.children.extend(self.enqueue_all(value, base).into_iter().map(|index| vec![index]))
                }
                "contains" | "propertyNames" | "unevaluatedItems" | "unevaluatedProperties" => {
                    let child = self.enqueue(value, base);
                    subschema.children.push(vec![child]);
                }
                "enum" | "required" => {
                    subschema.weight += value.as_array().map_or(0, |values| values.len() as u64 / 16)
                }
                _ => {}
            }
        }
        subschema.children.extend([members, items].into_iter().filter(|group| !group.is_empty()));
        // The other keywords are evaluated a second time to find the unevaluated items and properties.
        if keywords.keys().any(|keyword| keyword.starts_with("unevaluated")) {
            subschema.in_place.extend_from_within(..);
        }
        Ok(subschema)
    }

    fn enqueue_all(&mut self, value: &'a Value, base: &'a Value) -> Vec<usize> {
        let is_schema = |value: &&Value| matches!(value, Value::Object(_) | Value::Bool(_));
        match value {
            Value::Array(items) => items.iter().filter(is_schema).map(|item| self.enqueue(item, base)).collect(),
            Value::Object(members) => {
                members.values().filter(is_schema).map(|member| self.enqueue(member, base)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn follow_reference(&mut self, value: &'a Value, base: &'a Value, in_place: &mut Vec<usize>) -> Result<(), String> {
        let Some(text) = value.as_str() else {
            return Ok(());
        };
        let (target, resource) = self.resolve_reference(text, base)?;
        in_place.push(self.enqueue(target, resource));
        // A dynamic reference may resolve to any subschema with its anchor.
        let anchor = text.rsplit_once('#').map_or("", |(_, fragment)| fragment);
        for dynamic_target in self.targets.dynamic_anchors.get(anchor).cloned().unwrap_or_default() {
            let index = self.enqueue(dynamic_target, resource);
            if !in_place.contains(&index) {
                in_place.push(index);
            }
        }
        if text == "#" && !std::ptr::eq(resource_root(self.root, self.root), base) {
            in_place.push(self.enqueue(self.root, self.root));
        }
        Ok(())
    }

    fn resolve_reference(&self, text: &str, base: &'a Value) -> Result<(&'a Value, &'a Value), String> {
        let quoted = truncate(text, 100);
        let (id, fragment) = text.split_once('#').unwrap_or((text, ""));
        let base = match id {
            "" => base,
            id => self.targets.find_resource(id).ok_or_else(|| {
                format!("the reference '{quoted}' leaves the schema (only references within the schema are allowed)")
            })?,
        };
        let no_target = || format!("the reference '{quoted}' has no target");
        let fragment = percent_decode(fragment).ok_or_else(no_target)?;
        match fragment.strip_prefix('/') {
            None if fragment.is_empty() => Ok((base, base)),
            None => self
                .targets
                .anchors
                .get(&(node_address(base), fragment.as_str()))
                .map(|node| (*node, base))
                .ok_or_else(no_target),
            Some(path) => path.split('/').try_fold((base, base), |(node, base), segment| {
                let node = node.pointer(&format!("/{segment}")).ok_or_else(no_target)?;
                Ok((node, resource_root(node, base)))
            }),
        }
    }
}
