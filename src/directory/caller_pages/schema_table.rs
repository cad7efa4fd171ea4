//! A JSON Schema as a table for people: one row for each property, with what the schema says about it.

use super::{code_literals::short_json, page_parts::shorten};
use maud::{Markup, html};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Maximum number of rows.
const MAX_ROWS: usize = 200;
/// Maximum depth of properties in properties.
const MAX_DEPTH: usize = 6;
/// Maximum work of one table: each subschema, keyword, name and reference that is read takes some. It bounds the time to a
/// few milliseconds.
const MAX_WORK: usize = 100_000;
/// Work of a row for each schema that describes its value: the keywords that are looked up.
const ROW_WORK: usize = 32;
/// Maximum number of schemas that are read together for one value (`allOf`).
const MAX_PARTS: usize = 100;
/// Maximum number of references that lead to one subschema.
const MAX_REFERENCES: usize = 8;
/// Maximum number of forms (`oneOf`, `anyOf`) that are listed.
const MAX_FORMS: usize = 10;
/// Maximum number of values of an enumeration that are listed.
const MAX_VALUES: usize = 12;
/// Maximum number of characters of a name, a value and a description.
const MAX_NAME: usize = 120;
const MAX_VALUE: usize = 80;
const MAX_DESCRIPTION: usize = 400;

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaRow {
    pub(super) path: String,
    pub(super) type_name: String,
    pub(super) is_required: bool,
    pub(super) description: String,
    pub(super) constraints: String,
}

/// The rows of one schema.
#[derive(Debug)]
pub(super) struct SchemaTable<'a> {
    root: &'a Value,
    work: usize,
    pub(super) rows: Vec<SchemaRow>,
    /// Whether the schema says more than the rows.
    pub(super) is_cut_off: bool,
}

/// Where in the data a subschema applies.
#[derive(Clone, Copy)]
struct Position<'p> {
    path: &'p str,
    is_required: bool,
    depth: usize,
}

impl<'a> SchemaTable<'a> {
    /// Reads a schema.
    pub(super) fn of_schema(root: &'a Value) -> Self {
        let mut table = Self { root, work: 0, rows: Vec::new(), is_cut_off: false };
        table.add(root, Position { path: "", is_required: true, depth: 0 });
        table
    }

    fn add(&mut self, schema: &'a Value, position: Position<'_>) {
        self.work += 1;
        if self.is_full() {
            self.is_cut_off = true;
            return;
        }
        let schema = self.resolve(schema);
        let Value::Object(members) = schema else {
            let type_name = if *schema == Value::Bool(false) { "nothing" } else { "anything" };
            self.rows.push(SchemaRow {
                path: position.path.to_owned(),
                type_name: type_name.to_owned(),
                is_required: position.is_required,
                description: String::new(),
                constraints: String::new(),
            });
            return;
        };
        let mut parts = vec![members];
        self.collect_parts(members, &mut parts, 0);
        self.work += parts.len() * ROW_WORK;
        let has_properties = parts.iter().any(|part| part.contains_key("properties"));
        if !position.path.is_empty() || !has_properties {
            self.rows.push(row_of(self.root, &parts, position));
        }
        if position.depth >= MAX_DEPTH {
            self.is_cut_off |= has_properties || members.contains_key("items");
            return;
        }
        self.add_children(&parts, position);
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MAX_ROWS || self.work > MAX_WORK
    }

    fn resolve(&mut self, schema: &'a Value) -> &'a Value {
        self.work += reference_work(schema);
        resolve(self.root, schema)
    }

    /// Finds out whether a subschema has rows of its own.
    fn find_structure(&mut self, schema: &'a Value) -> bool {
        let schema = self.resolve(schema);
        ["properties", "items", "oneOf", "anyOf", "allOf"].iter().any(|word| schema.get(word).is_some())
    }

    /// Adds the rows of properties, items and forms.
    fn add_children(&mut self, parts: &[&'a Map<String, Value>], position: Position<'_>) {
        let depth = position.depth + 1;
        let required: HashSet<&str> = parts
            .iter()
            .filter_map(|part| part.get("required")?.as_array())
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        self.work += required.len();
        for part in parts {
            for (name, schema) in part.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if self.is_full() {
                    self.is_cut_off = true;
                    return;
                }
                let is_required = required.contains(name.as_str());
                let name = shorten(name, MAX_NAME);
                let path =
                    if position.path.is_empty() { name.into_owned() } else { format!("{}.{name}", position.path) };
                self.add(schema, Position { path: &path, is_required, depth });
            }
            if let Some(items) = part.get("items").filter(|items| self.find_structure(items)) {
                let path = format!("{}[]", position.path);
                self.add(items, Position { path: &path, is_required: false, depth });
            }
            for word in ["oneOf", "anyOf"] {
                let forms = part.get(word).and_then(Value::as_array).into_iter().flatten();
                for (number, form) in (1..).zip(forms.take(MAX_FORMS)) {
                    if self.is_full() || !self.find_structure(form) {
                        continue;
                    }
                    let path = format!("{} (form {number})", position.path);
                    self.add(form, Position { path: path.trim_start(), is_required: false, depth });
                }
            }
        }
    }

    /// Collects the schemas that all apply to one value (`allOf`).
    fn collect_parts(
        &mut self,
        members: &'a Map<String, Value>,
        parts: &mut Vec<&'a Map<String, Value>>,
        depth: usize,
    ) {
        for part in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.work += 1;
            if depth >= MAX_DEPTH || self.work > MAX_WORK || parts.len() >= MAX_PARTS {
                self.is_cut_off = true;
                return;
            }
            if let Value::Object(part) = self.resolve(part) {
                parts.push(part);
                self.collect_parts(part, parts, depth + 1);
            }
        }
    }

    /// Returns the table; `caption` says what it describes.
    pub(super) fn render(&self, caption: &str) -> Markup {
        html! {
            .table-scroll tabindex="0" {
                table {
                    caption { (caption) }
                    thead { tr { th scope="col" { "Property" } th scope="col" { "Type" } th scope="col" { "Required" } th scope="col" { "Description" } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                th scope="row" {
                                    @if row.path.is_empty() { "(the whole value)" } @else { code { (row.path) } }
                                }
                                td { (row.type_name) }
                                td { @if row.is_required { "yes" } @else { "no" } }
                                td {
                                    (row.description)
                                    @if !row.description.is_empty() && !row.constraints.is_empty() { br; }
                                    @if !row.constraints.is_empty() { span .muted { (row.constraints) } }
                                }
                            }
                        }
                    }
                }
            }
            @if self.is_cut_off { p .muted { "The schema has more than this table shows." } }
        }
    }
}

/// Follows references within the schema. A reference that leads elsewhere, or in a circle, stays.
pub(super) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_REFERENCES {
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        match reference.and_then(|pointer| root.pointer(pointer)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Returns the work of following the references of a schema.
fn reference_work(schema: &Value) -> usize {
    let reference = schema.get("$ref").and_then(Value::as_str).map_or(0, str::len);
    1 + reference.div_ceil(16) * MAX_REFERENCES
}

fn row_of(root: &Value, parts: &[&Map<String, Value>], position: Position<'_>) -> SchemaRow {
    let text = |word: &str| parts.iter().find_map(|part| part.get(word)?.as_str()).unwrap_or_default();
    let description = match text("description") {
        "" => text("title"),
        description => description,
    };
    SchemaRow {
        path: position.path.to_owned(),
        type_name: type_words(root, parts),
        is_required: position.is_required,
        description: shorten(description, MAX_DESCRIPTION).into_owned(),
        constraints: shorten(&constraint_words(parts), MAX_DESCRIPTION).into_owned(),
    }
}

fn type_words(root: &Value, parts: &[&Map<String, Value>]) -> String {
    let get = |word: &str| parts.iter().find_map(|part| part.get(word));
    let types = match get("type") {
        Some(Value::String(name)) => shorten(name, MAX_VALUE).into_owned(),
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).take(7).collect();
            shorten(&names.join(" or "), MAX_VALUE).into_owned()
        }
        _ if get("properties").is_some() => "object".to_owned(),
        _ if get("items").is_some() => "array".to_owned(),
        _ => "anything".to_owned(),
    };
    let item_type = get("items").and_then(|items| resolve(root, items).get("type")?.as_str());
    match item_type {
        Some(item_type) if types == "array" => format!("array of {}", shorten(item_type, MAX_VALUE)),
        _ => types,
    }
}

/// Words of a schema with a value, and how they read.
const BOUNDS: &[[&str; 3]] = &[
    ["format", "format ", ""],
    ["minimum", "at least ", ""],
    ["exclusiveMinimum", "more than ", ""],
    ["maximum", "at most ", ""],
    ["exclusiveMaximum", "less than ", ""],
    ["multipleOf", "a multiple of ", ""],
    ["minLength", "at least ", " characters"],
    ["maxLength", "at most ", " characters"],
    ["pattern", "matches ", ""],
    ["minItems", "at least ", " items"],
    ["maxItems", "at most ", " items"],
    ["minProperties", "at least ", " properties"],
    ["maxProperties", "at most ", " properties"],
    ["const", "always ", ""],
    ["default", "default: ", ""],
];

fn constraint_words(parts: &[&Map<String, Value>]) -> String {
    let mut words = Vec::new();
    let get = |word: &str| parts.iter().find_map(|part| part.get(word));
    if let Some(values) = get("enum").and_then(Value::as_array) {
        let shown: Vec<String> = values.iter().take(MAX_VALUES).map(value_words).collect();
        let more =
            if values.len() > MAX_VALUES { format!(" and {} more", values.len() - MAX_VALUES) } else { String::new() };
        words.push(format!("one of {}{more}", shown.join(", ")));
    }
    for [word, before, after] in BOUNDS {
        if let Some(value) = get(word) {
            words.push(format!("{before}{}{after}", value_words(value)));
        }
    }
    if get("uniqueItems") == Some(&Value::Bool(true)) {
        words.push("no item twice".to_owned());
    }
    if get("additionalProperties") == Some(&Value::Bool(false)) {
        words.push("no other properties".to_owned());
    }
    for (word, before) in [("oneOf", "exactly one of "), ("anyOf", "any of ")] {
        if let Some(forms) = get(word).and_then(Value::as_array) {
            words.push(format!("{before}{} forms", forms.len()));
        }
    }
    words.join("; ")
}

fn value_words(value: &Value) -> String {
    short_json(value, MAX_VALUE)
}
