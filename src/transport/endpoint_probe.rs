//! What a probe of an endpoint finds: whether it can be reached, and what its certificate says. A probe goes the way of a
//! call, with the same addresses, authorities and credential, and asks the agent for no work.

use crate::{fault::Fault, values::CertificateValidity};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, uri::PathAndQuery};
use std::{net::SocketAddr, time::Duration};

/// An endpoint that accepts connections.
#[derive(Clone, Debug, Default)]
pub struct ReachedEndpoint {
    /// When the certificate of the endpoint is valid, over TLS.
    pub certificate: Option<CertificateValidity>,
}

/// Why an endpoint cannot be reached. The texts name addresses, and are for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeFailure {
    /// The name has no address.
    Unresolvable(String),
    /// The address policy refuses the address.
    Denied(String),
    /// The unix socket is not listed.
    SocketDenied(String),
    /// The address is that of a listener of the gateway itself.
    OwnListener(SocketAddr),
    /// No connection is accepted.
    Unreachable(String),
    /// The certificate's authority is not trusted.
    Untrusted(String),
    /// The certificate is not valid now.
    Expired(String),
    /// The certificate is for another name.
    WrongName(String),
    /// The TLS handshake failed for another reason.
    TlsFailed(String),
    /// There was no result within the time of the probe.
    TimedOut,
}

/// The outcome of the probe of one endpoint.
#[derive(Clone, Debug)]
pub struct EndpointProbe {
    /// The endpoint's address, as text.
    pub address: String,
    /// What was found.
    pub outcome: Result<ReachedEndpoint, ProbeFailure>,
}

/// A request of a probe.
#[derive(Clone, Debug)]
pub struct ProbeRequest {
    /// The method.
    pub method: Method,
    /// The path, where it is not that of the endpoint.
    pub path: Option<PathAndQuery>,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body; empty for none.
    pub body: Bytes,
    /// How many bytes of the reply are read.
    pub max_reply_size: usize,
}

/// The reply to a request of a probe.
#[derive(Debug)]
pub struct ProbeReply {
    /// The status.
    pub status: StatusCode,
    /// The first bytes of the body, up to the bound.
    pub body: Bytes,
    /// Whether these are all.
    pub is_complete: bool,
    /// Whether the request carried a credential of the gateway.
    pub credential_sent: bool,
    /// The time from the request to the head of the reply, connecting included.
    pub elapsed: Duration,
}

/// A server of models: where it lists them, and the one that calls name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelList {
    /// The path of the list.
    pub path: PathAndQuery,
    /// The model of the agent.
    pub model: String,
}

/// The outcome of a request; `None` for endpoints that are not called over HTTP.
pub type ProbeResult = Option<Result<ProbeReply, Fault>>;
