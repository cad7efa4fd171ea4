//! A connection of a caller: the server's connection, and what the gateway keeps for all of its requests.

use super::admission::CallerContext;
use crate::{auth::ClientCertificate, http_server::HttpConnection, transport};
use http::{HeaderMap, HeaderValue};
use std::{
    ops::Deref,
    sync::{OnceLock, atomic::AtomicU64},
};

/// A connection of a caller, shared by all of its requests.
#[derive(Debug)]
pub struct CallerConnection {
    http: HttpConnection,
    /// Hash of the last caller's credentials, and its priority: see
    /// [`crate::limit::CallLimiter::shed_before_authentication`].
    pub(super) last_caller: AtomicU64,
    client_identity: OnceLock<Option<ClientCertificate>>,
    forwarded_cache: OnceLock<(Option<Box<str>>, HeaderValue)>,
}

impl CallerConnection {
    pub(super) fn new(http: HttpConnection) -> Self {
        Self {
            http,
            last_caller: AtomicU64::new(0),
            client_identity: OnceLock::new(),
            forwarded_cache: OnceLock::new(),
        }
    }

    /// Returns the caller's part of a request with these headers.
    pub(super) fn caller_context<'a>(&'a self, headers: &'a HeaderMap) -> CallerContext<'a> {
        CallerContext { headers, client_certificate: self.client_identity(), address: self.http.peer_address.ip() }
    }

    /// Returns the identity in the client certificate, parsed once for all requests of the connection. `None` if there
    /// is no certificate or it cannot be parsed.
    pub(super) fn client_identity(&self) -> Option<&ClientCertificate> {
        let leaf = self.http.tls.as_ref()?.client_certificates.first()?;
        self.client_identity.get_or_init(|| ClientCertificate::from_der(leaf).ok()).as_ref()
    }

    /// Returns the `Forwarded` header for a request for `host`. Nearly all requests of a connection are for one host,
    /// so the value for the first host is cached.
    pub(super) fn forwarded_header(&self, host: Option<&str>) -> HeaderValue {
        let build = || transport::build_forwarded(self.http.peer_address.ip(), self.http.tls.is_some(), host);
        let (first_host, forwarded) = self.forwarded_cache.get_or_init(|| (host.map(Box::from), build()));
        if first_host.as_deref() == host { forwarded.clone() } else { build() }
    }
}

impl Deref for CallerConnection {
    type Target = HttpConnection;

    fn deref(&self) -> &HttpConnection {
        &self.http
    }
}
