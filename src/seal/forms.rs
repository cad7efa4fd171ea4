//! Canonical forms of an agent card, which are the bytes that a signature covers (A2A 1.0 §8.4.1): the card without
//! its signatures in RFC 8785's canonical form.
//!
//! The specification omits defaults by field presence. The SDKs for Python and JavaScript omit every empty value and
//! every unknown field, and Python escapes non-ASCII characters. Verification tries each of these forms, and signing
//! makes a signature for each that differs. A form does not protect what it omits: unknown fields are then removed from
//! the verified card, and readers must treat empty values as absent.

use super::schema::{CARD, Field, Kind};
use serde_json::{Map, Value};

/// One canonical form of a card.
#[derive(Debug, PartialEq)]
pub(super) struct Form {
    pub(super) bytes: Vec<u8>,
    /// Whether the form covers fields unknown to A2A 1.0.
    pub(super) foreign: bool,
}

/// Returns every form that may have been signed, the one that covers most first.
pub(super) fn accepted(card: &Map<String, Value>) -> Vec<Form> {
    let known = shape(card, CARD, true);
    let sparse = [clean_members(card), clean_members(&known)];
    let forms = [(card.clone(), true), (shape(card, CARD, false), true)].into_iter();
    let sparse = sparse.into_iter().zip([true, false]);
    let mut found: Vec<Form> = Vec::new();
    for (members, foreign) in forms.chain(sparse.clone()) {
        found.extend(canonical(&members).map(|bytes| Form { bytes, foreign }));
    }
    for (members, foreign) in sparse {
        found.extend(canonical(&members).map(|bytes| Form { bytes: escaped(&bytes), foreign }));
    }
    distinct(found)
}

/// Returns the forms to sign: one for readers of the specification, and one for each kind of SDK.
pub(super) fn signed(card: &Map<String, Value>) -> Vec<Form> {
    let sparse = clean_members(&shape(card, CARD, true));
    let mut found: Vec<Form> = Vec::new();
    for (members, foreign) in [(card.clone(), true), (shape(card, CARD, false), true), (sparse, false)] {
        found.extend(canonical(&members).map(|bytes| Form { bytes, foreign }));
    }
    if let Some(last) = found.last() {
        found.push(Form { bytes: escaped(&last.bytes), foreign: false });
    }
    distinct(found)
}

/// Removes the fields unknown to A2A 1.0.
pub(super) fn known(card: &Map<String, Value>) -> Map<String, Value> {
    let mut known = shape(card, CARD, true);
    // An omitted default is the reader's default too.
    if let Some(signatures) = card.get("signatures") {
        known.insert("signatures".to_owned(), signatures.clone());
    }
    known
}

/// Serializes members in the canonical form of RFC 8785, without signatures.
pub(super) fn canonical(members: &Map<String, Value>) -> Option<Vec<u8>> {
    let mut members = members.clone();
    members.remove("signatures");
    serde_json_canonicalizer::to_vec(&members).ok()
}

fn distinct(forms: Vec<Form>) -> Vec<Form> {
    let mut kept: Vec<Form> = Vec::new();
    for form in forms {
        if kept.iter().all(|earlier| earlier.bytes != form.bytes) {
            kept.push(form);
        }
    }
    kept
}

/// Omits defaults of fields that are neither required nor of explicit presence; with `strict`, unknown fields too.
fn shape(members: &Map<String, Value>, fields: &[Field], strict: bool) -> Map<String, Value> {
    let mut shaped = Map::new();
    for (name, value) in members {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            if !strict {
                shaped.insert(name.clone(), value.clone());
            }
            continue;
        };
        if value.is_null() || (!field.kept && is_default(value, &field.kind)) {
            continue;
        }
        shaped.insert(name.clone(), shape_value(value, &field.kind, strict));
    }
    shaped
}

fn shape_value(value: &Value, kind: &Kind, strict: bool) -> Value {
    match (value, kind) {
        (Value::Object(members), Kind::Message(fields)) => Value::Object(shape(members, fields, strict)),
        (Value::Object(members), Kind::Map(fields)) => {
            let kind = Kind::Message(fields);
            members.iter().map(|(name, each)| (name.clone(), shape_value(each, &kind, strict))).collect()
        }
        (Value::Array(items), Kind::Message(_)) => items.iter().map(|each| shape_value(each, kind, strict)).collect(),
        _ => value.clone(),
    }
}

/// Whether a value is its field's default. An empty message is not: only lists, maps and scalars have defaults.
fn is_default(value: &Value, kind: &Kind) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty() && matches!(kind, Kind::Map(_)),
        _ => false,
    }
}

/// Omits null and empty strings, lists and objects recursively, as the SDKs do.
fn clean_members(members: &Map<String, Value>) -> Map<String, Value> {
    let kept = members.iter().filter(|(name, _)| *name != "signatures");
    kept.filter_map(|(name, value)| Some((name.clone(), clean(value)?))).collect()
}

fn clean(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(clean).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, each)| Some((name.clone(), clean(each)?)));
            let members: Map<_, _> = members.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other.clone()),
    }
}

/// Escapes non-ASCII characters as UTF-16 units, as Python's encoder does.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut ascii = Vec::with_capacity(bytes.len());
    let text = String::from_utf8_lossy(bytes);
    for letter in text.chars() {
        match u8::try_from(letter) {
            // Neither Python nor RFC 8785 escapes the delete character.
            Ok(byte) if byte.is_ascii() => ascii.push(byte),
            _ => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    ascii.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
    ascii
}
