//! Upstreams over HTTP/1.1 and HTTP/2: TCP, TLS and Unix sockets, with connection pools. Plain text beyond this machine
//! is refused unless the configuration allows it, and connections go only to addresses that the policy permits.

mod call_with_retry;
mod connection_pool;
mod connection_probe;
mod connector;
mod counted_stream;
mod error_mapping;
mod http_target;
mod http_upstream_client;
mod reply_body;
mod tls_profile;
mod websocket_upgrade;

pub(super) use call_with_retry::call_with_retry;
pub(super) use connection_probe::{probe_connection, send_probe};
pub(super) use connector::is_reachable;
pub use http_target::HttpTarget;
pub(super) use http_target::preview_request;
pub(super) use http_upstream_client::HttpUpstreamClient;
pub(super) use reply_body::HttpReplyBody;
pub(super) use tls_profile::build_tls_config;
pub(super) use websocket_upgrade::{UpgradeOutcome, UpgradeRequest, WebSocketOffer, upgrade_to_websocket};
