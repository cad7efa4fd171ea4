//! Outbound network access of the gateway itself: DNS resolution, the address policy, and bounded fetches. It decides
//! which addresses may be reached; callers of this module decide what to fetch and what the result means.

mod address_policy;
mod api_client;
mod binary_client;
mod bounded_fetch;
mod dns;
mod error;
mod fetch_client;
mod redirect;
mod source_client;
mod system_authorities;
mod tls_connect;
mod watch_client;

pub use crate::values::AddressRange;
pub use address_policy::{AddressPolicy, is_link_local_or_metadata};
pub use api_client::{ApiClient, ApiReply, ApiRequest};
pub use binary_client::{BinaryClient, BinaryClientSettings, BinaryReply};
pub use bounded_fetch::{FetchLimits, error_chain};
pub use dns::{ResolveError, resolve_host};
pub use error::FetchError;
pub use fetch_client::{FetchClient, FetchReply, FormRequest, UrlTrust};
pub use redirect::FinalReply;
pub use reqwest::Url;
pub use source_client::{
    ClientCredentials, LinkAuthor, SourceClient, SourceCredential, SourceHeader, SourceMtls, freshness_lifetime,
    retry_after,
};
pub use system_authorities::{SystemVerifier, forget_system_authorities};
pub use tls_connect::{ByteStream, ConnectTarget, TlsClientSettings};
pub use watch_client::{LineStream, WatchClient, WatchClientSettings, WatchReply};

use crate::values::{ConfigPath, Glob};

/// Network: the addresses that the gateway may connect to, and the certificate authorities that it trusts for fetches.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Network")]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Address ranges to allow although they are denied by default: loopback, link-local (cloud metadata included),
    /// multicast and unspecified addresses; and private networks, where they are denied. A range, or one address, may
    /// have a port: 127.0.0.1:8080. The gateway's own listeners stay denied. Default: none.
    pub allowed_addresses: Vec<AddressRange>,
    /// Whether agents in files of the operator, and servers that the configuration names, may be at private addresses
    /// (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7) that `allowed_addresses` does not list.
    /// Published agents and those of remote sources may not, unless `endpoints` lists them. Default: true.
    pub allow_private_addresses: bool,
    /// Unix sockets to allow as endpoints of agents: patterns for absolute paths, such as /run/agents/*.sock, where `*`
    /// matches any characters, / included. Default: none, because a document must not reach other services' sockets.
    pub allowed_sockets: Vec<Glob>,
    /// PEM file of certificate authorities to trust besides the system's, for issuers on an internal network.
    /// Default: only the system's.
    pub ca: Option<ConfigPath>,
    /// Whether documents may be fetched over plain http from hosts other than this one. Default: false.
    pub allow_plaintext: bool,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            allowed_addresses: Vec::new(),
            allow_private_addresses: true,
            allowed_sockets: Vec::new(),
            ca: None,
            allow_plaintext: false,
        }
    }
}

impl NetworkConfig {
    /// Returns the address policy of this configuration.
    pub fn policy(&self) -> AddressPolicy {
        let policy = AddressPolicy::new(self.allowed_addresses.clone()).with_unix_sockets(self.allowed_sockets.clone());
        if self.allow_private_addresses { policy } else { policy.without_private_networks() }
    }
}

/// Installs aws-lc-rs as the process's TLS provider. Further calls have no effect.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

#[cfg(test)]
mod tests;
