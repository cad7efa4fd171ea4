//! Parses files into documents: JSON or YAML; one document, an array, or an object with `agents`.
//! A file that is malformed as a whole is an error; a malformed document within a file is not.

use super::{
    MAX_AGENTS,
    feed::{DocumentBody, RawDocument},
    json_document_ranges,
};
use crate::values::{
    json::{self, StrictJsonValue},
    sha256,
};
use bytes::Bytes;
use serde_json::Value;
use std::path::Path;

/// Maximum size of one file in bytes.
pub(super) const MAX_FILE_SIZE: usize = 256 << 20;
/// Maximum size of one YAML file in bytes. Reading YAML takes far more memory than reading JSON.
const MAX_YAML_SIZE: usize = 128 << 20;
/// Maximum size of one document in bytes.
pub(super) const MAX_DOCUMENT_SIZE: usize = 1 << 20;
/// Maximum number of YAML events that aliases may add to those of the text.
const MAX_ALIAS_EVENTS: usize = 200_000;
/// Maximum nesting depth of arrays and objects in one document.
const MAX_DEPTH: u16 = 100;

/// Parses the documents of a file.
///
/// # Errors
/// Why the file is malformed as a whole.
pub(super) fn parse_documents(path: &Path, bytes: Bytes) -> Result<Vec<RawDocument>, String> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let start = bytes.trim_ascii_start().first();
    let documents = match (extension, start) {
        (_, None) => return Err("the file is empty (write [] for no agents)".to_owned()),
        ("json", _) => parse_json(bytes)?,
        ("yaml" | "yml", _) => parse_yaml(&bytes)?,
        (_, Some(b'{' | b'[')) => parse_json(bytes)?,
        _ => parse_yaml(&bytes)?,
    };
    match documents.len() {
        0..=MAX_AGENTS => Ok(documents),
        count => Err(format!("the file has {count} agents (at most {MAX_AGENTS})")),
    }
}

fn parse_json(bytes: Bytes) -> Result<Vec<RawDocument>, String> {
    if let Err(why) = std::str::from_utf8(&bytes) {
        return Err(format!("byte {} is not UTF-8", why.valid_up_to()));
    }
    let bytes = if bytes.starts_with(b"\xef\xbb\xbf") { bytes.slice(3..) } else { bytes };
    let ranges = json_document_ranges::document_ranges(&bytes)?;
    Ok(ranges.into_iter().map(|range| document_from_text(bytes.slice(range))).collect())
}

fn document_from_text(text: Bytes) -> RawDocument {
    RawDocument::new(sha256(&text), document_body(text))
}

/// Returns the text of a document in a list, or why it cannot be one: it is empty or too large.
pub(super) fn document_body(text: Bytes) -> DocumentBody {
    match text.len() {
        0 => DocumentBody::Invalid("no document between two commas".to_owned()),
        1..=MAX_DOCUMENT_SIZE => DocumentBody::Text(text),
        _ => DocumentBody::Invalid(size_error(text.len())),
    }
}

pub(super) fn size_error(bytes: usize) -> String {
    format!("the document has {bytes} bytes (at most {MAX_DOCUMENT_SIZE})")
}

/// Parses one YAML document that is none of an agent.
///
/// # Errors
/// Why the text is not one document.
pub fn parse_yaml_value(bytes: &[u8]) -> Result<Value, String> {
    let mut values = parse_yaml_values(bytes)?.into_iter();
    match (values.next(), values.next()) {
        (Some(StrictJsonValue(value)), None) => Ok(value),
        _ => Err("the text has several documents, or none".to_owned()),
    }
}

/// Parses YAML. An alias may expand to a whole tree, so the budget for expansion is far below the maximum file size.
fn parse_yaml_values(bytes: &[u8]) -> Result<Vec<StrictJsonValue>, String> {
    if bytes.len() > MAX_YAML_SIZE {
        return Err(format!("the file has {} bytes (at most {MAX_YAML_SIZE} for YAML)", bytes.len()));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * bytes.len() + MAX_ALIAS_EVENTS,
            max_nodes: bytes.len() + MAX_ALIAS_EVENTS,
            max_total_scalar_bytes: 2 * bytes.len() + (1 << 20),
            max_aliases: 10_000,
            max_anchors: 10_000,
            max_recorded_anchor_events: MAX_ALIAS_EVENTS,
            max_depth: usize::from(MAX_DEPTH),
            max_documents: MAX_AGENTS,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_slice_multiple_with_options(bytes, options).map_err(|why| json::truncate(&why.to_string(), 300))
}

fn parse_yaml(bytes: &[u8]) -> Result<Vec<RawDocument>, String> {
    let mut documents = Vec::new();
    for StrictJsonValue(value) in parse_yaml_values(bytes)? {
        match value {
            Value::Array(items) => documents.extend(items.into_iter().map(document_from_value)),
            Value::Object(mut members) => match members.get_mut("agents").map(Value::take) {
                Some(Value::Array(items)) if !members.contains_key("id") && !members.contains_key("endpoint") => {
                    documents.extend(items.into_iter().map(document_from_value));
                }
                Some(agents) => {
                    members.insert("agents".to_owned(), agents);
                    documents.push(document_from_value(Value::Object(members)));
                }
                None => documents.push(document_from_value(Value::Object(members))),
            },
            _ => return Err("the file is neither a document nor a list of documents".to_owned()),
        }
    }
    Ok(documents)
}

fn document_from_value(value: Value) -> RawDocument {
    let text = value.to_string();
    let body = match text.len() {
        0..=MAX_DOCUMENT_SIZE => DocumentBody::Value(value),
        size => DocumentBody::Invalid(size_error(size)),
    };
    RawDocument::new(sha256(text.as_bytes()), body)
}

/// Parses the value of a document.
///
/// # Errors
/// Why the document cannot be parsed.
pub(super) fn parse_value(body: DocumentBody) -> Result<Value, String> {
    match body {
        DocumentBody::Value(value) => Ok(value),
        DocumentBody::Invalid(why) | DocumentBody::Unsupported(why) => Err(why),
        DocumentBody::Text(text) => json::parse(&text, MAX_DEPTH).map_err(|why| match find_unquoted_version(&text) {
            Some(version) => {
                format!("version: {version} is not JSON; write it in quotes: \"{version}\"")
            }
            None => format!("the document is not JSON: {why}"),
        }),
    }
}

/// Maximum length of a version without quotes that the reason shows.
const MAX_SHOWN_VERSION_LEN: usize = 64;

/// Finds a version without quotes. R74: the drafts' own examples contain `"version": 3.1.4`.
fn find_unquoted_version(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    text.match_indices("\"version\"").find_map(|(at, name)| {
        let rest = text.get(at + name.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        // A publisher writes the text: no search goes further than a version is long.
        let version = rest.get(..rest.ceil_char_boundary(MAX_SHOWN_VERSION_LEN + 1)).unwrap_or(rest);
        let end = version.find(|c: char| c == ',' || c == '}' || c.is_whitespace()).unwrap_or(version.len());
        let version = version.get(..end).filter(|version| version.len() <= MAX_SHOWN_VERSION_LEN)?;
        let number = version.starts_with(|c: char| c.is_ascii_digit()) && version.matches('.').count() > 1;
        number.then_some(version)
    })
}
