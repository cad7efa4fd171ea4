//! Redirects: fetches from URLs that other parties choose, follows a bounded number of redirects, and applies the
//! address policy with the port to each hop. Sends no credentials.

use super::{FetchClient, FetchError, FetchLimits, FinalReply, Url, UrlTrust, dns::resolve_host, fetch_client};
use http::{HeaderMap, header};

/// Maximum number of redirects.
pub(super) const MAX_REDIRECTS: usize = 3;

impl FetchClient {
    /// Sends a GET with these headers to `url`, follows redirects, and returns the final response. `limits` applies to
    /// all requests together.
    ///
    /// # Errors
    /// One of the URLs is denied, or there was no complete response within the limits.
    pub async fn get_following_redirects(
        &self,
        url: &Url,
        fields: &HeaderMap,
        limits: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        let late =
            |_| FetchError::Failed { url: url.to_string(), reason: format!("takes longer than {}", limits.time) };
        tokio::time::timeout(limits.time.get(), self.follow_redirects(url, fields, limits)).await.map_err(late)?
    }

    async fn follow_redirects(
        &self,
        start: &Url,
        fields: &HeaderMap,
        limits: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        let mut url = start.clone();
        for _ in 0..=MAX_REDIRECTS {
            let reply = self.get_once(&url, fields, limits).await?;
            let Some(next) = redirect_target(&reply)? else { return Ok(reply) };
            url = next;
        }
        Err(too_many_redirects(start))
    }

    /// Checks that `url` and its addresses may be fetched from.
    ///
    /// # Errors
    /// The URL or its addresses are denied, or it has no address.
    pub async fn check_address(&self, url: &Url) -> Result<(), FetchError> {
        let denied = |reason| FetchError::Denied { url: url.to_string(), reason };
        self.check_url(url.as_str()).map_err(denied)?;
        // The client's DNS resolver does not know the port, so the gateway's own listeners are detected here.
        let port = url.port_or_known_default().unwrap_or(443);
        let addresses = resolve_host(url.host_str().unwrap_or_default(), port, &self.policy).await;
        addresses.map(drop).map_err(|error| denied(error.to_string()))
    }

    /// Fetches once, without following a redirect.
    pub(super) async fn get_once(
        &self,
        url: &Url,
        fields: &HeaderMap,
        limits: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        self.check_address(url).await?;
        read_uncompressed(url, self.build_get(url, UrlTrust::Untrusted)?.headers(fields.clone()), limits).await
    }
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
    let (parts, body) = fetch_client::send_and_read(url.as_str(), request, limits).await?;
    if parts.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let reason = "is compressed, although no compression was requested".to_owned();
        return Err(FetchError::Invalid { url: url.to_string(), reason });
    }
    Ok(FinalReply { url: url.clone(), status: parts.status, headers: parts.headers, body: body.into() })
}
