//! Client for an HTTP API that the operator configured: JSON, a bearer token, limits on size and time, no redirects and
//! no retries. Callers interpret the responses.

use super::{
    FetchError, FetchLimits, NetworkConfig, bounded_fetch,
    source_client::{bearer_value, retry_after},
};
use crate::values::{ConfigPath, Secret, shown_url};
use http::{HeaderValue, Method, header};
use reqwest::Url;
use std::time::Duration;

/// An HTTP API, with the credential for it.
#[derive(Debug)]
pub struct ApiClient {
    client: reqwest::Client,
    base: Url,
    token: HeaderValue,
}

/// A request to the API.
#[derive(Clone, Debug)]
pub struct ApiRequest<'a> {
    /// Method.
    pub method: Method,
    /// Path segments below the base URL, unescaped.
    pub path: &'a [&'a str],
    /// Query parameters, unescaped.
    pub query: &'a [(&'a str, &'a str)],
    /// JSON body.
    pub body: Option<&'a [u8]>,
}

/// Complete response within the limits.
#[derive(Debug)]
pub struct ApiReply {
    /// HTTP status.
    pub status: u16,
    /// The `Retry-After` of the response.
    pub retry_after: Option<Duration>,
    /// Body.
    pub body: Vec<u8>,
}

impl ApiClient {
    /// Creates a client for the API at `base`: https, or http to this machine. The authorities in the file `ca` are
    /// trusted besides the system's.
    ///
    /// # Errors
    /// Returns every unusable value.
    pub fn build(base: &str, ca: Option<&ConfigPath>, token: &Secret) -> Result<Self, Vec<String>> {
        super::install_crypto_provider();
        let base = bounded_fetch::parse_base_url(base, false)
            .map_err(|reason| vec![format!("'{}' {reason}", shown_url(base))])?;
        let token = bearer_value(token).map_err(|reason| vec![format!("the token {reason}")])?;
        let config = NetworkConfig { ca: ca.cloned(), ..NetworkConfig::default() };
        let client = bounded_fetch::builder_with_authorities(&config)?.build();
        let client = client
            .map_err(|error| vec![format!("cannot build a TLS client ({})", bounded_fetch::error_chain(&error))])?;
        Ok(Self { client, base, token })
    }

    /// Returns `host` or `host:port` of the base URL.
    pub fn authority(&self) -> &str {
        self.base.authority()
    }

    /// Sends `request` and reads the whole response, regardless of its status.
    ///
    /// # Errors
    /// There was no complete response within the limits.
    pub async fn send(&self, request: ApiRequest<'_>, limits: FetchLimits) -> Result<ApiReply, FetchError> {
        let url = bounded_fetch::resource_url(&self.base, request.path, request.query);
        // Queries may be about persons, and errors are logged.
        let logged_url = bounded_fetch::resource_url(&self.base, request.path, &[]).to_string();
        let mut builder = self.client.request(request.method, url).header(header::AUTHORIZATION, self.token.clone());
        builder = builder.header(header::ACCEPT, "application/json");
        if let Some(body) = request.body {
            builder = builder.header(header::CONTENT_TYPE, "application/json").body(body.to_vec());
        }
        let (head, body) = bounded_fetch::send_and_read(&logged_url, builder, limits).await?;
        Ok(ApiReply { status: head.status, retry_after: retry_after(&head.headers), body })
    }
}
