//! The HTTP target of an endpoint: address, credential and timeouts, validated and parsed once.

use super::pool::{Place, Pool};
use crate::{
    agent::Endpoint,
    transport::{
        headers::{self, Own},
        settings::{Bounds, Credential, Settings},
    },
};
use http::{
    HeaderName, HeaderValue,
    uri::{Authority, PathAndQuery, Scheme},
};
use std::{net::IpAddr, sync::Arc};

/// What calls to one HTTP endpoint need, computed once.
#[derive(Debug)]
pub struct Target {
    pub(super) pool: Arc<Pool>,
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
    pub(super) own: Own,
    pub(super) bounds: Bounds,
}

impl Target {
    /// The timeouts in force for the agent.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// The path and query of the endpoint.
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }
}

/// The parts of an endpoint.
pub(super) struct Parts {
    pub(super) place: Place,
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) path: PathAndQuery,
}

pub(super) fn parts(endpoint: &Endpoint) -> Result<Parts, String> {
    let unusable = |why: &dyn std::fmt::Display| format!("endpoint: cannot be called ({why})");
    match endpoint {
        Endpoint::Http(uri) | Endpoint::WebSocket(uri) => {
            let authority = uri.authority().cloned().ok_or_else(|| unusable(&"it has no host"))?;
            // A WebSocket begins as an HTTP request (RFC 6455 §3).
            let scheme = match uri.scheme_str() {
                Some("https" | "wss") => Scheme::HTTPS,
                Some("http" | "ws") => Scheme::HTTP,
                _ => return Err(unusable(&"it has no scheme")),
            };
            let default = if scheme == Scheme::HTTPS { 443 } else { 80 };
            let port = authority.port_u16().unwrap_or(default);
            let host = authority.host().to_ascii_lowercase().into();
            let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
            Ok(Parts { place: Place::Tcp { host, port }, scheme, authority, path })
        }
        Endpoint::Unix { socket, path } => Ok(Parts {
            place: Place::Unix(socket.clone()),
            scheme: Scheme::HTTP,
            authority: Authority::from_static("localhost"),
            path: path.parse().map_err(|why| unusable(&why))?,
        }),
        Endpoint::Mqtt(_) | Endpoint::Name(_) | Endpoint::Matrix(_) | Endpoint::Local(_) => {
            Err(unusable(&"it is not HTTP"))
        }
    }
}

/// R1: connections beyond this machine are encrypted, unless the configuration explicitly allows plain text.
pub(super) fn check_plaintext(parts: &Parts, settings: &Settings) -> Result<(), Vec<String>> {
    let Place::Tcp { host, .. } = &parts.place else {
        return Ok(());
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let local = &**host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    if parts.scheme == Scheme::HTTPS || local || settings.allow_plaintext == Some(true) {
        return Ok(());
    }
    Err(vec![
        "endpoint: is not encrypted beyond this machine (use https or wss, or set insecure_plaintext: true)".to_owned(),
    ])
}

pub(super) fn credential(from: &Credential) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::try_from(from.header.as_str())
        .map_err(|_| format!("credential.header: '{}' is not a header name", from.header))?;
    if !headers::may_carry_credential(&name) {
        return Err(format!(
            "credential.header: '{name}' is set by the gateway itself (choose another, such as Authorization)"
        ));
    }
    let secret = from.value.load().map_err(|why| format!("credential.value: {why}"))?;
    let default = if name == http::header::AUTHORIZATION { "Bearer" } else { "" };
    let text = match from.scheme.as_deref().unwrap_or(default) {
        "" => secret.expose().to_owned(),
        scheme => format!("{scheme} {}", secret.expose()),
    };
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| "credential.value: contains characters that a header cannot contain".to_owned())?;
    value.set_sensitive(true);
    Ok((name, value))
}
