//! What people write about callers' WebSockets. Checked here without opening anything.

use crate::unit::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Callers with a WebSocket of their own, at `/agents/{id}/invoke`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "WebSockets")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Web pages whose scripts may open one, as their origins: `https://app.example.com`; `*` is every page. A
    /// browser tells the page, other clients tell none and need no entry. Default: none but pages of the gateway's
    /// own host.
    pub origins: Vec<String>,
    /// The largest message of a caller, and of an answer in one; 1KiB to 64MiB. Default: 1MiB.
    pub max_message: Size,
    /// How long a socket may stay open without a message either way. Default: 5m.
    pub idle: Span,
    /// How long a caller may be silent until it is asked whether it is there (ping); 0s never asks. Default: 20s.
    pub ping: Span,
    /// How long it then has to answer (pong). Default: 10s.
    pub pong: Span,
    /// How long a socket may stay open at all. Default: 1d.
    pub lifetime: Span,
    /// A message that follows the last of a streamed answer, such as `[DONE]`. Default: none; callers who speak
    /// JSON-RPC are told by its response.
    pub end: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            max_message: Size::kib(1 << 10),
            idle: Span::secs(300),
            ping: Span::secs(20),
            pong: Span::secs(10),
            lifetime: Span::secs(86_400),
            end: None,
        }
    }
}

impl Config {
    /// What is wrong with it.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (at, origin) in self.origins.iter().enumerate() {
            if origin != "*" && !is_origin(origin) {
                problems.push(format!("origins[{at}]: is not an origin (write https://app.example.com, or *)"));
            }
        }
        if !(1 << 10..=64 << 20).contains(&self.max_message.get()) {
            problems.push("max_message: must be between 1KiB and 64MiB".to_owned());
        }
        for (span, name) in [(self.idle, "idle"), (self.pong, "pong"), (self.lifetime, "lifetime")] {
            if span.get().is_zero() {
                problems.push(format!("{name}: must be longer than 0s"));
            }
        }
        problems
    }
}

/// RFC 6454 §7: a scheme and an authority, nothing behind them.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else {
        return false;
    };
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    plain(scheme) && plain(host) && !host.contains(['/', '?', '#', '@'])
}
