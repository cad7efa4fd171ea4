//! Generates bodies that are probably valid for a schema. What is generated is checked by the validator.

use super::pattern_sample;
use fastrand::Rng;
use serde_json::{Map, Number, Value, json};

/// Values after which a body is large enough.
const MAX_VALUES: usize = 4_000;
/// Depth below which only what is required is generated.
const MAX_OPTIONAL_DEPTH: usize = 6;
const MAX_DEPTH: usize = 24;
/// Texts for patterns that are too difficult for the sampler.
const PATTERN_TEXTS: [&str; 2] = ["sk-.!", "\u{1F600}"];

/// A generator of one body.
pub(super) struct BodyGenerator<'s> {
    root: &'s Value,
    rng: Rng,
    /// How probable an optional member is.
    fullness: f64,
    values: usize,
}

/// The schema objects that apply to one value.
type Parts<'s> = Vec<&'s Map<String, Value>>;

impl<'s> BodyGenerator<'s> {
    pub(super) fn new(root: &'s Value, seed: u64, fullness: f64) -> Self {
        Self { root, rng: Rng::with_seed(seed), fullness, values: 0 }
    }

    pub(super) fn generate(&mut self) -> Option<Value> {
        self.value(&[self.root], 0)
    }

    fn value(&mut self, schemas: &[&'s Value], depth: usize) -> Option<Value> {
        self.values += 1;
        if depth > MAX_DEPTH || self.values > MAX_VALUES {
            return None;
        }
        let mut parts = Parts::new();
        for schema in schemas {
            self.collect_parts(schema, &mut parts, 0)?;
        }
        let first = |keyword: &str| parts.iter().find_map(|part| part.get(keyword));
        if let Some(value) = first("const") {
            return Some(value.clone());
        }
        if let Some(Value::Array(values)) = first("enum") {
            return values.get(self.rng.usize(..values.len().max(1))).cloned();
        }
        let given = first("example").or(first("default")).or(first("examples").and_then(|values| values.get(0)));
        if let Some(value) = given.filter(|value| !value.is_null())
            && self.rng.f64() < 0.3
        {
            return Some(value.clone());
        }
        match self.choose_type(&parts) {
            "object" => self.object(&parts, depth),
            "array" => self.array(&parts, depth),
            "string" => self.string(&parts),
            "integer" => Some(number(&parts, true)),
            "number" => Some(number(&parts, false)),
            "boolean" => Some(json!(self.rng.bool())),
            _ => Some(Value::Null),
        }
    }

    /// Collects the schema, the targets of its references, and one branch of each choice.
    fn collect_parts(&mut self, schema: &'s Value, parts: &mut Parts<'s>, depth: usize) -> Option<()> {
        let members = match schema {
            Value::Bool(true) => return Some(()),
            Value::Object(members) if depth < 32 => members,
            _ => return None,
        };
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            let target = self.resolve(reference)?;
            self.collect_parts(target, parts, depth + 1)?;
        }
        for branch in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.collect_parts(branch, parts, depth + 1)?;
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(branches) = members.get(keyword).and_then(Value::as_array) {
                let branch = branches.get(self.rng.usize(..branches.len().max(1)))?;
                self.collect_parts(branch, parts, depth + 1)?;
            }
        }
        if members.contains_key("if") {
            let (with, branch) = if self.rng.bool() { (Some("if"), "then") } else { (None, "else") };
            for keyword in with.into_iter().chain([branch]) {
                members.get(keyword).map_or(Some(()), |branch| self.collect_parts(branch, parts, depth + 1))?;
            }
        }
        parts.push(members);
        Some(())
    }

    fn resolve(&self, reference: &str) -> Option<&'s Value> {
        let (resource, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let root: &'s Value = self.root;
        let base = if resource.is_empty() { root } else { find_resource(root, resource)? };
        let fragment = fragment.replace("%24", "$").replace("%20", " ").replace("%7B", "{").replace("%7D", "}");
        if fragment.is_empty() || fragment.starts_with('/') {
            return base.pointer(&fragment);
        }
        find_resource(base, &format!("#{fragment}"))
    }

    fn choose_type(&mut self, parts: &Parts<'s>) -> &'static str {
        const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
        let has =
            |keywords: &[&str]| parts.iter().any(|part| keywords.iter().any(|keyword| part.contains_key(*keyword)));
        let allows = |part: &&Map<String, Value>, name: &str| match part.get("type") {
            Some(Value::String(only)) => only == name || (only == "number" && name == "integer"),
            Some(Value::Array(names)) => names.iter().any(|allowed| allowed == name),
            _ => true,
        };
        let mut possible: Vec<_> =
            TYPES.into_iter().filter(|name| parts.iter().all(|part| allows(part, name))).collect();
        if possible.len() == TYPES.len() {
            if has(&["properties", "required", "patternProperties", "additionalProperties"]) {
                return "object";
            }
            if has(&["items", "prefixItems"]) {
                return "array";
            }
            return if has(&["minimum", "maximum"]) { "number" } else { "string" };
        }
        // What has a structure is more interesting than null.
        if possible.len() > 1 {
            possible.retain(|name| *name != "null");
        }
        possible.get(self.rng.usize(..possible.len().max(1))).copied().unwrap_or("null")
    }

    fn object(&mut self, parts: &Parts<'s>, depth: usize) -> Option<Value> {
        let required: Vec<&str> = parts
            .iter()
            .filter_map(|part| part.get("required")?.as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let declared: Vec<&String> =
            parts.iter().filter_map(|part| part.get("properties")?.as_object()).flat_map(Map::keys).collect();
        let chance =
            if depth > MAX_OPTIONAL_DEPTH { 0.0 } else { self.fullness.min(8.0 / (declared.len() as f64 + 1.0)) };
        let mut object = Map::new();
        for name in declared.iter().map(|name| name.as_str()).chain(required.iter().copied()) {
            let is_required = required.contains(&name);
            if object.contains_key(name) || (!is_required && self.rng.f64() >= chance) {
                continue;
            }
            match self.value(&member_schemas(parts, name), depth + 1) {
                Some(value) => drop(object.insert(name.to_owned(), value)),
                None if is_required => return None,
                None => {}
            }
        }
        let min = maximum_of(parts, "minProperties").unwrap_or(0.0) as usize;
        let wants_more = object.is_empty() && depth <= MAX_OPTIONAL_DEPTH;
        for number in 0..min.max(usize::from(wants_more)) {
            if object.len() >= min && !wants_more {
                break;
            }
            let pattern = parts.iter().find_map(|part| part.get("patternProperties")?.as_object()?.keys().next());
            let name = pattern.and_then(|pattern| pattern_sample::sample(pattern, &mut self.rng));
            let is_open = parts.iter().all(|part| part.get("additionalProperties") != Some(&json!(false)));
            let Some(name) = name.or_else(|| is_open.then(|| format!("name{number}"))) else { continue };
            if let Some(value) = self.value(&member_schemas(parts, &name), depth + 1) {
                object.insert(name, value);
            }
        }
        Some(Value::Object(object))
    }

    fn array(&mut self, parts: &Parts<'s>, depth: usize) -> Option<Value> {
        let min = maximum_of(parts, "minItems").unwrap_or(0.0) as usize;
        let max = minimum_of(parts, "maxItems").map_or(usize::MAX, |max| max as usize);
        let wanted = if depth > MAX_OPTIONAL_DEPTH { min } else { min.max(1 + self.rng.usize(..2)) };
        let mut items = Vec::new();
        for position in 0..wanted.min(max) {
            let schemas: Vec<&Value> = parts.iter().filter_map(|part| item_schema(part, position)).collect();
            match self.value(&schemas, depth + 1) {
                Some(value) => items.push(value),
                None if items.len() < min => return None,
                None => break,
            }
        }
        Some(Value::Array(items))
    }

    fn string(&mut self, parts: &Parts<'s>) -> Option<Value> {
        let text_of = |keyword: &str| parts.iter().find_map(|part| part.get(keyword)?.as_str());
        let format = text_of("format").and_then(|format| {
            Some(match format {
                "date-time" => "2024-02-29T12:00:00Z",
                "date" => "2024-02-29",
                "time" => "12:00:00Z",
                "duration" => "P1D",
                "email" | "idn-email" => "a@b.example",
                "hostname" => "a.example",
                "ipv4" => "127.0.0.1",
                "ipv6" => "::1",
                "uri" | "url" | "iri" | "uri-reference" | "uri-template" => "https://a.example/b",
                "uuid" => "2eb8aa08-aa98-41ea-b4aa-73b441d16380",
                "cuid" => "ckopqwooh000001la8mbi2im9",
                _ => return None,
            })
        });
        if self.rng.u8(..12) == 0 {
            return Some(json!(PATTERN_TEXTS[self.rng.usize(..PATTERN_TEXTS.len())]));
        }
        let mut text = match text_of("pattern") {
            Some(pattern) if format.is_none() || self.rng.bool() => {
                pattern_sample::sample(pattern, &mut self.rng).or(format.map(str::to_owned))?
            }
            _ => format.unwrap_or("text").to_owned(),
        };
        let min = maximum_of(parts, "minLength").unwrap_or(0.0) as usize;
        while text.chars().count() < min {
            text.push('a');
        }
        if let Some(max) = minimum_of(parts, "maxLength") {
            text = text.chars().take(max as usize).collect();
        }
        Some(Value::String(text))
    }
}

/// Returns the schemas that apply to a member.
fn member_schemas<'s>(parts: &Parts<'s>, name: &str) -> Vec<&'s Value> {
    let of_part = |part: &&'s Map<String, Value>| {
        let declared = part.get("properties").and_then(|properties| properties.get(name));
        let patterns = part.get("patternProperties").and_then(Value::as_object);
        declared.or(patterns.and_then(|patterns| patterns.values().next())).or(part.get("additionalProperties"))
    };
    parts.iter().filter_map(of_part).collect()
}

fn item_schema<'s>(part: &&'s Map<String, Value>, position: usize) -> Option<&'s Value> {
    let prefix = part.get("prefixItems").or(part.get("items").filter(|items| items.is_array()));
    if let Some(schema) = prefix.and_then(|prefix| prefix.get(position)) {
        return Some(schema);
    }
    let rest = part.get("items").filter(|items| !items.is_array()).or(part.get("additionalItems"));
    rest.or(part.get("contains"))
}

fn maximum_of(parts: &Parts<'_>, keyword: &str) -> Option<f64> {
    parts.iter().filter_map(|part| part.get(keyword)?.as_f64()).reduce(f64::max)
}

fn minimum_of(parts: &Parts<'_>, keyword: &str) -> Option<f64> {
    parts.iter().filter_map(|part| part.get(keyword)?.as_f64()).reduce(f64::min)
}

fn number(parts: &Parts<'_>, is_integer: bool) -> Value {
    let above = maximum_of(parts, "exclusiveMinimum").map(|bound| bound + if is_integer { 1.0 } else { 0.001 });
    let below = minimum_of(parts, "exclusiveMaximum").map(|bound| bound - if is_integer { 1.0 } else { 0.001 });
    let lowest = maximum_of(parts, "minimum").or(above).unwrap_or(f64::NEG_INFINITY);
    let highest = minimum_of(parts, "maximum").or(below).unwrap_or(f64::INFINITY);
    let step = maximum_of(parts, "multipleOf").unwrap_or(1.0);
    let value = 1.0_f64.max(lowest).min(highest);
    let value = if is_integer || parts.iter().any(|part| part.contains_key("multipleOf")) {
        (value / step).ceil() * step
    } else {
        value
    };
    if value.fract() == 0.0 { json!(value as i64) } else { Number::from_f64(value).map_or(Value::Null, Value::Number) }
}

/// Returns the subschema whose identifier or anchor is `name`.
fn find_resource<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => {
            let is_named = ["$id", "id"].iter().any(|keyword| {
                members.get(*keyword).and_then(Value::as_str).is_some_and(|id| id.trim_end_matches('#') == name)
            });
            let is_anchor = members.get("$anchor").and_then(Value::as_str).is_some_and(|anchor| name[1..] == *anchor);
            if is_named || (name.starts_with('#') && is_anchor) {
                return Some(value);
            }
            members.values().find_map(|child| find_resource(child, name))
        }
        Value::Array(items) => items.iter().find_map(|child| find_resource(child, name)),
        _ => None,
    }
}
