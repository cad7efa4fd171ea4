//! What people write about listeners. Checked here without touching the network or a file.

use crate::unit::{FilePath, Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// One address that callers reach the gateway at.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address and port, such as `0.0.0.0:8443` or `[::]:8443`; port 0 lets the system choose.
    pub address: SocketAddr,
    /// TLS. Without it the listener speaks plain HTTP, on loopback addresses only.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// Serve plain HTTP on an address other than loopback. Credentials then travel in the clear: only behind
    /// something that ends TLS. Default false.
    #[serde(default)]
    pub insecure_plaintext: bool,
}

/// A listener's certificate, and whether callers are asked for theirs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// File with the certificate chain (PEM, leaf first). Read again when it changes.
    pub certificate: FilePath,
    /// File with the private key (PEM). Read again when it changes.
    pub key: FilePath,
    /// File with the authorities (PEM) whose client certificates are accepted. With it callers are asked for
    /// a certificate; whether one is required is each agent's `authentication`. Read again when it changes.
    #[serde(default)]
    pub client_ca: Option<FilePath>,
    /// The oldest version spoken: `1.2` or `1.3`. Default 1.2.
    #[serde(default)]
    pub min_version: Version,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    Tls13,
}

/// What bounds connections and the reading of requests; the same for every listener.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Open connections per listener; those beyond are closed at once. Default 10000.
    pub connections: usize,
    /// Time to complete a TLS handshake. Default 10s.
    pub tls_handshake: Span,
    /// Time to send a request's whole head, from its first byte. Default 10s, then 408.
    pub header_deadline: Span,
    /// How long a connection may stay open without a request. Default 60s.
    pub idle: Span,
    /// Longest pause inside a request's body, and in which a caller must take more of a response. Default 30s.
    pub body_idle: Span,
    /// Largest head, request line included. Default 64KiB, at most 1MiB; beyond it 431.
    pub max_head: Size,
    /// Most header lines. Default 100, at most 256; beyond it 431.
    pub max_headers: usize,
    /// Requests after which an HTTP/1 connection is closed. Default: as many as come.
    pub requests_per_connection: Option<u32>,
    /// Requests at a time on one HTTP/2 connection. Default 128.
    pub h2_streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            tls_handshake: Span::secs(10),
            header_deadline: Span::secs(10),
            idle: Span::secs(60),
            body_idle: Span::secs(30),
            max_head: Size::kib(64),
            max_headers: 100,
            requests_per_connection: None,
            h2_streams: 128,
        }
    }
}

impl Config {
    /// What is wrong with this listener, as far as can be told without opening anything.
    pub fn problems(&self) -> Vec<String> {
        let open = self.tls.is_none() && !self.insecure_plaintext && !self.address.ip().is_loopback();
        let text = "address: plain HTTP is served on loopback only (add `tls`, or set `insecure_plaintext: true` behind something that ends TLS)";
        if open { vec![text.to_owned()] } else { Vec::new() }
    }
}

impl Limits {
    /// What is wrong with these bounds.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, text: &str| {
            if !holds {
                problems.push(text.to_owned());
            }
        };
        require(self.connections > 0, "connections: must be at least 1");
        require(self.h2_streams > 0, "h2_streams: must be at least 1");
        require((1..=256).contains(&self.max_headers), "max_headers: must be between 1 and 256");
        require((1 << 10..=1 << 20).contains(&self.max_head.get()), "max_head: must be between 1KiB and 1MiB");
        require(self.requests_per_connection != Some(0), "requests_per_connection: must be at least 1");
        let spans = [
            (self.tls_handshake, "tls_handshake: must be longer than 0s"),
            (self.header_deadline, "header_deadline: must be longer than 0s"),
            (self.idle, "idle: must be longer than 0s"),
            (self.body_idle, "body_idle: must be longer than 0s"),
        ];
        for (span, text) in spans {
            require(!span.get().is_zero(), text);
        }
        problems
    }
}
