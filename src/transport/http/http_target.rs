//! The HTTP target of an endpoint: address, credential and timeouts, validated and parsed once.

use super::connection_pool::{ConnectAddress, ConnectionPool};
use crate::{
    agent::{AddressSyntax, AgentEndpoint},
    net::AddressPolicy,
    transport::{
        config::{TransportConfig, UpstreamCredential, UpstreamTimeouts},
        headers::{self, GatewayHeaders},
    },
    values::is_loopback_host,
};
use arc_swap::ArcSwap;
use http::{
    HeaderName, HeaderValue,
    uri::{Authority, PathAndQuery, Scheme},
};
use std::sync::Arc;

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
    pub(super) timeouts: UpstreamTimeouts,
}

impl HttpTarget {
    /// The timeouts in force for the agent.
    pub fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    /// The address policy for a new connection.
    pub(super) fn address_policy(&self) -> Arc<AddressPolicy> {
        let policy = self.policy.load_full();
        if self.pool.key.public_addresses_only { Arc::new(policy.without_private_networks()) } else { policy }
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
