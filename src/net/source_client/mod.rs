//! Fetches from one source that the operator configured. The source's credential is sent to its own origin only, and only
//! where the operator or a document of that origin named the URL; all other links and redirects are subject to the
//! address policy. All fetches are bounded.

mod freshness;
mod link_author;
mod loaded_credential;
mod oauth_token_cache;
mod source_credential;

pub use freshness::{freshness_lifetime, retry_after};
pub use link_author::LinkAuthor;
pub use source_credential::{ClientCredentials, SourceCredential, SourceHeader, SourceMtls};
pub(super) use source_credential::{bearer_value, parse_authorities};

use super::{
    FetchClient, FetchError, FetchLimits, NetworkConfig, bounded_fetch,
    redirect::{self, FinalReply},
};
use crate::values::ConfigDuration;
use http::{HeaderMap, HeaderValue, header};
use loaded_credential::LoadedCredential;
use reqwest::Url;

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
    limits: FetchLimits,
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
        limits: FetchLimits,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let url = other.check_url(url).map_err(|error| problems.push(format!("url: {error}")));
        let no_credential = SourceCredential::default();
        let credential = credential.unwrap_or(&no_credential);
        let mut add_problems =
            |errors: Vec<String>| problems.extend(errors.iter().map(|error| format!("credential.{error}")));
        let loaded = LoadedCredential::load(credential, other).map_err(&mut add_problems);
        let own = build_own_client(config, credential.mtls.as_ref()).map_err(&mut add_problems);
        let (Ok(url), Ok(loaded), Ok(own)) = (url, loaded, own) else { return Err(problems) };
        Ok(Self { own, other: other.clone(), url, credential: loaded, limits })
    }

    /// Returns the configured URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns whether `url` is at the source's own server.
    pub fn is_own(&self, url: &Url) -> bool {
        url.origin() == self.url.origin()
    }

    /// Sends a GET to `url` with these headers and the credential, and returns the final response.
    ///
    /// # Errors
    /// One of the URLs is denied, or there was no complete response within the limits.
    pub async fn get(&self, url: &Url, fields: &HeaderMap) -> Result<FinalReply, FetchError> {
        self.get_link(url, LinkAuthor::Source, fields).await
    }

    /// Sends a GET to `url`, which `author` named, with these headers, and returns the final response. The credential,
    /// the client certificate and the operator's trust are for URLs of the source's own author only.
    ///
    /// # Errors
    /// As [`SourceClient::get`].
    pub async fn get_link(&self, url: &Url, author: LinkAuthor, fields: &HeaderMap) -> Result<FinalReply, FetchError> {
        bounded_fetch::within(self.limits.time, url.as_str(), self.follow_redirects(url, author, fields)).await
    }

    async fn follow_redirects(
        &self,
        start: &Url,
        mut author: LinkAuthor,
        fields: &HeaderMap,
    ) -> Result<FinalReply, FetchError> {
        let mut url = start.clone();
        for _ in 0..=redirect::MAX_REDIRECTS {
            // The server that redirects names the target.
            author = author.of_links(self.is_own(&url));
            let reply = self.fetch_hop(&url, author, fields).await?;
            let Some(next) = redirect::redirect_target(&reply)? else { return Ok(reply) };
            url = next;
        }
        Err(redirect::too_many_redirects(start))
    }

    async fn fetch_hop(&self, url: &Url, author: LinkAuthor, fields: &HeaderMap) -> Result<FinalReply, FetchError> {
        self.other.check_url(url.as_str()).map_err(|reason| FetchError::Denied { url: url.to_string(), reason })?;
        if author == LinkAuthor::Foreign {
            return self.other.get_once(url, fields, FetchLimits { time: UNLIMITED, ..self.limits }).await;
        }
        let send = async |credential: Option<(http::HeaderName, HeaderValue)>| {
            let request = self.own.get(url.clone());
            let request = credential.into_iter().fold(request, |request, (name, value)| request.header(name, value));
            self.send(request, url, fields).await
        };
        match &self.credential {
            LoadedCredential::Absent => send(None).await,
            LoadedCredential::Header(name, value) => send(Some((name.clone(), value.clone()))).await,
            LoadedCredential::Tokens(tokens) => {
                let token = tokens.get(None).await?;
                let reply = send(Some((header::AUTHORIZATION, token.clone()))).await?;
                if reply.status != 401 {
                    return Ok(reply);
                }
                // The token may have been revoked before its expiry: request another one, once.
                let token = tokens.get(Some(&token)).await?;
                send(Some((header::AUTHORIZATION, token))).await
            }
        }
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
        url: &Url,
        fields: &HeaderMap,
    ) -> Result<FinalReply, FetchError> {
        // The caller of this function bounds the time of all hops together.
        let limits = FetchLimits { time: UNLIMITED, ..self.limits };
        redirect::read_uncompressed(url, request.headers(fields.clone()), limits).await
    }
}

fn build_own_client(config: &NetworkConfig, mtls: Option<&SourceMtls>) -> Result<reqwest::Client, Vec<String>> {
    let builder = match mtls {
        Some(mtls) => {
            let (identity, authorities) = mtls.load()?;
            let builder = bounded_fetch::base_builder().identity(identity);
            if authorities.is_empty() {
                bounded_fetch::merge_authorities(builder, config)?
            } else {
                builder.tls_certs_only(authorities)
            }
        }
        None => bounded_fetch::builder_with_authorities(config)?,
    };
    builder
        .build()
        .map_err(|error| vec![format!("mtls: cannot build a TLS client ({})", bounded_fetch::error_chain(&error))])
}
