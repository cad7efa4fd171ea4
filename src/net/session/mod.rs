//! Fetches from one source that the operator configured. The source's credential is sent to its own origin only;
//! redirects and links to other origins are subject to the address policy. All fetches are bounded.

mod credential;
mod fresh;
mod token;

pub(super) use credential::bearer_value;
pub use credential::{ClientCredentials, Credential, Header, Mtls};
pub use fresh::{lifetime, retry_after};

use super::{Bounds, Client, Config, FetchError, client, visit};
use crate::unit::Span;
use bytes::Bytes;
use credential::Login;
use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;

/// Longer than the timeout of any fetch.
const AMPLE: Span = Span::secs(3_600);

/// HTTP client for one source.
#[derive(Debug)]
pub struct Session {
    /// For the source's own origin: with its client certificate and its authorities.
    own: reqwest::Client,
    /// For all other origins.
    other: Client,
    url: Url,
    login: Login,
    bounds: Bounds,
}

/// Complete response, whatever its status, after following redirects.
#[derive(Debug)]
pub struct Answer {
    /// URL of the final response.
    pub url: Url,
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body, within the size limit.
    pub body: Bytes,
}

impl Session {
    /// Builds the client for the source at `url`; `other` fetches from other origins.
    ///
    /// # Errors
    /// Returns every unusable value, by its path in the source's settings.
    pub fn build(
        config: &Config,
        other: &Client,
        url: &str,
        credential: Option<&Credential>,
        bounds: Bounds,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let url = other.vet(url).map_err(|why| problems.push(format!("url: {why}")));
        let none = Credential::default();
        let credential = credential.unwrap_or(&none);
        let mut within = |whys: Vec<String>| problems.extend(whys.iter().map(|why| format!("credential.{why}")));
        let login = Login::load(credential, other).map_err(&mut within);
        let own = own(config, credential.mtls.as_ref()).map_err(&mut within);
        let (Ok(url), Ok(login), Ok(own)) = (url, login, own) else { return Err(problems) };
        Ok(Self { own, other: other.clone(), url, login, bounds })
    }

    /// Returns the configured URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a GET to `url` with these headers and the credential, and returns the final response.
    ///
    /// # Errors
    /// A URL on the way is denied, or there was no complete response within the limits.
    pub async fn get(&self, url: &Url, fields: &HeaderMap) -> Result<Answer, FetchError> {
        let late =
            |_| FetchError::Failed { url: url.to_string(), why: format!("takes longer than {}", self.bounds.time) };
        tokio::time::timeout(self.bounds.time.get(), self.follow(url, fields)).await.map_err(late)?
    }

    async fn follow(&self, from: &Url, fields: &HeaderMap) -> Result<Answer, FetchError> {
        let mut url = from.clone();
        for _ in 0..=visit::REDIRECTS {
            let answer = self.hop(&url, fields).await?;
            let Some(next) = visit::onward(&answer)? else { return Ok(answer) };
            url = next;
        }
        Err(visit::too_far(from))
    }

    async fn hop(&self, url: &Url, fields: &HeaderMap) -> Result<Answer, FetchError> {
        self.other.vet(url.as_str()).map_err(|why| FetchError::Refused { url: url.to_string(), why })?;
        if url.origin() != self.url.origin() {
            return self.other.stop(url, fields, Bounds { time: AMPLE, ..self.bounds }).await;
        }
        let ask = async |shown: Option<(http::HeaderName, HeaderValue)>| {
            let request = self.own.get(url.clone());
            let request = shown.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            self.send(request, url, fields).await
        };
        match &self.login {
            Login::Nothing => ask(None).await,
            Login::Field(name, value) => ask(Some((name.clone(), value.clone()))).await,
            Login::Tokens(tokens) => {
                let token = tokens.get(None).await?;
                let answer = ask(Some((header::AUTHORIZATION, token.clone()))).await?;
                if answer.status != 401 {
                    return Ok(answer);
                }
                // The token may have been revoked before its expiry: request another one, once.
                let token = tokens.get(Some(&token)).await?;
                ask(Some((header::AUTHORIZATION, token))).await
            }
        }
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
        fields: &HeaderMap,
    ) -> Result<Answer, FetchError> {
        // The caller limits the total time of all hops, with a better error.
        let bounds = Bounds { time: AMPLE, ..self.bounds };
        visit::answer(url, request.headers(fields.clone()), bounds).await
    }
}

fn own(config: &Config, mtls: Option<&Mtls>) -> Result<reqwest::Client, Vec<String>> {
    let mut builder = client::with_authorities(config)?;
    if let Some(mtls) = mtls {
        let (identity, authorities) = mtls.load()?;
        builder = builder.identity(identity);
        if !authorities.is_empty() {
            builder = builder.tls_certs_only(authorities);
        }
    }
    builder.build().map_err(|why| vec![format!("mtls: cannot build a TLS client ({})", client::chain(&why))])
}
