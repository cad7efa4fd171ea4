//! Transports: how the gateway calls upstreams. This module strips the caller's credentials, adds the gateway's,
//! enforces the deadline, and retries only where a retry is safe. It makes no access decision and writes no response.
//!
//! Each kind of transport is one folder here: an implementation of [`Transport`] for one endpoint, and one of
//! `TransportKind`, to which `TransportKinds` leads from the endpoint's scheme. Only HTTP is a variant of
//! [`EndpointTransport`], so that an HTTP call costs no allocation.

mod admission;
mod agent_uri_transport;
mod attempt_count;
mod attempt_record;
mod attempt_span;
mod circuit_breaker;
mod circuit_breaker_registry;
mod config;
mod credential_destinations;
mod endpoint_probe;
mod endpoint_transport;
mod failover;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod headers;
mod http;
mod local;
mod matrix;
mod mqtt;
mod openai;
mod request_preview;
mod session_affinity;
mod timeouts;
mod transport_kind;
mod transport_kinds;
mod tunnel_failover;
mod upstream_body;
mod upstream_client;
mod upstream_compiler;
mod upstream_preview;
mod upstream_reply;
mod upstream_set;
mod upstream_transport;
mod websocket;

pub use self::http::HttpTarget;
pub use admission::Admission;
pub use attempt_count::AttemptCount;
pub use attempt_span::TracedEndpoint;
pub use circuit_breaker::BreakerState;
pub use config::{CircuitBreakerConfig, TransportConfig, UpstreamCredential, UpstreamMqttConfig, UpstreamTlsConfig};
pub use credential_destinations::CredentialDestinations;
pub use endpoint_probe::{
    EndpointProbe, ModelList, ProbeFailure, ProbeReply, ProbeRequest, ProbeResult, ReachedEndpoint,
};
pub use endpoint_transport::EndpointTransport;
pub use headers::{
    CallerHeaderSource, CallerHeadersConfig, CallerProperty, CallerTokenConfig, HeaderMutations, build_forwarded,
    filter_api_reply_headers, filter_reply_headers, forwarded_header_problem, is_same_header,
};
pub use local::{LeaseGrant, LocalRuntimeConfig};
pub use matrix::MatrixConfig;
pub use openai::{AnswerForm, EndpointConfig, EndpointKind, with_default_contract};
pub use request_preview::RequestPreview;
pub use session_affinity::stable_hash;
pub use timeouts::{CallTimeout, TimeoutConfig, TimeoutKind, TimeoutPreset, UpstreamTimeouts};
pub use upstream_body::{BodyClosed, BodyReceiver, BodySender, RequestBody};
pub use upstream_client::UpstreamClient;
pub use upstream_preview::{UpstreamPreview, preview_call};
pub use upstream_reply::{BodyPrefix, ReplyBody, UpstreamReply};
pub use upstream_set::UpstreamSet;
pub use upstream_transport::{Transport, UpstreamCall};
pub use websocket::{
    MessageFraming, TunnelHold, TunnelOutcome, UpstreamWebSocket, UpstreamWebSocketConfig, WebSocketConnection,
    WebSocketError, WebSocketEvent, WebSocketIo, WebSocketLimits, WebSocketOutcome, WebSocketPeer, WebSocketTunnel,
};

#[cfg(test)]
mod tests;
