//! Generates schemas for a given instance, so that most keywords accept it, and about half of the pairs are valid.
//!
//! References within one value lead only to definitions with a higher number, and from a child to any, so that no
//! validation is endless.

use fastrand::Rng;
use json_schema::Draft;
use serde_json::{Map, Value, json};

/// The URI of the schema.
pub(super) const ROOT: &str = "http://schemas.example/root";
/// Number of definitions.
const DEFINITIONS: usize = 4;
/// Definitions from this one on may be resources of their own.
const FIRST_EMBEDDED: usize = 2;
const NAMES: [&str; 6] = ["a", "b", "ab", "x-1", "", "\u{e9}"];
const STRINGS: [&str; 11] =
    ["", "a", "b", "ab", "aab", "x-1", "\u{e9}", "\u{1F600}\u{1F600}", "2024-02-29", "127.0.0.1", "a@b.example"];
const PATTERNS: [&str; 8] = ["^a", "b$", "^a+b?$", "[0-9]", "^x-", "^.{1,2}$", "^(a|ab|b)*$", "\\d{4}-\\d\\d"];
const FORMATS: [&str; 5] = ["date", "ipv4", "email", "ipv6", "unknown"];
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// A schema and an instance.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) draft: Draft,
    pub(super) schema: Value,
    pub(super) instance: Value,
}

/// Generates the pair of a seed.
pub(super) fn generate(seed: u64) -> Pair {
    let mut rng = Rng::with_seed(seed);
    let drafts = [
        Draft::Draft4,
        Draft::Draft6,
        Draft::Draft7,
        Draft::Draft201909,
        Draft::Draft201909,
        Draft::Draft202012,
        Draft::Draft202012,
        Draft::Draft202012,
    ];
    let draft = drafts[rng.usize(..drafts.len())];
    let instance = random_value(&mut rng, 3);
    let has_embedded = rng.u8(..3) == 0;
    let is_root_dynamic = rng.bool();
    let mut generator = Generator { rng, draft, has_embedded, is_root_dynamic, is_in_root: true };
    let schema = generator.root(&instance);
    Pair { draft, schema, instance }
}

fn random_value(rng: &mut Rng, depth: u8) -> Value {
    match if depth == 0 { rng.u8(..6) } else { rng.u8(3..12) } {
        0 => Value::Null,
        1 | 3 => json!(rng.bool()),
        2 | 4 => random_number(rng),
        5 => json!(STRINGS[rng.usize(..STRINGS.len())]),
        6..=8 => (0..rng.usize(..5)).map(|_| random_value(rng, depth - 1)).collect(),
        _ => {
            let names: Vec<_> = (0..rng.usize(..5)).map(|_| NAMES[rng.usize(..NAMES.len())].to_owned()).collect();
            Value::Object(names.into_iter().map(|name| (name, random_value(rng, depth - 1))).collect())
        }
    }
}

fn random_number(rng: &mut Rng) -> Value {
    let numbers = [json!(0), json!(1), json!(1.0), json!(2), json!(-1), json!(1.5), json!(10), json!(0.5), json!(1e10)];
    numbers[rng.usize(..numbers.len())].clone()
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Where a subschema applies.
#[derive(Clone, Copy)]
struct Place {
    depth: u8,
    /// Definitions from this one on may be referred to.
    first_definition: usize,
    /// Whether references to the root and dynamic references are possible, because the value is a child.
    is_child: bool,
}

impl Place {
    /// The place of a subschema for the same value.
    fn in_place(self) -> Self {
        Self { depth: self.depth.saturating_sub(1), ..self }
    }

    /// The place of a subschema for a child of the value.
    fn child(self) -> Self {
        Self { depth: self.depth.saturating_sub(1), first_definition: 0, is_child: true }
    }
}

struct Generator {
    rng: Rng,
    draft: Draft,
    /// Whether some definitions are resources of their own.
    has_embedded: bool,
    /// Whether the root has a dynamic anchor, as the embedded resources have.
    is_root_dynamic: bool,
    /// Whether the schema that is generated belongs to the root's resource.
    is_in_root: bool,
}

/// Returns the URI of a definition that is a resource of its own.
fn embedded_uri(number: usize) -> String {
    format!("http://schemas.example/embedded{number}")
}

impl Generator {
    fn root(&mut self, instance: &Value) -> Value {
        let metaschema = match self.draft {
            Draft::Draft4 | Draft::OpenApi30 => "http://json-schema.org/draft-04/schema#",
            Draft::Draft6 => "http://json-schema.org/draft-06/schema#",
            Draft::Draft7 => "http://json-schema.org/draft-07/schema#",
            Draft::Draft201909 => "https://json-schema.org/draft/2019-09/schema",
            Draft::Draft202012 => "https://json-schema.org/draft/2020-12/schema",
        };
        let place = Place { depth: 4, first_definition: 0, is_child: false };
        let mut schema = loop {
            if let Value::Object(members) = self.schema(instance, place)
                && (self.draft >= Draft::Draft201909 || !members.contains_key("$ref"))
            {
                break members;
            }
        };
        let id = self.draft.id_keyword().unwrap();
        schema.insert("$schema".to_owned(), json!(metaschema));
        schema.insert(id.to_owned(), json!(ROOT));
        if self.is_root_dynamic {
            self.insert_dynamic_anchor(&mut schema);
        }
        let mut definitions = Map::new();
        for number in 0..DEFINITIONS {
            let witness = if self.rng.bool() { instance.clone() } else { self.child_of(instance) };
            let place = Place { depth: 2, first_definition: number + 1, is_child: false };
            let is_embedded = self.has_embedded && number >= FIRST_EMBEDDED;
            self.is_in_root = !is_embedded;
            let mut definition = loop {
                // A resource of its own is an object without a reference that hides its identifier.
                let definition = self.schema(&witness, place);
                if !is_embedded
                    || (definition.is_object()
                        && (self.draft >= Draft::Draft201909 || definition.get("$ref").is_none()))
                {
                    break definition;
                }
            };
            if let Value::Object(members) = &mut definition {
                if is_embedded {
                    members.insert(id.to_owned(), json!(embedded_uri(number)));
                    self.insert_dynamic_anchor(members);
                } else if self.draft >= Draft::Draft201909 {
                    members.insert("$anchor".to_owned(), json!(format!("anchor{number}")));
                }
            }
            definitions.insert(format!("d{number}"), definition);
        }
        let keyword = if self.draft >= Draft::Draft201909 { "$defs" } else { "definitions" };
        schema.insert(keyword.to_owned(), Value::Object(definitions));
        Value::Object(schema)
    }

    /// Marks a resource as a possible target of dynamic references.
    fn insert_dynamic_anchor(&mut self, members: &mut Map<String, Value>) {
        match self.draft {
            Draft::Draft202012 => drop(members.insert("$dynamicAnchor".to_owned(), json!("node"))),
            Draft::Draft201909 => drop(members.insert("$recursiveAnchor".to_owned(), json!(true))),
            _ => {}
        }
    }

    /// Returns a dynamic reference from the current resource, or `None` if there is no target for one.
    fn dynamic_reference(&mut self) -> Option<(&'static str, String)> {
        match self.draft {
            Draft::Draft201909 => Some(("$recursiveRef", "#".to_owned())),
            Draft::Draft202012 if !self.is_in_root || self.is_root_dynamic => Some(("$dynamicRef", "#node".to_owned())),
            Draft::Draft202012 if self.has_embedded => {
                let number = self.rng.usize(FIRST_EMBEDDED..DEFINITIONS);
                Some(("$dynamicRef", embedded_uri(number) + "#node"))
            }
            _ => None,
        }
    }

    /// Returns a child of `value`, or another value.
    fn child_of(&mut self, value: &Value) -> Value {
        let children: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(members) => members.values().collect(),
            _ => Vec::new(),
        };
        match children.len() {
            0 => random_value(&mut self.rng, 1),
            count => children[self.rng.usize(..count)].clone(),
        }
    }

    /// Returns whether a keyword is to accept the instance.
    fn accepts(&mut self) -> bool {
        self.rng.u8(..24) != 0
    }

    fn one_in(&mut self, count: u8) -> bool {
        self.rng.u8(..count) == 0
    }

    /// Returns a schema that probably accepts `value`.
    fn schema(&mut self, value: &Value, place: Place) -> Value {
        if place.depth == 0 || self.one_in(12) {
            let accepts = self.accepts();
            return match self.draft {
                Draft::Draft4 | Draft::OpenApi30 if accepts => json!({}),
                Draft::Draft4 | Draft::OpenApi30 => json!({"not": {}}),
                _ => json!(accepts),
            };
        }
        let mut members = Map::new();
        if self.one_in(5) {
            self.insert_reference(&mut members, place);
            if self.draft < Draft::Draft201909 {
                return Value::Object(members);
            }
        }
        for _ in 0..self.rng.u8(..3) {
            self.insert_applicator(&mut members, value, place);
        }
        for _ in 0..self.rng.u8(..3) {
            self.insert_assertion(&mut members, value);
        }
        match value {
            Value::Array(items) => self.insert_array_keywords(&mut members, items, place),
            Value::Object(object) => self.insert_object_keywords(&mut members, object, place),
            _ => {}
        }
        Value::Object(members)
    }

    fn insert_reference(&mut self, members: &mut Map<String, Value>, place: Place) {
        if place.is_child && self.rng.bool() {
            let dynamic = if self.rng.bool() { self.dynamic_reference() } else { None };
            let (keyword, reference) = dynamic.unwrap_or(("$ref", ROOT.to_owned()));
            members.insert(keyword.to_owned(), json!(reference));
            return;
        }
        if place.first_definition >= DEFINITIONS {
            return;
        }
        let number = self.rng.usize(place.first_definition..DEFINITIONS);
        let is_embedded = self.has_embedded && number >= FIRST_EMBEDDED;
        let folder = if self.draft >= Draft::Draft201909 { "$defs" } else { "definitions" };
        let reference = if is_embedded { embedded_uri(number) } else { format!("{ROOT}#/{folder}/d{number}") };
        members.insert("$ref".to_owned(), json!(reference));
    }

    fn insert_applicator(&mut self, members: &mut Map<String, Value>, value: &Value, place: Place) {
        let next = place.in_place();
        let other = random_value(&mut self.rng, 1);
        match self.rng.u8(..7) {
            0 => {
                let branches: Vec<_> = (0..=self.rng.u8(..2)).map(|_| self.schema(value, next)).collect();
                members.insert("allOf".to_owned(), json!(branches));
            }
            1 => {
                let mut branches = vec![self.schema(&other, next), self.schema(value, next), self.schema(value, next)];
                self.rng.shuffle(&mut branches);
                members.insert("anyOf".to_owned(), json!(branches));
            }
            2 => {
                let mut branches = vec![json!({"not": self.schema(value, next)}), self.schema(value, next)];
                self.rng.shuffle(&mut branches);
                members.insert("oneOf".to_owned(), json!(branches));
            }
            3 => {
                let schema = self.schema(&other, next);
                members.insert("not".to_owned(), json!({"allOf": [schema, {"type": type_of(&other)}]}));
            }
            4 | 5 if self.draft >= Draft::Draft7 => {
                for keyword in ["if", "then", "else"] {
                    if keyword == "if" || !self.one_in(3) {
                        members.insert(keyword.to_owned(), self.schema(value, next));
                    }
                }
            }
            _ => {}
        }
    }

    fn insert_assertion(&mut self, members: &mut Map<String, Value>, value: &Value) {
        let accepts = self.accepts();
        match self.rng.u8(..5) {
            0 => {
                let name = if accepts { type_of(value) } else { TYPES[self.rng.usize(..TYPES.len())] };
                let second = TYPES[self.rng.usize(..TYPES.len())];
                let types = if name == second || self.rng.bool() { json!(name) } else { json!([name, second]) };
                members.insert("type".to_owned(), types);
            }
            1 => {
                let mut values = vec![random_value(&mut self.rng, 1)];
                // Equal values in `enum` are not allowed, and 1 equals 1.0.
                if accepts
                    && values[0].as_f64().is_none_or(|number| Some(number) != value.as_f64())
                    && values[0] != *value
                {
                    values.push(value.clone());
                }
                members.insert("enum".to_owned(), json!(values));
            }
            2 if accepts => {
                members.insert("const".to_owned(), value.clone());
            }
            _ => match value {
                Value::Number(number) => self.insert_number_assertion(members, number.as_f64().unwrap(), accepts),
                Value::String(text) => self.insert_string_assertion(members, text, accepts),
                _ => self.insert_string_assertion(members, "ab", accepts),
            },
        }
    }

    fn insert_number_assertion(&mut self, members: &mut Map<String, Value>, number: f64, accepts: bool) {
        let step = f64::from(self.rng.u8(..3)) * 0.5;
        let bound = if accepts { -step } else { step };
        let is_boolean = self.draft.has_boolean_exclusive_bounds();
        match self.rng.u8(..5) {
            0 => drop(members.insert("minimum".to_owned(), json!(number + bound))),
            1 => drop(members.insert("maximum".to_owned(), json!(number - bound))),
            2 if is_boolean => {
                members.insert("minimum".to_owned(), json!(number + bound));
                members.insert("exclusiveMinimum".to_owned(), json!(self.rng.bool()));
            }
            3 if is_boolean => {
                members.insert("maximum".to_owned(), json!(number - bound));
                members.insert("exclusiveMaximum".to_owned(), json!(self.rng.bool()));
            }
            2 => drop(members.insert("exclusiveMinimum".to_owned(), json!(number + bound))),
            3 => drop(members.insert("exclusiveMaximum".to_owned(), json!(number - bound))),
            _ => {
                let divisors = [json!(0.5), json!(1), json!(0.1), json!(2), json!(3), json!(0.01)];
                let divisor = divisors[self.rng.usize(..if accepts { 1 } else { divisors.len() })].clone();
                members.insert("multipleOf".to_owned(), divisor);
            }
        }
    }

    fn insert_string_assertion(&mut self, members: &mut Map<String, Value>, text: &str, accepts: bool) {
        let length = text.chars().count();
        match self.rng.u8(..4) {
            0 => drop(members.insert("minLength".to_owned(), json!(if accepts { length } else { length + 1 }))),
            1 => drop(members.insert("maxLength".to_owned(), json!(if accepts { length } else { length / 2 }))),
            2 => drop(members.insert("pattern".to_owned(), json!(PATTERNS[self.rng.usize(..PATTERNS.len())]))),
            _ => drop(members.insert("format".to_owned(), json!(FORMATS[self.rng.usize(..FORMATS.len())]))),
        }
    }

    fn insert_array_keywords(&mut self, members: &mut Map<String, Value>, items: &[Value], place: Place) {
        let next = place.child();
        let item = items.get(self.rng.usize(..items.len().max(1))).cloned().unwrap_or_default();
        for _ in 0..self.rng.u8(1..4) {
            let accepts = self.accepts();
            let (count, modern) = (items.len(), self.draft >= Draft::Draft201909);
            match self.rng.u8(..9) {
                0 => drop(members.insert("minItems".to_owned(), json!(if accepts { count } else { count + 1 }))),
                1 => drop(members.insert("maxItems".to_owned(), json!(if accepts { count } else { count / 2 }))),
                2 => drop(members.insert("uniqueItems".to_owned(), json!(self.rng.bool()))),
                3 | 4 => {
                    let length = self.rng.usize(1..4);
                    let prefix: Vec<_> =
                        (0..length).map(|at| self.schema(items.get(at).unwrap_or(&item), next)).collect();
                    let keyword = if self.draft == Draft::Draft202012 { "prefixItems" } else { "items" };
                    members.insert(keyword.to_owned(), json!(prefix));
                    if self.draft < Draft::Draft202012 && self.rng.bool() {
                        members.insert("additionalItems".to_owned(), self.schema(&item, next));
                    }
                }
                5 if !members.contains_key("items") => {
                    members.insert("items".to_owned(), self.schema(&item, next));
                }
                6 if self.draft >= Draft::Draft6 => {
                    members.insert("contains".to_owned(), self.schema(&item, next));
                    if modern && self.rng.bool() {
                        members.insert("minContains".to_owned(), json!(self.rng.u8(..3)));
                    }
                    if modern && self.one_in(3) {
                        members.insert("maxContains".to_owned(), json!(self.rng.u8(1..4)));
                    }
                }
                7 | 8 if modern => {
                    let schema = if self.rng.bool() { json!(false) } else { self.schema(&item, next) };
                    members.insert("unevaluatedItems".to_owned(), schema);
                }
                _ => {}
            }
        }
    }

    fn insert_object_keywords(&mut self, members: &mut Map<String, Value>, object: &Map<String, Value>, place: Place) {
        let next = place.child();
        let name = match object.len() {
            0 => "a".to_owned(),
            count => object.keys().nth(self.rng.usize(..count)).unwrap().clone(),
        };
        let any_name = NAMES[self.rng.usize(..NAMES.len())];
        let value = object.get(&name).cloned().unwrap_or_default();
        for _ in 0..self.rng.u8(1..4) {
            let accepts = self.accepts();
            let (count, modern) = (object.len(), self.draft >= Draft::Draft201909);
            match self.rng.u8(..11) {
                0 => drop(members.insert("minProperties".to_owned(), json!(if accepts { count } else { count + 1 }))),
                1 => drop(members.insert("maxProperties".to_owned(), json!(if accepts { count } else { count / 2 }))),
                2 => {
                    let required = if accepts && count > 0 { name.as_str() } else { any_name };
                    members.insert("required".to_owned(), json!([required]));
                }
                3 | 4 => {
                    let mut properties = Map::new();
                    for (name, value) in object {
                        if self.rng.bool() {
                            properties.insert(name.clone(), self.schema(value, next));
                        }
                    }
                    members.insert("properties".to_owned(), Value::Object(properties));
                }
                5 => {
                    let pattern = PATTERNS[self.rng.usize(..PATTERNS.len())];
                    members.insert("patternProperties".to_owned(), json!({pattern: self.schema(&value, next)}));
                }
                6 => {
                    let schema = if self.one_in(3) && self.draft >= Draft::Draft6 {
                        json!(false)
                    } else {
                        self.schema(&value, next)
                    };
                    members.insert("additionalProperties".to_owned(), schema);
                }
                7 if self.draft >= Draft::Draft6 => {
                    members.insert("propertyNames".to_owned(), self.schema(&json!(name), next));
                }
                8 => {
                    let schema = self.schema(&Value::Object(object.clone()), place.in_place());
                    let schemas = if modern { "dependentSchemas" } else { "dependencies" };
                    members.insert(schemas.to_owned(), json!({any_name: schema}));
                    if modern {
                        members.insert("dependentRequired".to_owned(), json!({any_name: [name]}));
                    }
                }
                9 | 10 if modern => {
                    let schema = if self.rng.bool() { json!(false) } else { self.schema(&value, next) };
                    members.insert("unevaluatedProperties".to_owned(), schema);
                }
                _ => {}
            }
        }
    }
}
