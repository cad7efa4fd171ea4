//! What an operator asks to be explained: a request, and as whom it is made.

use crate::{
    agent::AuthenticationMethod,
    auth::Authorizer,
    fault::{Fault, FaultCode, Result},
    gateway::admission::CompleteRequest,
    http_server::request_validation::{HeadLimits, validate_http1_head},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header, request};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};

/// The body of `POST /explain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// `key:ID`, whose secret counts as presented, or `anonymous`. Without it, the credential is in the header fields.
    #[serde(rename = "as", default)]
    assumed_caller: Option<String>,
    method: String,
    /// Path and query.
    path: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: String,
    /// The address of the client.
    #[serde(default)]
    address: Option<IpAddr>,
    /// Whether the client uses TLS.
    #[serde(default)]
    tls: bool,
}

/// A request to be explained, in the form in which the gateway handles requests.
pub(super) struct PreparedRequest {
    pub(super) request: CompleteRequest,
    /// The head as it would arrive, which is validated first.
    pub(super) raw_head: Vec<u8>,
    pub(super) address: IpAddr,
    pub(super) is_secure: bool,
    pub(super) assumed_key: Option<String>,
}

impl ExplainRequest {
    /// Parses the body of `POST /explain`.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub fn parse(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body).map_err(|why| {
            // The message of serde_json is not used: it may quote a value, which may be a secret.
            let (line, column) = (why.line(), why.column());
            invalid(format!(
                "The body is not a request to explain (line {line}, column {column}: an object with method, path, as, headers, body, address, tls)"
            ))
        })
    }

    /// Builds the request.
    ///
    /// # Errors
    /// `InvalidInput` for a request that cannot be sent over HTTP at all, or for a caller that cannot be assumed.
    pub(super) fn prepare(self, auth: &Authorizer) -> Result<PreparedRequest> {
        let method: Method = self.method.parse().map_err(|_| invalid("method: is not a method"))?;
        let uri: Uri = self.path.parse().map_err(|_| invalid("path: is not a path"))?;
        if !self.path.starts_with('/') {
            return Err(invalid("path: must begin with '/'"));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let header = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
            // The message does not repeat the text, which may contain a secret.
            let (name, value) = header.ok_or_else(|| invalid("headers: has a field that is not valid in HTTP"))?;
            headers.append(name, value);
        }
        let assumed_key = self.assumed_key(auth, &headers)?;
        if !headers.contains_key(header::HOST) {
            headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        }
        if !self.body.is_empty() && !headers.contains_key(header::CONTENT_LENGTH) {
            headers.insert(header::CONTENT_LENGTH, self.body.len().into());
        }
        let raw_head = raw_head(&method, &self.path, &headers);
        let (mut head, ()) = http::Request::new(()).into_parts();
        (head.method, head.uri, head.version, head.headers) = (method, uri, Version::HTTP_11, headers);
        Ok(PreparedRequest {
            request: CompleteRequest { head, body: Some(Bytes::from(self.body)) },
            raw_head,
            address: self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            is_secure: self.tls,
            assumed_key,
        })
    }

    fn assumed_key(&self, auth: &Authorizer, headers: &HeaderMap) -> Result<Option<String>> {
        let Some(caller) = &self.assumed_caller else { return Ok(None) };
        if auth.credential_headers().iter().any(|name| headers.contains_key(name)) {
            return Err(invalid(
                "as: is not allowed beside a header that carries a credential (leave one of them out)",
            ));
        }
        if caller == "anonymous" {
            return Ok(None);
        }
        if !caller.starts_with(AuthenticationMethod::ApiKey.caller_id_prefix()) {
            return Err(invalid(
                "as: only key:ID and anonymous can be assumed (of other callers, send the credential in a header)",
            ));
        }
        if !auth.has_api_key(caller) {
            return Err(invalid("as: there is no API key with this id (gatepost key list prints the keys)"));
        }
        Ok(Some(caller.clone()))
    }
}

impl PreparedRequest {
    /// Validates the head as the listeners do.
    ///
    /// # Errors
    /// The fault with which the listeners refuse it.
    pub(super) fn validate_head(&self, limits: HeadLimits) -> Result<()> {
        validate_http1_head(&self.raw_head, limits)
    }

    /// Returns the head.
    pub(super) fn head(&self) -> &request::Parts {
        &self.request.head
    }
}

fn raw_head(method: &Method, path: &str, headers: &HeaderMap) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    for (name, value) in headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(FaultCode::InvalidInput, message)
}
