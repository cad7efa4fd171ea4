//! Canonical forms of an agent card, which are the bytes that a signature covers (A2A 1.0 §8.4.1): the card without
//! its signatures in RFC 8785's canonical form.
//!
//! The specification omits defaults by field presence. The SDKs for Python and JavaScript omit every empty value and
//! every unknown field, and Python escapes non-ASCII characters. Verification tries each of these forms, and signing
//! makes a signature for each that differs. A form does not protect what it omits: unknown fields are then removed from
//! the verified card, and readers must treat empty values as absent.

use super::card_fields::{AGENT_CARD_FIELDS, CardField, CardFieldType};
use serde_json::{Map, Value};

/// One canonical form of a card.
#[derive(Debug, PartialEq)]
pub(super) struct CanonicalForm {
    pub(super) bytes: Vec<u8>,
    /// Whether the form covers fields unknown to A2A 1.0.
    pub(super) covers_unknown_fields: bool,
}

/// Returns every form that may have been signed, the one that covers the most fields first.
pub(super) fn acceptable_forms(card: &Map<String, Value>) -> Vec<CanonicalForm> {
    let known_only = omit_defaults(card, AGENT_CARD_FIELDS, true);
    let sparse = [omit_empty_members(card), omit_empty_members(&known_only)];
    let complete = [(card.clone(), true), (omit_defaults(card, AGENT_CARD_FIELDS, false), true)].into_iter();
    let sparse = sparse.into_iter().zip([true, false]);
    let mut forms: Vec<CanonicalForm> = Vec::new();
    for (members, covers_unknown_fields) in complete.chain(sparse.clone()) {
        forms.extend(canonicalize(&members).map(|bytes| CanonicalForm { bytes, covers_unknown_fields }));
    }
    for (members, covers_unknown_fields) in sparse {
        forms.extend(
            canonicalize(&members)
                .map(|bytes| CanonicalForm { bytes: escape_non_ascii(&bytes), covers_unknown_fields }),
        );
    }
    deduplicate(forms)
}

/// Returns the forms to sign: one for readers of the specification, and one for each kind of SDK.
pub(super) fn forms_to_sign(card: &Map<String, Value>) -> Vec<CanonicalForm> {
    let sparse = omit_empty_members(&omit_defaults(card, AGENT_CARD_FIELDS, true));
    let mut forms: Vec<CanonicalForm> = Vec::new();
    for (members, covers_unknown_fields) in
        [(card.clone(), true), (omit_defaults(card, AGENT_CARD_FIELDS, false), true), (sparse, false)]
    {
        forms.extend(canonicalize(&members).map(|bytes| CanonicalForm { bytes, covers_unknown_fields }));
    }
    if let Some(last) = forms.last() {
        forms.push(CanonicalForm { bytes: escape_non_ascii(&last.bytes), covers_unknown_fields: false });
    }
    deduplicate(forms)
}

/// Removes the fields unknown to A2A 1.0.
pub(super) fn known_fields(card: &Map<String, Value>) -> Map<String, Value> {
    let mut known_fields = omit_defaults(card, AGENT_CARD_FIELDS, true);
    // Readers have the same defaults, so the omitted ones need not be restored.
    if let Some(signatures) = card.get("signatures") {
        known_fields.insert("signatures".to_owned(), signatures.clone());
    }
    known_fields
}

/// Serializes members in the canonical form of RFC 8785, without signatures.
pub(super) fn canonicalize(members: &Map<String, Value>) -> Option<Vec<u8>> {
    let mut members = members.clone();
    members.remove("signatures");
    serde_json_canonicalizer::to_vec(&members).ok()
}

fn deduplicate(forms: Vec<CanonicalForm>) -> Vec<CanonicalForm> {
    let mut unique: Vec<CanonicalForm> = Vec::new();
    for form in forms {
        if unique.iter().all(|earlier| earlier.bytes != form.bytes) {
            unique.push(form);
        }
    }
    unique
}

/// Omits defaults of fields that are neither required nor of explicit presence; with `strict`, unknown fields too.
fn omit_defaults(members: &Map<String, Value>, fields: &[CardField], strict: bool) -> Map<String, Value> {
    let mut result = Map::new();
    for (name, value) in members {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            if !strict {
                result.insert(name.clone(), value.clone());
            }
            continue;
        };
        if value.is_null() || (!field.keep_empty && is_default(value, &field.kind)) {
            continue;
        }
        result.insert(name.clone(), omit_defaults_in_value(value, &field.kind, strict));
    }
    result
}

fn omit_defaults_in_value(value: &Value, kind: &CardFieldType, strict: bool) -> Value {
    match (value, kind) {
        (Value::Object(members), CardFieldType::Message(fields)) => {
            Value::Object(omit_defaults(members, fields, strict))
        }
        (Value::Object(members), CardFieldType::Map(fields)) => {
            let kind = CardFieldType::Message(fields);
            members.iter().map(|(name, value)| (name.clone(), omit_defaults_in_value(value, &kind, strict))).collect()
        }
        (Value::Array(items), CardFieldType::Message(_)) => {
            items.iter().map(|value| omit_defaults_in_value(value, kind, strict)).collect()
        }
        _ => value.clone(),
    }
}

/// Returns whether a value is its field's default. An empty message is not: only lists, maps and scalars have defaults.
fn is_default(value: &Value, kind: &CardFieldType) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty() && matches!(kind, CardFieldType::Map(_)),
        _ => false,
    }
}

/// Omits null and empty strings, lists and objects recursively, as the SDKs do.
fn omit_empty_members(members: &Map<String, Value>) -> Map<String, Value> {
    let members_to_keep = members.iter().filter(|(name, _)| *name != "signatures");
    members_to_keep.filter_map(|(name, value)| Some((name.clone(), omit_empty(value)?))).collect()
}

fn omit_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(omit_empty).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let members = members.iter().filter_map(|(name, value)| Some((name.clone(), omit_empty(value)?)));
            let members: Map<_, _> = members.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other.clone()),
    }
}

/// Escapes non-ASCII characters as UTF-16 units, as Python's encoder does.
fn escape_non_ascii(bytes: &[u8]) -> Vec<u8> {
    let mut ascii = Vec::with_capacity(bytes.len());
    let text = String::from_utf8_lossy(bytes);
    for character in text.chars() {
        match u8::try_from(character) {
            // Neither Python nor RFC 8785 escapes the delete character.
            Ok(byte) if byte.is_ascii() => ascii.push(byte),
            _ => {
                let mut units = [0; 2];
                for unit in character.encode_utf16(&mut units) {
                    ascii.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
                }
            }
        }
    }
    ascii
}
