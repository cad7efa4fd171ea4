//! Load shedding before and after authentication. A subrequest of an admitted call, such as a pipeline step, is never
//! shed.

use crate::{auth::Caller, fault::Result, gateway::gateway_state::Gateway};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{
    hash::{Hash, Hasher},
    sync::atomic::AtomicU64,
};

/// Sheds the requests of one connection.
pub(in crate::gateway) struct LoadShedding<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    /// The credentials and the priority of the last request of the connection.
    pub(in crate::gateway) last_caller: &'a AtomicU64,
}

impl LoadShedding<'_> {
    /// Sheds a request before authentication, if it carries the same credentials as the previous request on this
    /// connection. Returns whether the request passed load shedding, and is not checked again.
    ///
    /// # Errors
    /// 503 when the request is shed.
    pub(in crate::gateway) fn check_before_authentication(&self, headers: &HeaderMap) -> Result<bool> {
        let limits = &self.gateway.limits;
        if !limits.is_shedding() {
            return Ok(false);
        }
        let config = self.gateway.config.load();
        let credentials = CredentialValues { headers, names: config.auth.credential_headers() };
        limits.shed_before_authentication(self.last_caller, credentials)
    }

    /// Stores the tier of this connection's caller while load is shed.
    pub(in crate::gateway) fn remember_caller_tier(&self, caller: Option<&Caller>, headers: &HeaderMap) {
        let limits = &self.gateway.limits;
        if let Some(caller) = caller.filter(|_| limits.is_shedding()) {
            let config = self.gateway.config.load();
            let credentials = CredentialValues { headers, names: config.auth.credential_headers() };
            limits.remember_connection_caller(self.last_caller, credentials, caller.tier.as_deref());
        }
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
