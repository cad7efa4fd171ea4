//! A connection of a caller: the server's connection, and what the gateway keeps for all of its requests. While load is
//! shed, that includes the caller of the previous request, by which a request is shed before authentication.
//! A connection of a trusted proxy carries requests of many clients: each request then has a `CallerConnection` of its
//! own, so that nothing that is kept for one client applies to another.

use super::{admission::CallerContext, gateway_state::Gateway};
use crate::{
    auth::{Caller, ClientCertificate},
    fault::Result,
    http_server::{ForwardedClient, HttpConnection},
    transport,
};
use http::{HeaderMap, HeaderName, HeaderValue, header, request, uri::Authority};
use std::{
    hash::{Hash, Hasher},
    net::IpAddr,
    ops::Deref,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

/// A connection of a caller, shared by all of its requests; or one request of a client behind a trusted proxy.
#[derive(Debug)]
pub struct CallerConnection {
    http: Arc<HttpConnection>,
    /// The client that a trusted proxy names; `None` where the connection is the client's own.
    forwarded_client: Option<ForwardedClient>,
    /// Hash of the last caller's credentials, and its priority: see
    /// [`crate::limit::CallLimiter::shed_before_authentication`].
    last_caller: AtomicU64,
    client_identity: OnceLock<Option<ClientCertificate>>,
    forwarded_cache: OnceLock<(Option<Box<str>>, HeaderValue)>,
}

impl CallerConnection {
    pub(super) fn new(http: HttpConnection) -> Self {
        Self::with_client(Arc::new(http), None)
    }

    /// Returns the connection as the client of this request has it, if a trusted proxy forwards the request.
    ///
    /// # Errors
    /// 400 if the header that names the client is not valid.
    pub(super) fn for_forwarded_request(&self, headers: &HeaderMap) -> Result<Option<Arc<Self>>> {
        let client = self.http.forwarded_client(headers)?;
        Ok(client.map(|client| Arc::new(Self::with_client(Arc::clone(&self.http), Some(client)))))
    }

    fn with_client(http: Arc<HttpConnection>, forwarded_client: Option<ForwardedClient>) -> Self {
        Self {
            http,
            forwarded_client,
            last_caller: AtomicU64::new(0),
            client_identity: OnceLock::new(),
            forwarded_cache: OnceLock::new(),
        }
    }

    /// Returns the caller's part of a request with these headers.
    pub(super) fn caller_context<'a>(&'a self, headers: &'a HeaderMap) -> CallerContext<'a> {
        CallerContext {
            headers,
            client_certificate: self.client_identity(),
            address: self.client_address(),
            // Only what the client itself did counts here: the TLS between a proxy and the gateway is not the browser's.
            is_secure: match &self.forwarded_client {
                Some(client) => client.is_secure == Some(true),
                None => self.http.tls.is_some(),
            },
            forwarded_host: self.forwarded_client.as_ref().and_then(|client| client.host.as_deref()),
            assumed_key: None,
        }
    }

    /// Returns the address of the client.
    pub(super) fn client_address(&self) -> IpAddr {
        self.forwarded_client.as_ref().map_or_else(|| self.http.client_address.ip(), |client| client.address)
    }

    /// Returns whether the client used TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.forwarded_client.as_ref().and_then(|client| client.is_secure).unwrap_or(self.http.tls.is_some())
    }

    /// Returns the host that the client requested.
    pub(super) fn requested_host<'a>(&'a self, head: &'a request::Parts) -> Option<&'a str> {
        let forwarded = self.forwarded_client.as_ref().and_then(|client| client.host.as_deref());
        let authority = || head.uri.authority().map(Authority::as_str);
        let host = || head.headers.get(header::HOST)?.to_str().ok();
        forwarded.or_else(authority).or_else(host)
    }

    /// Returns the identity in the client certificate, parsed once for all requests of the connection. `None` if there
    /// is no certificate or it cannot be parsed. The certificate of a proxy is not that of its clients.
    fn client_identity(&self) -> Option<&ClientCertificate> {
        if self.forwarded_client.is_some() {
            return None;
        }
        let tls = self.http.tls.as_ref()?;
        let leaf = tls.client_certificates.first()?;
        let identity = self.client_identity.get_or_init(|| ClientCertificate::from_der(leaf).ok()).as_ref()?;
        if !tls.is_client_trusted() {
            identity.revoke();
        }
        Some(identity)
    }

    /// Returns the `Forwarded` header for a request for `host`. Nearly all requests of a connection are for one host,
    /// so the value for the first host is cached.
    pub(super) fn forwarded_header(&self, host: Option<&str>) -> HeaderValue {
        let build = || transport::build_forwarded(self.client_address(), self.is_secure(), host);
        let (first_host, forwarded) = self.forwarded_cache.get_or_init(|| (host.map(Box::from), build()));
        if first_host.as_deref() == host { forwarded.clone() } else { build() }
    }

    /// Sheds a request before authentication, if it carries the same credentials as the previous request on this
    /// connection. Returns whether the request passed load shedding, and is not checked again.
    ///
    /// # Errors
    /// 503 when the request is shed.
    pub(super) fn shed_before_authentication(&self, gateway: &Gateway, headers: &HeaderMap) -> Result<bool> {
        let limits = &gateway.limits;
        if !limits.is_shedding() {
            return Ok(false);
        }
        let config = gateway.config.load();
        let credentials = CredentialValues { headers, names: config.auth.credential_headers() };
        limits.shed_before_authentication(&self.last_caller, credentials)
    }

    /// Stores the tier of this connection's caller while load is shed.
    pub(super) fn remember_caller_tier(&self, gateway: &Gateway, caller: Option<&Caller>, headers: &HeaderMap) {
        let limits = &gateway.limits;
        if limits.is_shedding()
            && let Some(caller) = caller
        {
            let config = gateway.config.load();
            let credentials = CredentialValues { headers, names: config.auth.credential_headers() };
            limits.remember_connection_caller(&self.last_caller, credentials, caller.tier.as_deref());
        }
    }
}

impl Deref for CallerConnection {
    type Target = HttpConnection;

    fn deref(&self) -> &HttpConnection {
        &self.http
    }
}

/// The values of the credential headers, which tell apart the callers on one connection; a certificate is the
/// connection's.
struct CredentialValues<'a> {
    headers: &'a HeaderMap,
    names: &'a [HeaderName],
}

impl Hash for CredentialValues<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for name in self.names {
            self.headers.get(name).map(HeaderValue::as_bytes).hash(hasher);
        }
    }
}
