//! Redirects: fetches from URLs that other parties choose, follows a bounded number of redirects, and applies the
//! address policy with the port to each hop. Sends no credentials.

use super::{FetchClient, FetchError, FetchLimits, FinalReply, Url, UrlTrust, dns::resolve_host, fetch_client};
use http::{HeaderMap, header};

/// Maximum number of redirects.
pub(super) const MAX_REDIRECTS: usize = 3;

impl FetchClient {
    /// Sends a GET with these headers to `url`, follows redirects, and returns the final response. `bounds` limits all.
    ///
    /// # Errors
    /// A URL on the way is denied, or there was no complete response within the limits.
    pub async fn get_following_redirects(
        &self,
        url: &Url,
        fields: &HeaderMap,
        bounds: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        let late = |_| FetchError::Failed { url: url.to_string(), why: format!("takes longer than {}", bounds.time) };
        tokio::time::timeout(bounds.time.get(), self.follow_redirects(url, fields, bounds)).await.map_err(late)?
    }

    async fn follow_redirects(
        &self,
        from: &Url,
        fields: &HeaderMap,
        bounds: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        let mut url = from.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.get_once(&url, fields, bounds).await?;
            let Some(next) = redirect_target(&answer)? else { return Ok(answer) };
            url = next;
        }
        Err(too_many_redirects(from))
    }

    /// Checks that `url` and its addresses may be fetched from.
    ///
    /// # Errors
    /// The URL or its addresses are denied, or it has no address.
    pub async fn check_address(&self, url: &Url) -> Result<(), FetchError> {
        let refused = |why| FetchError::Denied { url: url.to_string(), why };
        self.check_url(url.as_str()).map_err(refused)?;
        // The client's DNS resolver does not know the port, so the gateway's own listeners are detected here.
        let port = url.port_or_known_default().unwrap_or(443);
        let found = resolve_host(url.host_str().unwrap_or_default(), port, &self.policy).await;
        found.map(drop).map_err(|why| refused(why.to_string()))
    }

    /// Fetches once, without following a redirect.
    pub(super) async fn get_once(
        &self,
        url: &Url,
        fields: &HeaderMap,
        bounds: FetchLimits,
    ) -> Result<FinalReply, FetchError> {
        self.check_address(url).await?;
        read_uncompressed(url, self.build_get(url, UrlTrust::Untrusted)?.headers(fields.clone()), bounds).await
    }
}

/// Returns the target of a redirect; `None` if the response is not a redirect.
///
/// # Errors
/// The redirect has no valid target.
pub(super) fn redirect_target(answer: &FinalReply) -> Result<Option<Url>, FetchError> {
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let next = answer.headers.get(header::LOCATION).and_then(|next| next.to_str().ok());
    let next = next.and_then(|next| answer.url.join(next).ok());
    let lost = || FetchError::Invalid { url: answer.url.to_string(), why: "redirects to no address".to_owned() };
    next.ok_or_else(lost).map(Some)
}

/// Error for too many redirects.
pub(super) fn too_many_redirects(from: &Url) -> FetchError {
    FetchError::Invalid { url: from.to_string(), why: format!("redirects more than {MAX_REDIRECTS} times") }
}

/// Reads the response to a request, and refuses a compressed one.
pub(super) async fn read_uncompressed(
    url: &Url,
    request: reqwest::RequestBuilder,
    bounds: FetchLimits,
) -> Result<FinalReply, FetchError> {
    let (parts, body) = fetch_client::send_and_read(url.as_str(), request, bounds).await?;
    if parts.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let why = "is compressed, although no compression was requested".to_owned();
        return Err(FetchError::Invalid { url: url.to_string(), why });
    }
    Ok(FinalReply { url: url.clone(), status: parts.status, headers: parts.headers, body: body.into() })
}
