//! Entry point for fuzzing: keys of DIDs and hosts, and what they sign.

use super::did_web;
use crate::signing::TrustedKeys;
use serde_json::Value;

/// Verifies the document on the third line with the keys of the second, a DID document or a JWK Set of the DID on the
/// first. A verified part has no member that the document lacks.
pub fn check_signed_documents(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let (Some(did), Some(keys), Some(document)) = (lines.next(), lines.next(), lines.next()) else { return };
    let url = did_web::document_root(did).and_then(|root| root.did_document_url());
    assert!(url.is_none_or(|url| url.scheme() == "https" && url.username().is_empty()), "a DID leads elsewhere");
    let Ok(keys) = serde_json::from_str::<Value>(keys) else { return };
    let Ok(document) = serde_json::from_str::<Value>(document) else { return };
    for keys in [did_web::assertion_keys(did, &keys), keys] {
        let Ok(keys) = TrustedKeys::from_jwks(&keys) else { continue };
        let Ok(part) = keys.verify_document(&document) else { continue };
        let verified = part.select(document.clone());
        let members = verified.as_object().into_iter().flatten();
        assert!(members.into_iter().all(|(name, value)| document.get(name) == Some(value)), "a member changed");
    }
}
