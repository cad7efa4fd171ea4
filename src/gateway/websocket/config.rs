//! Configuration of callers' WebSockets.

use crate::values::{ByteSize, ConfigDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// WebSockets of callers, at `/agents/{id}/invoke`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "WebSockets")]
#[serde(deny_unknown_fields, default)]
pub struct CallerWebSocketConfig {
    /// Origins of the web pages whose scripts may open a WebSocket, such as `https://app.example.com`; `*` allows every
    /// page. Clients that send no `Origin` (everything but browsers) need no entry. Default: none, so only pages of the
    /// gateway's own host.
    pub allowed_origins: Vec<String>,
    /// Maximum number of open WebSockets, of which one caller has `limits.max_share`; further ones are refused with 503,
    /// or with 429 beyond the caller's share. At least 1. Default: 5000.
    pub max_connections: usize,
    /// The largest message of a caller, and of an answer in one message; 1KiB to 64MiB. Default: 1MiB.
    pub max_message_size: ByteSize,
    /// How long a WebSocket may stay open without a message in either direction; longer than 0s. Default: 5m.
    pub idle_timeout: ConfigDuration,
    /// How long a caller may be silent before the gateway sends a ping; 0s sends none. Default: 20s.
    pub ping_interval: ConfigDuration,
    /// How long the caller then has to send a pong; longer than 0s. Default: 10s.
    pub pong_timeout: ConfigDuration,
    /// How long a WebSocket may stay open in total; longer than 0s. Default: 1d.
    pub max_connection_age: ConfigDuration,
    /// A message that is sent after the last part of a streamed answer, such as `[DONE]`. Default: none. JSON-RPC
    /// callers get the response to their request instead.
    pub end_marker: Option<String>,
}

impl Default for CallerWebSocketConfig {
    fn default() -> Self {
        Self {
            allowed_origins: Vec::new(),
            max_connections: 5_000,
            max_message_size: ByteSize::from_kib(1 << 10),
            idle_timeout: ConfigDuration::from_secs(300),
            ping_interval: ConfigDuration::from_secs(20),
            pong_timeout: ConfigDuration::from_secs(10),
            max_connection_age: ConfigDuration::from_secs(86_400),
            end_marker: None,
        }
    }
}

impl CallerWebSocketConfig {
    /// Returns the problems of this configuration.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (index, origin) in self.allowed_origins.iter().enumerate() {
            if origin != "*" && !is_origin(origin) {
                problems
                    .push(format!("allowed_origins[{index}]: is not an origin (write https://app.example.com, or *)"));
            }
        }
        if !(1 << 10..=64 << 20).contains(&self.max_message_size.get()) {
            problems.push("max_message_size: must be between 1KiB and 64MiB".to_owned());
        }
        if self.max_connections == 0 {
            problems.push("max_connections: must be at least 1".to_owned());
        }
        for (duration, name) in [
            (self.idle_timeout, "idle_timeout"),
            (self.pong_timeout, "pong_timeout"),
            (self.max_connection_age, "max_connection_age"),
        ] {
            if duration.get().is_zero() {
                problems.push(format!("{name}: must be longer than 0s"));
            }
        }
        problems
    }
}

/// Returns whether `text` is an origin: a scheme and an authority, and nothing else (RFC 6454 §7).
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let is_visible_ascii = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    is_visible_ascii(scheme) && is_visible_ascii(host) && !host.contains(['/', '?', '#', '@'])
}
