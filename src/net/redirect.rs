//! Redirects: the response that a redirect leads to, the target of a redirect, and the bound on their number.

use super::{
    FetchError, Url,
    bounded_fetch::{self, FetchLimits},
};
use bytes::Bytes;
use http::{HeaderMap, header};

/// Maximum number of redirects.
pub(super) const MAX_REDIRECTS: usize = 3;

/// Complete response, regardless of its status, after following redirects.
#[derive(Debug)]
pub struct FinalReply {
    /// URL of the final response.
    pub url: Url,
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, within the size limit.
    pub body: Bytes,
}

/// Returns the target of a redirect; `None` if the response is not a redirect.
///
/// # Errors
/// The redirect has no valid target.
pub(super) fn redirect_target(reply: &FinalReply) -> Result<Option<Url>, FetchError> {
    if !matches!(reply.status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let target = reply.headers.get(header::LOCATION).and_then(|target| target.to_str().ok());
    let target = target.and_then(|target| reply.url.join(target).ok());
    let no_target =
        || FetchError::Invalid { url: reply.url.to_string(), reason: "redirects without a valid Location".to_owned() };
    target.ok_or_else(no_target).map(Some)
}

/// Error for too many redirects.
pub(super) fn too_many_redirects(url: &Url) -> FetchError {
    FetchError::Invalid { url: url.to_string(), reason: format!("redirects more than {MAX_REDIRECTS} times") }
}

/// Reads the response to a request, and refuses a compressed one.
pub(super) async fn read_uncompressed(
    url: &Url,
    request: reqwest::RequestBuilder,
    limits: FetchLimits,
) -> Result<FinalReply, FetchError> {
    let (parts, body) = bounded_fetch::send_and_read(url.as_str(), request, limits).await?;
    if parts.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let reason = "is compressed, although no compression was requested".to_owned();
        return Err(FetchError::Invalid { url: url.to_string(), reason });
    }
    Ok(FinalReply { url: url.clone(), status: parts.status, headers: parts.headers, body: body.into() })
}
