//! Media types: negotiation by `Accept` (R75, R147), and checks of a body's `Content-Type`.

use crate::{
    fault::{Fault, FaultCode, Result},
    values::AcceptHeader,
};
use http::{HeaderMap, HeaderName, header};

/// Plain JSON.
pub(super) const JSON: &str = "application/json";
/// Documents of Agent Framework.
pub(super) const AGENT_METADATA: &str = "application/agent-metadata+json;version=1";
/// Sets of public keys.
pub(super) const JWK_SET_MEDIA_TYPES: &[&str] = &["application/jwk-set+json", JSON];
/// JSON Schemas.
pub(super) const SCHEMA_MEDIA_TYPES: &[&str] = &["application/schema+json", JSON];
/// OpenAPI documents.
pub(super) const OPENAPI_MEDIA_TYPES: &[&str] = &[JSON, "application/vnd.oai.openapi+json;version=3.1"];
/// Merge patches of a document (RFC 7396).
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";
/// The header in which an A2A client states its version, which selects the format of a card.
pub(super) const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// Returns the type of `offered` that `Accept` prefers; the earlier one of equals.
///
/// # Errors
/// `NotAcceptable` that lists the offered types.
pub(super) fn negotiate(headers: &HeaderMap, offered: &[&'static str]) -> Result<&'static str> {
    let accept = AcceptHeader::from_headers(headers);
    let mut best: Option<(&'static str, u16)> = None;
    for media in offered {
        let quality = if accept.is_empty() { 1_000 } else { accept.quality_of(media).unwrap_or_default() };
        if quality > 0 && best.is_none_or(|(_, best_quality)| quality > best_quality) {
            best = Some((media, quality));
        }
    }
    best.map(|(media, _)| media).ok_or_else(|| {
        Fault::new(
            FaultCode::NotAcceptable,
            format!("Accept allows none of the available formats ({})", offered.join(", ")),
        )
    })
}

/// Refuses a body with a media type not in `media_types`, a content coding or another charset than UTF-8. A body
/// without a media type passes: it is parsed as JSON, and refused there.
///
/// # Errors
/// `UnsupportedMediaType` that lists the supported types.
pub(super) fn check_content_type(headers: &HeaderMap, media_types: &[&'static str]) -> Result<()> {
    let unsupported = |why: String| Err(Fault::new(FaultCode::UnsupportedMediaType, why));
    let coding = headers.get(header::CONTENT_ENCODING).map(|coding| coding.as_bytes());
    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        return unsupported("The body must not be compressed (leave out Content-Encoding)".to_owned());
    }
    let Some(media) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let mut parts = media.to_str().unwrap_or_default().split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    if !media_types.iter().any(|media| essence.eq_ignore_ascii_case(media)) {
        return unsupported(format!("The body must be JSON (Content-Type: {})", media_types.join(" or ")));
    }
    let charset = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.eq_ignore_ascii_case("charset"));
    match charset.map(|(_, charset)| charset.trim_matches('"')) {
        Some(charset) if !charset.eq_ignore_ascii_case("utf-8") => unsupported("The body must be UTF-8".to_owned()),
        _ => Ok(()),
    }
}
