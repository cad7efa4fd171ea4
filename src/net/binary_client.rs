//! Client that posts binary messages to one URL that the operator configured: limits on size and time, no redirects and
//! no retries. It reads trailers, in which gRPC has its status. Callers interpret the responses.

use super::{
    FetchError, NetworkConfig,
    bounded_fetch::{add_authorities, base_builder, error_chain, parse_allowed_url, tls_config},
    source_client::retry_after,
};
use crate::values::{ByteSize, ConfigPath};
use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Body as _;
use reqwest::Url;
use rustls::RootCertStore;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    time::Duration,
};

/// How the receiver is reached.
#[derive(Clone, Copy, Debug)]
pub struct BinaryClientSettings<'a> {
    /// URL: https, or http where the network settings allow it.
    pub url: &'a str,
    /// The path of a URL without one.
    pub default_path: &'a str,
    /// Certificate authorities in PEM to trust besides the others.
    pub ca: Option<&'a ConfigPath>,
    /// Whether the receiver speaks HTTP/2 only, also without TLS.
    pub http2_only: bool,
}

/// A client of one URL.
#[derive(Debug)]
pub struct BinaryClient {
    client: reqwest::Client,
    url: Url,
}

/// Complete response within the limits.
#[derive(Debug)]
pub struct BinaryReply {
    /// HTTP status.
    pub status: u16,
    /// The `Retry-After` of the response.
    pub retry_after: Option<Duration>,
    /// Header fields.
    pub headers: HeaderMap,
    /// Body.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: HeaderMap,
}

impl BinaryClient {
    /// Creates a client that trusts the system's authorities, those of `network.ca` and those of the settings.
    ///
    /// # Errors
    /// Every unusable value, as `endpoint: …` or `ca_file: …`.
    pub fn build(settings: &BinaryClientSettings<'_>, network: &NetworkConfig) -> Result<Self, Vec<String>> {
        super::install_crypto_provider();
        let mut url = parse_allowed_url(settings.url, network.allow_plaintext)
            .map_err(|reason| vec![format!("endpoint: {reason}")])?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(vec!["endpoint: must not contain a query or fragment".to_owned()]);
        }
        if url.path() == "/" {
            url.set_path(settings.default_path);
        }
        let mut further = RootCertStore::empty();
        for (field, path) in [("ca", network.ca.as_ref()), ("ca_file", settings.ca)] {
            path.map_or(Ok(()), |path| add_authorities(&mut further, field, path)).map_err(|problem| vec![problem])?;
        }
        let builder = base_builder();
        let builder = if settings.http2_only {
            builder.http2_prior_knowledge().tls_backend_preconfigured(tls_config(further, &[b"h2"]))
        } else {
            builder.tls_backend_preconfigured(tls_config(further, &[b"h2", b"http/1.1"]))
        };
        let client = builder
            .build()
            .map_err(|error| vec![format!("endpoint: cannot build a TLS client ({})", error_chain(&error))])?;
        Ok(Self { client, url })
    }

    /// Posts a message and reads the whole response, regardless of its status.
    ///
    /// # Errors
    /// There was no complete response within the limits.
    pub async fn post(
        &self,
        headers: &HeaderMap,
        body: Bytes,
        time: Duration,
        max_bytes: usize,
    ) -> Result<BinaryReply, FetchError> {
        let url = || self.url.to_string();
        let posted = async {
            let failed =
                |error: reqwest::Error| FetchError::Failed { url: url(), reason: error_chain(&error.without_url()) };
            let response =
                self.client.post(self.url.clone()).headers(headers.clone()).body(body).send().await.map_err(failed)?;
            let (head, body) = http::Response::<reqwest::Body>::from(response).into_parts();
            let (mut bytes, mut trailers) = (Vec::new(), HeaderMap::new());
            let mut body = pin!(body);
            while let Some(frame) = next_frame(body.as_mut()).await {
                match frame.map_err(failed)?.into_data() {
                    Ok(data) if bytes.len() + data.len() > max_bytes => {
                        return Err(FetchError::TooLarge {
                            url: url(),
                            limit: ByteSize::from_kib(max_bytes as u64 >> 10),
                        });
                    }
                    Ok(data) => bytes.extend_from_slice(&data),
                    Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
                }
            }
            Ok(BinaryReply {
                status: head.status.as_u16(),
                retry_after: retry_after(&head.headers),
                headers: head.headers,
                body: bytes,
                trailers,
            })
        };
        let late = |_| FetchError::Failed { url: url(), reason: format!("takes longer than {time:?}") };
        tokio::time::timeout(time, posted).await.map_err(late)?
    }
}

async fn next_frame(mut body: Pin<&mut reqwest::Body>) -> Option<Result<hyper::body::Frame<Bytes>, reqwest::Error>> {
    poll_fn(|context| body.as_mut().poll_frame(context)).await
}
