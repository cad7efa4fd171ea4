//! Documents of files: an A2A card or an OpenAPI document becomes an AIDIP document.

use super::{
    document_parser,
    feed::{DocumentBody, RawDocument},
    http_feed::convert_unlocated,
};
use serde_json::Value;

/// Members that only such documents have, as they are written in JSON.
const FOREIGN_MEMBERS: &[&str] = &[
    "\"skills\"",
    "\"protocolVersion\"",
    "\"supportedInterfaces\"",
    "\"supported_interfaces\"",
    "\"openapi\"",
    "\"swagger\"",
];

/// Returns a document of a file as AIDIP. A card that cannot be one has the reason.
pub(super) fn convert_file_document(document: RawDocument) -> RawDocument {
    let value = match &document.body {
        // Large files of AIDIP documents are not parsed twice.
        DocumentBody::Text(text) if !has_foreign_member(text) => return document,
        DocumentBody::Text(text) => match document_parser::parse_value(DocumentBody::Text(text.clone())) {
            Ok(value) => value,
            Err(_) => return document,
        },
        DocumentBody::Value(value) => value.clone(),
        DocumentBody::Invalid(_) | DocumentBody::Unsupported(_) => return document,
    };
    let Value::Object(members) = &value else { return document };
    match convert_unlocated(members) {
        Ok(Some(converted)) => converted.to_raw_document(),
        Ok(None) => document,
        Err(error) => error.to_raw_document(),
    }
}

fn has_foreign_member(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    FOREIGN_MEMBERS.iter().any(|member| text.contains(member))
}
