//! Fetching from places that somebody else's words lead to: every address on the way is vetted with its port, and
//! nothing of ours is shown there.

use super::{Answer, Bounds, Client, FetchError, Trust, Url, client, resolve};
use http::{HeaderMap, header};

/// Redirects that one fetch follows.
pub(super) const REDIRECTS: usize = 3;

impl Client {
    /// Whatever answers a GET of `url` with these fields, redirects followed, all of it within `bounds`.
    ///
    /// # Errors
    /// An address on the way is refused, or no complete answer came in bounds.
    pub async fn visit(&self, url: &Url, fields: &HeaderMap, bounds: Bounds) -> Result<Answer, FetchError> {
        let late = |_| FetchError::Failed { url: url.to_string(), why: format!("takes longer than {}", bounds.time) };
        tokio::time::timeout(bounds.time.get(), self.follow(url, fields, bounds)).await.map_err(late)?
    }

    async fn follow(&self, from: &Url, fields: &HeaderMap, bounds: Bounds) -> Result<Answer, FetchError> {
        let mut url = from.clone();
        for _ in 0..=REDIRECTS {
            let answer = self.stop(&url, fields, bounds).await?;
            let Some(next) = onward(&answer)? else { return Ok(answer) };
            url = next;
        }
        Err(too_far(from))
    }

    /// Whether `url` is at an address that may be visited.
    ///
    /// # Errors
    /// Its text or its addresses are refused, or it has none.
    pub async fn may_visit(&self, url: &Url) -> Result<(), FetchError> {
        let refused = |why| FetchError::Refused { url: url.to_string(), why };
        self.vet(url.as_str()).map_err(refused)?;
        // The resolver under the client knows no ports: the gateway's own listeners are told apart here.
        let port = url.port_or_known_default().unwrap_or(443);
        let found = resolve(url.host_str().unwrap_or_default(), port, &self.policy).await;
        found.map(drop).map_err(|why| refused(why.to_string()))
    }

    /// One fetch, without following what it answers.
    pub(super) async fn stop(&self, url: &Url, fields: &HeaderMap, bounds: Bounds) -> Result<Answer, FetchError> {
        self.may_visit(url).await?;
        answer(url, self.request(url, Trust::Told)?.headers(fields.clone()), bounds).await
    }
}

/// Where an answer sends on to, if it does.
///
/// # Errors
/// To no address.
pub(super) fn onward(answer: &Answer) -> Result<Option<Url>, FetchError> {
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let next = answer.headers.get(header::LOCATION).and_then(|next| next.to_str().ok());
    let next = next.and_then(|next| answer.url.join(next).ok());
    let lost = || FetchError::Unreadable { url: answer.url.to_string(), why: "redirects to no address".to_owned() };
    next.ok_or_else(lost).map(Some)
}

/// Sent on once more than is followed.
pub(super) fn too_far(from: &Url) -> FetchError {
    FetchError::Unreadable { url: from.to_string(), why: format!("redirects more than {REDIRECTS} times") }
}

/// The answer to a request, whole and not compressed.
pub(super) async fn answer(url: &Url, request: reqwest::RequestBuilder, bounds: Bounds) -> Result<Answer, FetchError> {
    let (parts, body) = client::read(url.as_str(), request, bounds).await?;
    if parts.headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let why = "is compressed, which was not asked for".to_owned();
        return Err(FetchError::Unreadable { url: url.to_string(), why });
    }
    Ok(Answer { url: url.clone(), status: parts.status, headers: parts.headers, body: body.into() })
}
