//! Entry points for fuzzing: lists and documents of registries.

use super::{
    agent_uri_descriptor::OperationAddressing,
    entry_classifier::{ClassifiedEntry, EntryClassifier},
    list_parser::parse_page,
};
use crate::{
    agent::Agent,
    net::Url,
    registry::{DocumentBody, SourceKind, signature_policy::SignaturePolicy},
    values::sha256,
};
use bytes::Bytes;

/// Reads a page of a list, and converts each card, descriptor or document in it. A converted document is JSON, and an
/// agent or refused with its reasons.
pub fn check_registry_page(data: &[u8]) {
    let Ok(url) = Url::parse("https://registry.example/agents") else { return };
    let Ok(page) = parse_page(&url, &Bytes::copy_from_slice(data)) else { return };
    for kind in
        [SourceKind::Aidip, SourceKind::AgentFramework, SourceKind::AgentUri, SourceKind::Catalog, SourceKind::Ard]
    {
        let operation_addressing = OperationAddressing::BelowEndpoint;
        let classifier = EntryClassifier { kind, signature_policy: SignaturePolicy::default(), operation_addressing };
        for entry in &page.entries {
            if let ClassifiedEntry::Document(document) = classifier.classify_entry(entry, &url) {
                check_document(&document.to_raw_document().body);
            }
        }
    }
}

fn check_document(body: &DocumentBody) {
    let DocumentBody::Text(text) = body else { return };
    let document = serde_json::from_slice(text);
    assert!(document.is_ok(), "a converted document is not JSON");
    let Ok(document) = document else { return };
    let refused = Agent::from_document(&document, sha256(text)).err();
    assert!(refused.is_none_or(|reasons| !reasons.is_empty()), "a document is refused without a reason");
}
