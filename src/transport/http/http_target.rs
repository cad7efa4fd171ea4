//! The HTTP target of an endpoint: address, credential and timeouts, validated and parsed once; the request as it is
//! sent to the target, and the validation of response heads.

use super::{
    connection_pool::{ConnectAddress, ConnectionPool},
    error_mapping,
};
use crate::{
    agent::{AddressSyntax, AgentEndpoint},
    fault::{Fault, FaultCode},
    net::{AddressPolicy, ResolveError},
    trace::SpanScope,
    transport::{
        attempt_span::TracedEndpoint,
        config::{TransportConfig, UpstreamCredential},
        headers::{self, GatewayHeaders},
        timeouts::UpstreamTimeouts,
        upstream_body::HyperBody,
        upstream_transport::UpstreamCall,
    },
    values::{is_loopback_host, parse_ip_literal},
};
use arc_swap::ArcSwap;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, Version, header, request,
    uri::{Authority, PathAndQuery, Scheme},
};
use hyper::body::Incoming;
use std::{net::SocketAddr, sync::Arc};
use tokio::time::Instant;

/// The target of calls to one HTTP endpoint, computed once.
#[derive(Debug)]
pub struct HttpTarget {
    pub(super) pool: Arc<ConnectionPool>,
    /// The address policy in force, which the client replaces.
    pub(super) policy: Arc<ArcSwap<AddressPolicy>>,
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
    pub(super) gateway_headers: GatewayHeaders,
    /// The timeouts in force for the agent.
    pub(in crate::transport) timeouts: UpstreamTimeouts,
}

impl HttpTarget {
    /// The address policy for a new connection.
    pub(super) fn address_policy(&self) -> Arc<AddressPolicy> {
        let policy = self.policy.load_full();
        if self.pool.key.public_addresses_only { Arc::new(policy.without_private_networks()) } else { policy }
    }

    /// Returns the fault of every call, if the endpoint is a literal address or a socket that may not be reached.
    pub(in crate::transport) fn refusal_of_literal_address(&self) -> Option<Fault> {
        let policy = self.address_policy();
        let denied = match &self.pool.key.address {
            ConnectAddress::Tcp { host, port } => {
                let address = SocketAddr::new(parse_ip_literal(host)?, *port);
                (!policy.permits_address(address)).then(|| ResolveError::Denied { host: host.to_string(), address })
            }
            ConnectAddress::Unix(path) => (!policy.permits_unix_socket(path))
                .then(|| ResolveError::SocketDenied { path: path.display().to_string() }),
        };
        denied.map(|why| error_mapping::unresolvable_fault(&why))
    }

    /// Whether requests carry a credential of the gateway: a header, or a client certificate.
    pub(super) fn has_credential(&self) -> bool {
        let has_certificate = || self.pool.key.tls.as_ref().is_some_and(|tls| tls.certificate.is_some());
        self.gateway_headers.credential.is_some() || has_certificate()
    }

    /// Returns what the span of an attempt says of the endpoint.
    pub(in crate::transport) fn traced_endpoint(&self) -> TracedEndpoint {
        let (host, port) = match &self.pool.key.address {
            ConnectAddress::Tcp { host, port } => (host.to_string(), Some(*port)),
            ConnectAddress::Unix(socket) => (socket.display().to_string(), None),
        };
        TracedEndpoint { transport: "http", host, port }
    }

    /// The path and query of the endpoint.
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }
}

/// The parts of an endpoint.
pub(super) struct EndpointParts {
    pub(super) address: ConnectAddress,
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
}

pub(super) fn split_endpoint(endpoint: &AgentEndpoint) -> Result<EndpointParts, String> {
    let unusable = |reason: &dyn std::fmt::Display| format!("endpoint: cannot be called ({reason})");
    match endpoint {
        AgentEndpoint::Url(url) => {
            let uri = url.uri();
            let authority = uri.authority().cloned().ok_or_else(|| unusable(&"it has no host"))?;
            // A WebSocket begins as an HTTP request (RFC 6455 §3).
            let (scheme, default_port) = match url.scheme().syntax() {
                AddressSyntax::HttpUrl | AddressSyntax::WebSocketUrl => {
                    if url.scheme().is_encrypted_or_local() {
                        (Scheme::HTTPS, 443)
                    } else {
                        (Scheme::HTTP, 80)
                    }
                }
                AddressSyntax::TopicUrl
                | AddressSyntax::UnixSocket
                | AddressSyntax::RuntimeName
                | AddressSyntax::MatrixRoom
                | AddressSyntax::AgentUri => return Err(unusable(&"it is not HTTP")),
            };
            let port = authority.port_u16().unwrap_or(default_port);
            let host = authority.host().to_ascii_lowercase().into();
            let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
            Ok(EndpointParts { address: ConnectAddress::Tcp { host, port }, scheme, authority, path })
        }
        AgentEndpoint::Unix { socket, path } => Ok(EndpointParts {
            address: ConnectAddress::Unix(socket.clone()),
            scheme: Scheme::HTTP,
            authority: Authority::from_static("localhost"),
            path: path.parse().map_err(|error| unusable(&error))?,
        }),
        AgentEndpoint::AgentUri(_) | AgentEndpoint::Matrix(_) | AgentEndpoint::Local(_) => {
            Err(unusable(&"it is not HTTP"))
        }
    }
}

/// R1: connections beyond this machine are encrypted, unless the configuration explicitly allows plain text.
pub(super) fn check_plaintext(parts: &EndpointParts, settings: &TransportConfig) -> Result<(), Vec<String>> {
    let ConnectAddress::Tcp { host, .. } = &parts.address else {
        return Ok(());
    };
    if parts.scheme == Scheme::HTTPS || is_loopback_host(host) || settings.allow_plaintext == Some(true) {
        return Ok(());
    }
    Err(vec![
        "endpoint: is not encrypted beyond this machine (use https or wss, or set allow_plaintext: true)".to_owned(),
    ])
}

pub(super) fn load_credential(credential: &UpstreamCredential) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::try_from(credential.header.as_str())
        .map_err(|_| format!("credential.header: '{}' is not a header name", credential.header))?;
    if !headers::may_carry_credential(&name) {
        return Err(format!(
            "credential.header: '{name}' is set by the gateway itself (choose another, such as Authorization)"
        ));
    }
    let secret = credential.value.load().map_err(|error| format!("credential.value: {error}"))?;
    let default_scheme = if name == http::header::AUTHORIZATION { "Bearer" } else { "" };
    let text = match credential.scheme.as_deref().unwrap_or(default_scheme) {
        "" => secret.expose().to_owned(),
        scheme => format!("{scheme} {}", secret.expose()),
    };
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| "credential.value: contains characters that a header cannot contain".to_owned())?;
    value.set_sensitive(true);
    Ok((name, value))
}

pub(super) type HyperRequest = http::Request<HyperBody>;

/// The parts of a call that all its attempts share.
pub(super) struct HttpExchange<'a> {
    pub(super) target: &'a Arc<HttpTarget>,
    pub(super) method: Method,
    pub(super) path: Option<http::uri::PathAndQuery>,
    pub(super) query: Option<&'a str>,
    pub(super) headers: &'a HeaderMap,
    pub(super) header_mutations: headers::HeaderMutations<'a>,
    pub(super) deadline: Instant,
}

/// When an attempt is sent, and the span whose context the agent receives.
#[derive(Clone, Copy)]
pub(super) struct AttemptStart<'a> {
    pub(super) now: Instant,
    pub(super) trace: Option<&'a SpanScope>,
}

impl HttpExchange<'_> {
    /// Whether the agent may receive the request twice: with idempotent methods (RFC 9110 §9.2.2), or where the
    /// caller's idempotency key lets the agent recognise the repetition.
    pub(super) fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key("idempotency-key")
    }

    /// Builds the request of one attempt, which is sent now, with the remaining time of the call.
    pub(super) fn build_request(
        &self,
        body: HyperBody,
        version: Version,
        attempt: AttemptStart<'_>,
    ) -> Result<HyperRequest, Fault> {
        let AttemptStart { now, trace } = attempt;
        let remaining = self.deadline.saturating_duration_since(now);
        let mut headers = headers::build_request_headers(
            self.headers,
            &self.target.gateway_headers,
            &self.header_mutations,
            remaining,
        );
        if let Some(trace) = trace {
            trace.propagate(&mut headers);
        }
        let path = self.path.as_ref().unwrap_or(&self.target.path);
        let mut parts = http::uri::Parts::default();
        parts.path_and_query = Some(match self.query {
            None => path.clone(),
            Some(query) => append_query(path, query)?,
        });
        if version == Version::HTTP_2 {
            // RFC 9113 §8.3.1: the authority is a pseudo-header there.
            headers.remove(header::HOST);
            (parts.scheme, parts.authority) = (Some(self.target.scheme.clone()), Some(self.target.authority.clone()));
        }
        let uri = Uri::from_parts(parts)
            .map_err(|error| error_mapping::invalid_response_fault(format_args!("the path {path}: {error}")))?;
        let mut request = HyperRequest::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Returns the head of the request that a call would send over HTTP/1.1.
///
/// # Errors
/// As [`HttpExchange::build_request`].
pub(in crate::transport) fn preview_request(
    target: &Arc<HttpTarget>,
    call: UpstreamCall<'_>,
    deadline: Instant,
) -> Result<request::Parts, Fault> {
    let UpstreamCall { method, path, query, headers, header_mutations, .. } = call;
    let exchange = HttpExchange { target, method, path, query, headers, header_mutations, deadline };
    let attempt = AttemptStart { now: Instant::now(), trace: None };
    exchange.build_request(HyperBody::Whole(None), Version::HTTP_11, attempt).map(|request| request.into_parts().0)
}

/// Returns the path with its own query, if it has one, and then the query of the call.
fn append_query(path: &PathAndQuery, query: &str) -> Result<PathAndQuery, Fault> {
    let separator = match path.query() {
        None => "?",
        Some("") => "",
        Some(_) => "&",
    };
    PathAndQuery::try_from(format!("{path}{separator}{query}"))
        .map_err(|error| Fault::new(FaultCode::InvalidInput, "The query is not valid in a URL").with_detail(error))
}

/// Refuses heads whose framing hyper accepts although it is ambiguous (RFC 9112 §6.3).
pub(super) fn validate_response_head(response: &Response<Incoming>) -> Result<(), Fault> {
    let (status, headers) = (response.status(), response.headers());
    if status == StatusCode::SWITCHING_PROTOCOLS || !(200..600).contains(&status.as_u16()) {
        return Err(error_mapping::invalid_response_fault(format_args!("unexpected status {status}")));
    }
    if response.version() > Version::HTTP_11 {
        return Ok(());
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).into_iter();
    let Some(coding) = codings.next() else {
        return Ok(());
    };
    if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") || codings.next().is_some() {
        return Err(error_mapping::invalid_response_fault("a transfer coding other than chunked"));
    }
    if headers.contains_key(header::CONTENT_LENGTH) {
        return Err(error_mapping::invalid_response_fault("both Content-Length and Transfer-Encoding"));
    }
    Ok(())
}
