//! Parses files into documents: JSON or YAML; one document, an array, or an object with `agents`.
//! A file that is malformed as a whole is an error; a malformed document within a file is not.

use super::{
    MOST_AGENTS,
    feed::{Body, Document},
    split,
};
use crate::unit::json::{self, Whole};
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use serde_json::Value;
use std::path::Path;

/// Maximum size of one file in bytes.
pub(super) const LARGEST_FILE: usize = 256 << 20;
/// Maximum size of one YAML file in bytes. Reading YAML takes far more memory than reading JSON.
const LARGEST_YAML: usize = 128 << 20;
/// Maximum size of one document in bytes.
const LARGEST_DOCUMENT: usize = 1 << 20;
/// Maximum number of YAML events that aliases may add to those of the text.
const REPLAYED: usize = 200_000;
/// Maximum nesting depth of arrays and objects in one document.
const DEEPEST: u16 = 100;

/// Parses the documents of a file.
///
/// # Errors
/// Why the file is malformed as a whole.
pub(super) fn documents(path: &Path, bytes: Bytes) -> Result<Vec<Document>, String> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let start = bytes.trim_ascii_start().first();
    let found = match (extension, start) {
        (_, None) => return Err("the file is empty (write [] for no agents)".to_owned()),
        ("json", _) => json(bytes)?,
        ("yaml" | "yml", _) => yaml(&bytes)?,
        (_, Some(b'{' | b'[')) => json(bytes)?,
        _ => yaml(&bytes)?,
    };
    match found.len() {
        0..=MOST_AGENTS => Ok(found),
        many => Err(format!("the file has {many} agents (at most {MOST_AGENTS})")),
    }
}

fn json(bytes: Bytes) -> Result<Vec<Document>, String> {
    if let Err(why) = std::str::from_utf8(&bytes) {
        return Err(format!("byte {} is not UTF-8", why.valid_up_to()));
    }
    let bytes = match bytes.starts_with(b"\xef\xbb\xbf") {
        true => bytes.slice(3..),
        false => bytes,
    };
    let places = split::documents(&bytes)?;
    Ok(places.into_iter().map(|place| text(bytes.slice(place))).collect())
}

fn text(text: Bytes) -> Document {
    let digest = sha256(&text);
    let body = match text.len() {
        0 => Body::Broken("no document between two commas".to_owned()),
        1..=LARGEST_DOCUMENT => Body::Text(text),
        _ => Body::Broken(too_large(text.len())),
    };
    Document { digest, body }
}

fn too_large(bytes: usize) -> String {
    format!("the document has {bytes} bytes (at most {LARGEST_DOCUMENT})")
}

pub(super) fn sha256(text: &[u8]) -> [u8; 32] {
    digest(&SHA256, text).as_ref().try_into().unwrap_or_default()
}

/// Parses YAML. An alias may expand to a whole tree, so the budget for expansion is far below the maximum file size.
fn yaml(bytes: &[u8]) -> Result<Vec<Document>, String> {
    if bytes.len() > LARGEST_YAML {
        return Err(format!("the file has {} bytes (at most {LARGEST_YAML} for YAML)", bytes.len()));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 2 * bytes.len() + REPLAYED,
            max_nodes: bytes.len() + REPLAYED,
            max_total_scalar_bytes: 2 * bytes.len() + (1 << 20),
            max_aliases: 10_000,
            max_anchors: 10_000,
            max_recorded_anchor_events: REPLAYED,
            max_depth: usize::from(DEEPEST),
            max_documents: MOST_AGENTS,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED },
        strict_booleans: true,
        with_snippet: false,
    };
    let read: Vec<Whole> = serde_saphyr::from_slice_multiple_with_options(bytes, options)
        .map_err(|why| json::cut(&why.to_string(), 300))?;
    let mut found = Vec::new();
    for Whole(value) in read {
        match value {
            Value::Array(items) => found.extend(items.into_iter().map(value_of)),
            Value::Object(mut members) => match members.get_mut("agents").map(Value::take) {
                Some(Value::Array(items)) if !members.contains_key("id") && !members.contains_key("endpoint") => {
                    found.extend(items.into_iter().map(value_of));
                }
                Some(agents) => {
                    members.insert("agents".to_owned(), agents);
                    found.push(value_of(Value::Object(members)));
                }
                None => found.push(value_of(Value::Object(members))),
            },
            _ => return Err("the file is neither a document nor a list of documents".to_owned()),
        }
    }
    Ok(found)
}

fn value_of(value: Value) -> Document {
    let text = value.to_string();
    let body = match text.len() {
        0..=LARGEST_DOCUMENT => Body::Value(value),
        many => Body::Broken(too_large(many)),
    };
    Document { digest: sha256(text.as_bytes()), body }
}

/// Parses the value of a document.
///
/// # Errors
/// Why the document cannot be parsed.
pub(super) fn value(body: Body) -> Result<Value, String> {
    match body {
        Body::Value(value) => Ok(value),
        Body::Broken(why) => Err(why),
        Body::Text(text) => json::read(&text, DEEPEST).map_err(|broken| match unquoted_version(&text) {
            Some(version) => {
                format!("version: {version} is not JSON; write it in quotes: \"{version}\"")
            }
            None => format!("the document is not JSON: {broken}"),
        }),
    }
}

/// Finds a version without quotes. R74: the drafts' own examples contain `"version": 3.1.4`.
fn unquoted_version(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    text.match_indices("\"version\"").find_map(|(at, name)| {
        let rest = text.get(at + name.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        let end = rest.find(|c: char| c == ',' || c == '}' || c.is_whitespace()).unwrap_or(rest.len());
        let version = rest.get(..end).filter(|version| version.len() <= 64)?;
        let number = version.starts_with(|c: char| c.is_ascii_digit()) && version.matches('.').count() > 1;
        number.then_some(version)
    })
}
