//! Documents that were read from no URL: those of files, and those that publishers send. A2A cards and OpenAPI documents
//! become AIDIP documents as those of registries do; other documents are AIDIP already.

use super::{
    a2a_card::convert_card,
    conversion_error::ConversionError,
    converted_document::ConvertedDocument,
    document_location::DocumentLocation,
    json_members::text_member,
    openapi_document::{convert_openapi, is_openapi_document},
};
use crate::resolver::endpoint_hints::is_a2a_card;
use serde_json::{Map, Value};

/// Returns whether a document is an A2A card.
pub(in crate::registry) fn is_card(document: &Value) -> bool {
    document.as_object().is_some_and(is_a2a_card)
}

/// Converts an A2A card or an OpenAPI document; `None` for every other document. The id is its own member `id`, or made
/// from its name.
///
/// # Errors
/// Why the gateway cannot call the agent.
pub(in crate::registry) fn convert_unlocated(
    members: &Map<String, Value>,
) -> Result<Option<ConvertedDocument>, ConversionError> {
    let location = DocumentLocation::NoUrl;
    let own_id = text_member(members, "id");
    let (mut document, notes) = if is_a2a_card(members) {
        (convert_card(members.clone(), None, location)?, Vec::new())
    } else if is_openapi_document(members) {
        let converted = convert_openapi(members, None, location)?;
        (converted.document, converted.notes)
    } else {
        return Ok(None);
    };
    if let (Some(id), Value::Object(members)) = (own_id, &mut document) {
        members.insert("id".to_owned(), id.into());
    }
    Ok(Some(ConvertedDocument::new(document.to_string().into(), notes)?))
}
