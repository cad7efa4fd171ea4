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
        let assumes_caller = self.assumed_caller.is_some();
        let prepared = self.build()?;
        let headers = &prepared.head().headers;
        if assumes_caller && auth.credential_headers().iter().any(|name| headers.contains_key(name)) {
            return Err(invalid(
                "as: is not allowed beside a header that carries a credential (leave one of them out)",
            ));
        }
        if let Some(key) = &prepared.assumed_key {
            check_assumed_key(key, auth)?;
        }
        Ok(prepared)
    }

    /// Builds the request, without a look at the keys that exist.
    fn build(self) -> Result<PreparedRequest> {
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
            assumed_key: self.assumed_caller.filter(|caller| caller != "anonymous").map(without_key_mark),
        })
    }
}

/// Removes the `gp_` with which keys begin, so that a prefix may be written with it.
fn without_key_mark(id: String) -> String {
    let key = AuthenticationMethod::ApiKey.caller_id_prefix();
    match id.strip_prefix(key).and_then(|rest| rest.strip_prefix("gp_")) {
        Some(prefix) if !prefix.contains('_') => format!("{key}{prefix}"),
        _ => id,
    }
}

/// Checks that a key may be assumed.
fn check_assumed_key(key: &str, auth: &Authorizer) -> Result<()> {
    if !key.starts_with(AuthenticationMethod::ApiKey.caller_id_prefix()) {
        return Err(invalid(
            "as: only key:ID and anonymous can be assumed (send the credential of another caller in a header; gatepost explain takes token:@FILE)",
        ));
    }
    if !auth.has_api_key(key) {
        return Err(invalid(
            "as: there is no API key with this id: the caller's name or the key's prefix, never the whole key (gatepost key list prints both)",
        ));
    }
    Ok(())
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

/// Entry points for fuzzing: requests to explain.
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz {
    use super::{ExplainRequest, HeadLimits};
    use crate::http_server::request_validation::Http1HeadValidator;

    const LIMITS: HeadLimits = HeadLimits { max_bytes: 64 << 10, max_fields: 100 };

    /// Reads a request to explain. No text in it ends the head early or adds a field to it: the head is the one that is
    /// described, or is refused. A message never repeats a header field, which may have a credential.
    pub fn check_explain_request(data: &[u8]) {
        let Ok(request) = ExplainRequest::parse(data) else { return };
        let secrets: Vec<String> =
            request.headers.iter().map(|(_, value)| value.clone()).filter(|value| value.len() > 12).collect();
        match request.build() {
            Err(fault) => {
                let message = fault.log_message();
                assert!(secrets.iter().all(|value| !message.contains(value)), "a message repeats a header field");
            }
            Ok(prepared) => {
                let end = Http1HeadValidator::new(LIMITS).feed(&prepared.raw_head);
                assert!(
                    end.is_err() || end.is_ok_and(|end| end == Some(prepared.raw_head.len())),
                    "the head ends early"
                );
                let lines = prepared.raw_head.split(|byte| *byte == b'\n').count();
                assert_eq!(lines, prepared.head().headers.len() + 3, "a text adds a line to the head");
            }
        }
    }
}
