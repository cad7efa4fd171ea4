//! Calls to one HTTP service that the operator named, with JSON and a bearer token: sized, timed, no redirects.
//! What an answer means is the asker's; no request is repeated here.

use super::{
    Bounds, Config, FetchError, client,
    session::{bearer_value, retry_after},
};
use crate::unit::{FilePath, Secret};
use http::{HeaderValue, Method, header};
use reqwest::Url;
use std::time::Duration;

/// One service, with the credential that is shown to it.
#[derive(Debug)]
pub struct Api {
    client: reqwest::Client,
    base: Url,
    token: HeaderValue,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The method.
    pub method: Method,
    /// The path below the service's address, unescaped segment by segment.
    pub path: &'a [&'a str],
    /// The query, unescaped.
    pub query: &'a [(&'a str, &'a str)],
    /// A JSON body.
    pub body: Option<&'a [u8]>,
}

/// Whatever answered: always complete, never longer than asked.
#[derive(Debug)]
pub struct ApiReply {
    /// The HTTP status.
    pub status: u16,
    /// How long the service wants to be left alone.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Vec<u8>,
}

impl Api {
    /// The service at `base`: https, or http to this machine. With `ca`, the authorities in that file are believed
    /// besides the system's.
    ///
    /// # Errors
    /// Everything that cannot be used.
    pub fn build(base: &str, ca: Option<&FilePath>, token: &Secret) -> Result<Self, Vec<String>> {
        super::install_crypto();
        let base = client::vetted(base, false).map_err(|why| vec![format!("'{base}' {why}")])?;
        if base.query().is_some() || base.fragment().is_some() {
            return Err(vec!["the address must not hold a query or fragment".to_owned()]);
        }
        let token = bearer_value(token).map_err(|why| vec![format!("the token {why}")])?;
        let config = Config { ca: ca.cloned(), ..Config::default() };
        let built = client::with_authorities(&config)?.build();
        let client = built.map_err(|why| vec![format!("no TLS client can be made ({})", client::chain(&why))])?;
        Ok(Self { client, base, token })
    }

    /// Where it is, as `host` or `host:port`.
    pub fn authority(&self) -> &str {
        self.base.authority()
    }

    /// Sends `ask` and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// No complete answer came in bounds.
    pub async fn send(&self, ask: Ask<'_>, bounds: Bounds) -> Result<ApiReply, FetchError> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(ask.path);
        }
        let told = url.to_string();
        if !ask.query.is_empty() {
            url.query_pairs_mut().extend_pairs(ask.query);
        }
        let mut request = self.client.request(ask.method, url).header(header::AUTHORIZATION, self.token.clone());
        request = request.header(header::ACCEPT, "application/json");
        if let Some(body) = ask.body {
            request = request.header(header::CONTENT_TYPE, "application/json").body(body.to_vec());
        }
        let (head, body) = client::read(&told, request, bounds).await?;
        Ok(ApiReply { status: head.status, retry_after: retry_after(&head.headers), body })
    }
}
