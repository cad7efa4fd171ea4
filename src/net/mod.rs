//! Outbound network access of the gateway itself: DNS resolution, the address policy, and bounded fetches. It decides
//! which addresses may be reached; callers of this module decide what to fetch and what the result means.

mod address_policy;
mod api_client;
mod bounded_fetch;
mod cidr;
mod dns;
mod error;
mod fetch_client;
mod redirect;
mod source_client;
mod tls_connect;

pub use address_policy::AddressPolicy;
pub use api_client::{ApiClient, ApiReply, ApiRequest};
pub use bounded_fetch::{FetchLimits, error_chain};
pub use cidr::Cidr;
pub use dns::{ResolveError, resolve_host};
pub use error::FetchError;
pub use fetch_client::{FetchClient, FetchReply, FormRequest, UrlTrust};
pub use redirect::FinalReply;
pub use reqwest::Url;
pub use source_client::{
    ClientCredentials, SourceClient, SourceCredential, SourceHeader, SourceMtls, freshness_lifetime, retry_after,
};
pub use tls_connect::{ByteStream, ConnectTarget, TlsClientSettings};

use crate::values::{ConfigPath, Glob};

/// Network: the addresses that the gateway may connect to, and the certificate authorities that it trusts for fetches.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Network")]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Address ranges to allow although they are denied by default: loopback, link-local (cloud metadata included),
    /// multicast and unspecified addresses. Private networks such as 10.0.0.0/8 need no entry. The gateway's own
    /// listeners stay denied. Default: none.
    pub allowed_addresses: Vec<Cidr>,
    /// Unix sockets to allow as endpoints of agents: patterns for absolute paths, such as /run/agents/*.sock, where `*`
    /// matches any characters, / included. Default: none, because a document must not reach other services' sockets.
    pub allowed_sockets: Vec<Glob>,
    /// PEM file of certificate authorities to trust besides the system's, for issuers on an internal network.
    /// Default: only the system's.
    pub ca: Option<ConfigPath>,
    /// Whether documents may be fetched over plain http from hosts other than this one. Default: false.
    pub allow_plaintext: bool,
}

impl NetworkConfig {
    /// Returns the address policy of this configuration.
    pub fn policy(&self) -> AddressPolicy {
        AddressPolicy::new(self.allowed_addresses.clone()).with_unix_sockets(self.allowed_sockets.clone())
    }
}

/// Installs aws-lc-rs as the process's TLS provider. Further calls have no effect.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

#[cfg(test)]
mod tests;
