//! The headers that the gateway sets on requests to agents.

use crate::{
    gateway::{
        admission::Admitted,
        call::Call,
        delegation::DELEGATION_CHAIN,
        header_names::{AGENT_VERSION, OPERATION, REQUEST_ID},
    },
    idempotency,
};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Returns the gateway's headers for the agent: call id, operation name, version (each if it exists), and delegation
/// chain.
pub(in crate::gateway) fn gateway_headers(
    call: &Call,
    admitted: &Admitted,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let id = call.id_header().map(|id| (REQUEST_ID, id));
    let operation = admitted.operation().name_header.clone().map(|name| (OPERATION, name));
    let chain = admitted.delegation_chain().map(|chain| (DELEGATION_CHAIN, chain.clone()));
    let version = admitted.version().and_then(|version| version.label.clone());
    id.into_iter().chain(operation).chain(version.map(|version| (AGENT_VERSION, version))).chain(chain)
}

/// Sets the headers of a JSON body, for inputs that are not the caller's own body.
pub(in crate::gateway) fn set_json_headers(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
}

/// Derives the idempotency key of a part from the key of the call, so that no two parts share a key.
pub(in crate::gateway) fn number_idempotency_key(headers: &mut HeaderMap, part: usize) {
    let Some(key) = headers.remove(idempotency::IDEMPOTENCY_KEY) else { return };
    if let Ok(key) = HeaderValue::from_bytes(&[key.as_bytes(), format!(".{part}").as_bytes()].concat()) {
        headers.insert(idempotency::IDEMPOTENCY_KEY, key);
    }
}
