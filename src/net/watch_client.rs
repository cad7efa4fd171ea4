//! Client for an API that the operator configured and that is watched: bounded JSON responses, and streams of lines
//! that stay open. The files of its credential and authorities are read again for each request, because others replace
//! them while the gateway runs.

use super::{
    FetchError, FetchLimits, NetworkConfig, SourceMtls,
    api_client::ApiReply,
    bounded_fetch::{self, error_chain},
    source_client::{bearer_value, parse_authorities, retry_after},
};
use crate::values::{ByteSize, ConfigPath, SecretRef, register_token, sha256};
use bytes::{Bytes, BytesMut};
use http::header;
use parking_lot::Mutex;
use reqwest::Url;
use std::time::Duration;

/// How often an idle connection is probed, and how long the server has to answer.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How the API is reached.
#[derive(Clone, Debug)]
pub struct WatchClientSettings {
    /// Base URL: https, or http where the network settings allow it.
    pub url: String,
    /// Certificate authorities in PEM to trust instead of the system's.
    pub ca: Option<ConfigPath>,
    /// Bearer token.
    pub token: Option<SecretRef>,
    /// Client certificate.
    pub mtls: Option<SourceMtls>,
    /// Limits of a complete response, and of the head of a stream.
    pub limits: FetchLimits,
    /// Maximum size of one line of a stream.
    pub max_line_size: ByteSize,
}

/// An API that is watched.
#[derive(Debug)]
pub struct WatchClient {
    settings: WatchClientSettings,
    base: Url,
    /// The client, and the digest of the files that it was built from.
    built: Mutex<Option<([u8; 32], reqwest::Client)>>,
}

/// The response to a request for a stream.
#[derive(Debug)]
pub enum WatchReply {
    /// The stream, where the status is 200.
    Lines(LineStream),
    /// The complete response, where it is another.
    Refused(ApiReply),
}

/// Lines that the server sends while it keeps the response open.
#[derive(Debug)]
pub struct LineStream {
    response: reqwest::Response,
    buffer: BytesMut,
    /// How much of the buffer contains no line break.
    scanned: usize,
    max_line_size: ByteSize,
}

impl WatchClient {
    /// Creates a client. No file is read and no connection opened.
    ///
    /// # Errors
    /// Why the URL cannot be used.
    pub fn new(settings: WatchClientSettings, network: &NetworkConfig) -> Result<Self, String> {
        let base = bounded_fetch::parse_base_url(&settings.url, network.allow_plaintext)?;
        Ok(Self { settings, base, built: Mutex::new(None) })
    }

    /// Reads a complete response, regardless of its status. `path` are unescaped segments below the base URL.
    ///
    /// # Errors
    /// A file cannot be used, or there was no complete response within the limits.
    pub async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<ApiReply, FetchError> {
        let request = self.build_request(path, query)?;
        let limits = self.settings.limits;
        let (head, body) = bounded_fetch::send_and_read(self.base.as_str(), request, limits).await?;
        Ok(ApiReply { status: head.status, retry_after: retry_after(&head.headers), body })
    }

    /// Opens a stream of lines.
    ///
    /// # Errors
    /// A file cannot be used, or there was no response head within the limits.
    pub async fn watch(&self, path: &[&str], query: &[(&str, &str)]) -> Result<WatchReply, FetchError> {
        let request = self.build_request(path, query)?;
        let time = self.settings.limits.time;
        let sent = async { request.send().await.map_err(|error| self.failed(error_chain(&error.without_url()))) };
        let response = bounded_fetch::within(time, self.base.as_str(), sent).await?;
        if response.status() == http::StatusCode::OK {
            let max_line_size = self.settings.max_line_size;
            return Ok(WatchReply::Lines(LineStream { response, buffer: BytesMut::new(), scanned: 0, max_line_size }));
        }
        let (status, wait) = (response.status().as_u16(), retry_after(response.headers()));
        // The status says what is wrong; a body that is slow, large or broken adds nothing.
        let body = tokio::time::timeout(time.get(), read_prefix(response)).await.unwrap_or_default();
        Ok(WatchReply::Refused(ApiReply { status, retry_after: wait, body }))
    }

    fn build_request(&self, path: &[&str], query: &[(&str, &str)]) -> Result<reqwest::RequestBuilder, FetchError> {
        let url = bounded_fetch::resource_url(&self.base, path, query);
        let client = self.current_client().map_err(|reason| self.failed(reason))?;
        // API servers since 1.37 compress streams one event at a time where a client lets them.
        let mut request =
            client.get(url).header(header::ACCEPT, "application/json").header(header::ACCEPT_ENCODING, "identity");
        if let Some(token) = &self.settings.token {
            let token = token.load_name().map_err(|reason| self.failed(format!("token: {reason}")))?;
            register_token(token.expose());
            let value = bearer_value(&token).map_err(|reason| self.failed(format!("token: {reason}")))?;
            request = request.header(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// Returns the client for the files as they are now.
    fn current_client(&self) -> Result<reqwest::Client, String> {
        let read = |path: &ConfigPath| {
            std::fs::read(path).map_err(|error| format!("{} cannot be read ({error})", path.display()))
        };
        let authorities = self.settings.ca.as_ref().map(read).transpose()?.unwrap_or_default();
        let mut files = sha256(&authorities).to_vec();
        if let Some(mtls) = &self.settings.mtls {
            for path in [Some(&mtls.certificate), Some(&mtls.key), mtls.ca.as_ref()].into_iter().flatten() {
                files.extend(sha256(&read(path)?));
            }
        }
        let digest = sha256(&files);
        let mut built = self.built.lock();
        if let Some((_, client)) = built.as_ref().filter(|(built_from, _)| *built_from == digest) {
            return Ok(client.clone());
        }
        let client = self.build_client(&authorities)?;
        *built = Some((digest, client.clone()));
        Ok(client)
    }

    fn build_client(&self, authorities: &[u8]) -> Result<reqwest::Client, String> {
        super::install_crypto_provider();
        // The authorities of this API are its own.
        let mut builder = bounded_fetch::base_builder()
            .connect_timeout(self.settings.limits.time.get())
            .tcp_keepalive(KEEP_ALIVE_INTERVAL)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .http2_keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .http2_keep_alive_while_idle(true);
        let mut trusted = Vec::new();
        if let Some(path) = &self.settings.ca {
            trusted = parse_authorities(path, authorities)?;
        }
        if let Some(mtls) = &self.settings.mtls {
            let (identity, own) = mtls.load().map_err(|reasons| reasons.join("; "))?;
            builder = builder.identity(identity);
            trusted.extend(own);
        }
        if !trusted.is_empty() {
            builder = builder.tls_certs_only(trusted);
        }
        builder.build().map_err(|error| format!("cannot build a TLS client ({})", error_chain(&error)))
    }

    fn failed(&self, reason: String) -> FetchError {
        FetchError::Failed { url: self.base.to_string(), reason }
    }
}

/// Maximum length of the body of a refusal that is read.
const MAX_REFUSAL_LENGTH: usize = 4 << 10;

async fn read_prefix(mut response: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < MAX_REFUSAL_LENGTH
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(chunk.get(..MAX_REFUSAL_LENGTH).unwrap_or(&chunk));
    }
    body.truncate(MAX_REFUSAL_LENGTH);
    body
}

impl LineStream {
    /// Returns the next line that is not empty, without its line break; `None` at the end of the stream. A last line
    /// without a line break is incomplete and dropped. May be cancelled.
    ///
    /// # Errors
    /// The connection failed, or the line is longer than the limit.
    pub async fn next_line(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let end = memchr::memchr(b'\n', self.buffer.get(self.scanned..).unwrap_or_default());
            if let Some(end) = end {
                let line = self.buffer.split_to(self.scanned + end + 1).freeze();
                self.scanned = 0;
                let line = line.slice(..line.len() - 1);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Ok(Some(line));
            }
            self.scanned = self.buffer.len();
            if self.buffer.len() > self.max_line_size.get() {
                return Err(FetchError::TooLarge { url: self.server(), limit: self.max_line_size });
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => {
                    return Err(FetchError::Failed { url: self.server(), reason: error_chain(&error.without_url()) });
                }
            }
        }
    }

    /// Returns the server, for errors.
    fn server(&self) -> String {
        self.response.url().origin().ascii_serialization()
    }
}
