//! Fetches from one source that the operator configured. The source's credential is sent to its own origin only;
//! redirects and links to other origins are subject to the address policy. All fetches are bounded.

mod freshness;
mod oauth_token_cache;
mod source_credential;

pub use freshness::{freshness_lifetime, retry_after};
pub(super) use source_credential::bearer_value;
pub use source_credential::{ClientCredentials, SourceCredential, SourceHeader, SourceMtls};

use super::{FetchClient, FetchError, FetchLimits, NetworkConfig, fetch_client, redirect};
use crate::values::ConfigDuration;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;
use source_credential::LoadedCredential;

/// Longer than the timeout of any fetch.
const UNLIMITED: ConfigDuration = ConfigDuration::from_secs(3_600);

/// HTTP client for one source.
#[derive(Debug)]
pub struct SourceClient {
    /// For the source's own origin: with its client certificate and its authorities.
    own: reqwest::Client,
    /// For all other origins.
    other: FetchClient,
    url: Url,
    credential: LoadedCredential,
    bounds: FetchLimits,
}

/// Complete response, whatever its status, after following redirects.
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

impl SourceClient {
    /// Builds the client for the source at `url`; `other` fetches from other origins.
    ///
    /// # Errors
    /// Returns every unusable value, by its path in the source's settings.
    pub fn build(
        config: &NetworkConfig,
        other: &FetchClient,
        url: &str,
        credential: Option<&SourceCredential>,
        bounds: FetchLimits,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let url = other.check_url(url).map_err(|why| problems.push(format!("url: {why}")));
        let none = SourceCredential::default();
        let credential = credential.unwrap_or(&none);
        let mut within = |whys: Vec<String>| problems.extend(whys.iter().map(|why| format!("credential.{why}")));
        let login = LoadedCredential::load(credential, other).map_err(&mut within);
        let own = build_own_client(config, credential.mtls.as_ref()).map_err(&mut within);
        let (Ok(url), Ok(login), Ok(own)) = (url, login, own) else { return Err(problems) };
        Ok(Self { own, other: other.clone(), url, credential: login, bounds })
    }

    /// Returns the configured URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Sends a GET to `url` with these headers and the credential, and returns the final response.
    ///
    /// # Errors
    /// A URL on the way is denied, or there was no complete response within the limits.
    pub async fn get(&self, url: &Url, fields: &HeaderMap) -> Result<FinalReply, FetchError> {
        let late =
            |_| FetchError::Failed { url: url.to_string(), why: format!("takes longer than {}", self.bounds.time) };
        tokio::time::timeout(self.bounds.time.get(), self.follow_redirects(url, fields)).await.map_err(late)?
    }

    async fn follow_redirects(&self, from: &Url, fields: &HeaderMap) -> Result<FinalReply, FetchError> {
        let mut url = from.clone();
        for _ in 0..=redirect::MAX_REDIRECTS {
            let answer = self.fetch_hop(&url, fields).await?;
            let Some(next) = redirect::redirect_target(&answer)? else { return Ok(answer) };
            url = next;
        }
        Err(redirect::too_many_redirects(from))
    }

    async fn fetch_hop(&self, url: &Url, fields: &HeaderMap) -> Result<FinalReply, FetchError> {
        self.other.check_url(url.as_str()).map_err(|why| FetchError::Denied { url: url.to_string(), why })?;
        if url.origin() != self.url.origin() {
            return self.other.get_once(url, fields, FetchLimits { time: UNLIMITED, ..self.bounds }).await;
        }
        let ask = async |shown: Option<(http::HeaderName, HeaderValue)>| {
            let request = self.own.get(url.clone());
            let request = shown.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            self.send(request, url, fields).await
        };
        match &self.credential {
            LoadedCredential::Absent => ask(None).await,
            LoadedCredential::Header(name, value) => ask(Some((name.clone(), value.clone()))).await,
            LoadedCredential::Tokens(tokens) => {
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
    ) -> Result<FinalReply, FetchError> {
        // The caller limits the total time of all hops, with a better error.
        let bounds = FetchLimits { time: UNLIMITED, ..self.bounds };
        redirect::read_uncompressed(url, request.headers(fields.clone()), bounds).await
    }
}

fn build_own_client(config: &NetworkConfig, mtls: Option<&SourceMtls>) -> Result<reqwest::Client, Vec<String>> {
    let mut builder = fetch_client::builder_with_authorities(config)?;
    if let Some(mtls) = mtls {
        let (identity, authorities) = mtls.load()?;
        builder = builder.identity(identity);
        if !authorities.is_empty() {
            builder = builder.tls_certs_only(authorities);
        }
    }
    builder
        .build()
        .map_err(|why| vec![format!("mtls: cannot build a TLS client ({})", fetch_client::error_chain(&why))])
}
