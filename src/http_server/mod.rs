//! The HTTP server: listeners, TLS, connections with their limits, draining and listener handover. Each request reaches
//! a [`HttpService`] after its head was read in full, in time, and validated; a request whose head is invalid reaches
//! [`HttpService::refuse_request`]. This module knows nothing of agents, decides on no response and writes none.
//!
//! HTTP/1 heads are read here, so that the gateway's own limits on time and size apply; Pingora parses them and
//! serves bodies and responses. Pingora serves HTTP/2 from the connection preface on.

mod address_counts;
mod body_rate;
mod client_address;
mod client_trust;
mod client_verifier;
mod config;
mod connection_stream;
mod cut_off;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http1_connection;
mod http2_connection;
mod http_connection;
mod http_service;
mod http_session;
pub mod listener_handover;
mod listening_socket;
pub mod request_validation;
mod server;
mod tls_certificates;
mod upgraded_connection;

pub use client_address::ForwardedClient;
pub use config::{ClientAddressSource, ConnectionLimits, ListenerConfig, ListenerTlsConfig};
pub use http_connection::{HttpConnection, TlsInfo};
pub use http_service::{HttpService, ServeOutcome};
pub use http_session::{BodyState, CallerSignal, HttpSession, ResponseHead, WriteFailed};
pub use listening_socket::{BoundListener, bind_listeners, check_listener_files};
pub use request_validation::{RefusedHead, RefusedRequest, RefusedTarget};
pub use server::{CertificateReload, DrainReport, HttpServer};
pub use upgraded_connection::{UpgradedConnection, UpgradedStream};

#[cfg(test)]
mod tests;
