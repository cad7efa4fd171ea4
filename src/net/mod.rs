//! How the gateway itself reaches out: names resolved and vetted, documents fetched within bounds.
//! It decides which addresses may be reached at all; what is fetched, and what it means, is the asker's.

mod address;
mod api;
mod cidr;
mod client;
mod error;
mod resolve;
mod secure;
mod session;
mod visit;

pub use address::AddressPolicy;
pub use api::{Api, ApiReply, Ask};
pub use cidr::Cidr;
pub use client::{Bounds, Client, Form, Reply, Trust, chain};
pub use error::FetchError;
pub use reqwest::Url;
pub use resolve::{Unreachable, resolve};
pub use secure::{Authorities, Peer, Wire};
pub use session::{Answer, ClientCredentials, Credential, Header, Mtls, Session, lifetime, retry_after};

use crate::unit::{FilePath, Glob};

/// Which addresses may be reached, and whom the gateway believes when it fetches.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Network")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Ranges that may be reached although they are refused by default: loopback, link-local
    /// (cloud metadata among them), multicast and unspecified addresses. Private networks such as
    /// 10.0.0.0/8 need no entry. The gateway's own listeners stay refused. Default: none.
    pub allow: Vec<Cidr>,
    /// Unix sockets that agents may have, as patterns over absolute paths, such as /run/agents/*.sock; * stands for
    /// anything, / included. Default: none, since a document must not reach the sockets of this machine's services.
    pub allow_sockets: Vec<Glob>,
    /// A PEM file of certificate authorities to trust besides the system's, for issuers on an
    /// internal network. Default: only the system's.
    pub ca: Option<FilePath>,
    /// Whether documents may be fetched over plain http from hosts other than this one. Default: false.
    pub insecure: bool,
}

impl Config {
    /// Which addresses and sockets may be reached under this configuration.
    pub fn policy(&self) -> AddressPolicy {
        AddressPolicy::new(self.allow.clone()).with_sockets(self.allow_sockets.clone())
    }
}

/// Makes aws-lc-rs the process's TLS provider. Calling it again changes nothing.
pub fn install_crypto() {
    // An error says that a provider is already there, which is what is wanted.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

#[cfg(test)]
mod tests;
