//! Schema graph: which subschemas apply to the same value, and which to the values below it.
//! The graph follows references within the document and refuses all others; it evaluates nothing.

use super::query::percent;
use crate::unit::json::cut;
use serde_json::Value;
use std::collections::HashMap;

/// Maximum number of subschemas in one schema.
const MAX_SUBSCHEMAS: usize = 20_000;

/// One subschema.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Cost of the subschema alone, in evaluations.
    pub(super) weight: u64,
    /// In-place applicators: subschemas that apply to the same value.
    pub(super) same: Vec<usize>,
    /// Child applicators: groups of subschemas for values below; of each group, one subschema applies to any one value.
    pub(super) below: Vec<Vec<usize>>,
}

/// The subschemas of a schema; the first is the root. Unreachable ones are left out.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) parts: Vec<Part>,
    /// Whether the schema has alternatives (`anyOf`, `oneOf`).
    pub(super) choice: bool,
}

impl Graph {
    /// Follows every keyword and reference from `root`.
    ///
    /// # Errors
    /// A reference that leaves the document or has no target, or too many subschemas.
    pub(super) fn of(root: &Value) -> Result<Self, String> {
        let mut names = Names::default();
        names.gather(root, root);
        let mut walk = Walk { names, root, found: HashMap::new(), queue: Vec::new() };
        walk.index(root, root);
        let (mut parts, mut choice) = (Vec::new(), false);
        while let Some(&(schema, base)) = walk.queue.get(parts.len()) {
            parts.push(walk.part(schema, base)?);
            choice |= schema.get("anyOf").is_some() || schema.get("oneOf").is_some();
            if walk.queue.len() > MAX_SUBSCHEMAS {
                return Err(format!("the schema has more than {MAX_SUBSCHEMAS} subschemas"));
            }
        }
        Ok(Self { parts, choice })
    }
}

/// Reference targets other than paths: `$id`s, and anchors within their resource.
#[derive(Default)]
struct Names<'a> {
    ids: HashMap<&'a str, &'a Value>,
    anchors: HashMap<(usize, &'a str), &'a Value>,
    dynamic: HashMap<&'a str, Vec<&'a Value>>,
}

impl<'a> Names<'a> {
    /// Collects the identifiers in `value`. The recursion is bounded by the depth that was checked before.
    fn gather(&mut self, value: &'a Value, base: &'a Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.gather(item, base)),
            Value::Object(members) => {
                let base = base_of(value, base);
                for keyword in ["$id", "id"] {
                    match members.get(keyword).and_then(Value::as_str) {
                        Some(id) if id.starts_with('#') => {
                            self.anchors.insert((address(base), id.trim_start_matches('#')), value);
                        }
                        Some(id) => {
                            self.ids.insert(id.trim_end_matches('#'), value);
                        }
                        None => {}
                    }
                }
                for keyword in ["$anchor", "$dynamicAnchor"] {
                    if let Some(anchor) = members.get(keyword).and_then(Value::as_str) {
                        self.anchors.insert((address(base), anchor), value);
                        self.dynamic.entry(anchor).or_default().push(value);
                    }
                }
                members.values().for_each(|member| self.gather(member, base));
            }
            _ => {}
        }
    }

    fn resource(&self, id: &str) -> Option<&'a Value> {
        let suffix = |known: &&str| known.strip_suffix(id).is_some_and(|rest| rest.ends_with('/'));
        self.ids.get(id).or_else(|| self.ids.iter().find(|(known, _)| suffix(known)).map(|(_, value)| value)).copied()
    }
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns the root of the resource: `value` if it starts one, otherwise `base`.
fn base_of<'a>(value: &'a Value, base: &'a Value) -> &'a Value {
    let begins = ["$id", "id"]
        .iter()
        .any(|keyword| value.get(keyword).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#')));
    if begins { value } else { base }
}

struct Walk<'a> {
    names: Names<'a>,
    root: &'a Value,
    found: HashMap<usize, usize>,
    queue: Vec<(&'a Value, &'a Value)>,
}

impl<'a> Walk<'a> {
    fn index(&mut self, schema: &'a Value, base: &'a Value) -> usize {
        let next = self.queue.len();
        let index = *self.found.entry(address(schema)).or_insert(next);
        if index == next {
            self.queue.push((schema, base_of(schema, base)));
        }
        index
    }

    fn part(&mut self, schema: &'a Value, base: &'a Value) -> Result<Part, String> {
        let Value::Object(keywords) = schema else {
            return Ok(Part { weight: 1, ..Part::default() });
        };
        let mut part = Part { weight: 1, ..Part::default() };
        let (mut members, mut items) = (Vec::new(), Vec::new());
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "allOf" | "anyOf" | "oneOf" => part.same.extend(self.each(value, base)),
                "not" | "if" | "then" | "else" => part.same.push(self.index(value, base)),
                "dependentSchemas" | "dependencies" => part.same.extend(self.each(value, base)),
                "$ref" | "$dynamicRef" | "$recursiveRef" => self.reference(value, base, &mut part.same)?,
                "properties" => members.extend(self.each(value, base)),
                "additionalProperties" => members.push(self.index(value, base)),
                "items" | "prefixItems" | "additionalItems" => match value {
                    Value::Array(_) => items.extend(self.each(value, base)),
                    _ => items.push(self.index(value, base)),
                },
                "patternProperties" => part.below.extend(self.each(value, base).into_iter().map(|one| vec![one])),
                "contains" | "propertyNames" | "unevaluatedItems" | "unevaluatedProperties" => {
                    let below = self.index(value, base);
                    part.below.push(vec![below]);
                }
                "enum" | "required" => part.weight += value.as_array().map_or(0, |listed| listed.len() as u64 / 16),
                _ => {}
            }
        }
        part.below.extend([members, items].into_iter().filter(|group| !group.is_empty()));
        // Every other keyword is evaluated a second time to find what remains unevaluated.
        if keywords.keys().any(|keyword| keyword.starts_with("unevaluated")) {
            part.same.extend_from_within(..);
        }
        Ok(part)
    }

    fn each(&mut self, value: &'a Value, base: &'a Value) -> Vec<usize> {
        let schema = |value: &&Value| matches!(value, Value::Object(_) | Value::Bool(_));
        match value {
            Value::Array(items) => items.iter().filter(schema).map(|item| self.index(item, base)).collect(),
            Value::Object(members) => members.values().filter(schema).map(|member| self.index(member, base)).collect(),
            _ => Vec::new(),
        }
    }

    fn reference(&mut self, value: &'a Value, base: &'a Value, same: &mut Vec<usize>) -> Result<(), String> {
        let Some(text) = value.as_str() else {
            return Ok(());
        };
        let (target, within) = self.resolve(text, base)?;
        same.push(self.index(target, within));
        // A dynamic reference may resolve to any subschema that carries its anchor.
        let anchor = text.rsplit_once('#').map_or("", |(_, fragment)| fragment);
        for other in self.names.dynamic.get(anchor).cloned().unwrap_or_default() {
            let other = self.index(other, within);
            if !same.contains(&other) {
                same.push(other);
            }
        }
        if text == "#" && !std::ptr::eq(base_of(self.root, self.root), base) {
            same.push(self.index(self.root, self.root));
        }
        Ok(())
    }

    fn resolve(&self, text: &str, base: &'a Value) -> Result<(&'a Value, &'a Value), String> {
        let quoted = cut(text, 100);
        let (id, fragment) = text.split_once('#').unwrap_or((text, ""));
        let base = match id {
            "" => base,
            id => self.names.resource(id).ok_or_else(|| {
                format!("the reference '{quoted}' leaves the schema (only references within the schema are allowed)")
            })?,
        };
        let nothing = || format!("the reference '{quoted}' has no target");
        let fragment = percent(fragment, false).ok_or_else(nothing)?;
        match fragment.strip_prefix('/') {
            None if fragment.is_empty() => Ok((base, base)),
            None => {
                self.names.anchors.get(&(address(base), fragment.as_str())).map(|at| (*at, base)).ok_or_else(nothing)
            }
            Some(path) => path.split('/').try_fold((base, base), |(at, base), segment| {
                let at = at.pointer(&format!("/{segment}")).ok_or_else(nothing)?;
                Ok((at, base_of(at, base)))
            }),
        }
    }
}
