//! Authentication by client certificate. The listener requests the certificate and verifies its chain; the agent's
//! `authentication` decides whether it counts.

use super::{
    ClientCertificate,
    caller::{AuthenticationResult, Caller, CallerKind, InvalidCredential, is_valid_name, unix_now},
    config,
    grants::GrantIndex,
};
use std::sync::Arc;

/// Maximum number of certificates whose caller is cached.
const MAX_CACHED_CALLERS: u64 = 100_000;

#[derive(Debug)]
pub(super) struct CertificateAuthenticator {
    config: config::MtlsConfig,
    grants: Arc<GrantIndex>,
    caller_cache: moka::sync::Cache<[u8; 32], Arc<Caller>>,
}

impl CertificateAuthenticator {
    pub(super) fn build(config: &config::MtlsConfig, grants: Arc<GrantIndex>) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if config.caller_from.is_empty() {
            problems.push(
                "mtls.caller_from: is empty (write san_uri, san_dns, san_email, subject_cn, subject or fingerprint)"
                    .to_owned(),
            );
        }
        let names = config.callers.iter().flat_map(|(name, caller)| caller.groups.iter().chain([name]));
        problems.extend(names.filter(|name| !is_valid_name(name)).map(|name| {
            format!("mtls.callers: {name:?} is not a valid name (1 to 256 bytes without control characters)")
        }));
        match problems.is_empty() {
            true => {
                Ok(Self { config: config.clone(), grants, caller_cache: moka::sync::Cache::new(MAX_CACHED_CALLERS) })
            }
            false => Err(problems),
        }
    }

    /// Checks a certificate without I/O, and without allocation if its caller is cached.
    pub(super) fn authenticate(&self, certificate: Option<&ClientCertificate>) -> AuthenticationResult {
        let Some(peer) = certificate else {
            return AuthenticationResult::NotPresented;
        };
        if !peer.is_valid_at(unix_now()) {
            return AuthenticationResult::Invalid(InvalidCredential::new("the client certificate has expired"));
        }
        match self.caller_cache.get(peer.fingerprint()).or_else(|| self.read_and_cache_caller(peer)) {
            Some(caller) => AuthenticationResult::Authenticated(caller),
            None => AuthenticationResult::Invalid(
                InvalidCredential::new("the client certificate has no caller name").with_detail(peer.subject()),
            ),
        }
    }

    fn read_and_cache_caller(&self, certificate: &ClientCertificate) -> Option<Arc<Caller>> {
        let name = self
            .config
            .caller_from
            .iter()
            .find_map(|kind| certificate.name(*kind))
            .filter(|name| is_valid_name(name))?;
        let attributes = self.config.callers.get(&name);
        let groups: Arc<[Arc<str>]> = attributes
            .map(|attributes| attributes.groups.iter().map(|group| group.as_str().into()).collect())
            .unwrap_or_default();
        let id: Arc<str> = format!("cert:{name}").into();
        let caller = Arc::new(Caller {
            grants: self.grants.grants_for_caller(&id, &groups),
            id,
            kind: CallerKind::Certificate,
            groups,
            scopes: Arc::default(),
            tier: attributes.and_then(|attributes| attributes.tier.as_deref()).map(Into::into),
        });
        self.caller_cache.insert(*certificate.fingerprint(), Arc::clone(&caller));
        Some(caller)
    }
}
