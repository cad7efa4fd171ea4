//! Authentication by client certificate. The listener requests the certificate and verifies its chain; the agent's
//! `authentication` decides whether it counts.

use super::client_certificate::ClientCertificate;
use crate::{
    agent::AuthenticationMethod,
    auth::{
        authenticator::{
            AuthenticationProgress, AuthenticationResult, Authenticator, CredentialDescription, InvalidCredential,
        },
        build_context::{BuildContext, BuildResult},
        caller::{Caller, PresentedCredentials, is_valid_name, unix_now},
        caller_claims::CallerClaims,
        caller_patterns::certificate_name_examples,
        config::{CertificateName, MtlsConfig},
        grants::GrantIndex,
    },
    values::encode_hex,
};
use std::sync::Arc;

/// Maximum number of certificates whose caller is cached.
const MAX_CACHED_CALLERS: u64 = 100_000;

/// Authenticates callers by client certificate.
#[derive(Debug)]
pub(in crate::auth) struct CertificateAuthenticator {
    config: MtlsConfig,
    grants: Arc<GrantIndex>,
    caller_cache: moka::sync::Cache<[u8; 32], Arc<Caller>>,
}

impl CertificateAuthenticator {
    pub(in crate::auth) fn build(context: &BuildContext<'_>) -> BuildResult {
        let Some(config) = &context.config.mtls else { return Ok(Vec::new()) };
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
        let unqualified = config.callers.keys().filter(|name| !CertificateName::is_qualified(name));
        problems.extend(unqualified.map(|name| {
            if let Some(name) = name.strip_prefix(AuthenticationMethod::Mtls.caller_id_prefix()) {
                return format!(
                    "mtls.callers: 'cert:{name}' matches no certificate (leave out cert: and write {name})"
                );
            }
            format!(
                "mtls.callers: '{name}' matches no certificate (write the kind of the name: {})",
                certificate_name_examples(name)
            )
        }));
        if !problems.is_empty() {
            return Err(problems);
        }
        let caller_cache = moka::sync::Cache::new(MAX_CACHED_CALLERS);
        Ok(vec![Box::new(Self { config: config.clone(), grants: Arc::clone(context.grants), caller_cache })])
    }

    fn read_and_cache_caller(&self, certificate: &ClientCertificate) -> Option<Arc<Caller>> {
        let name = self.config.caller_from.iter().find_map(|kind| certificate.qualified_name(*kind));
        let name = name.filter(|name| is_valid_name(name))?;
        let attributes = self.config.callers.get(&name);
        let groups: Arc<[Arc<str>]> = attributes
            .map(|attributes| attributes.groups.iter().map(|group| group.as_str().into()).collect())
            .unwrap_or_default();
        let id: Arc<str> = format!("{}{name}", AuthenticationMethod::Mtls.caller_id_prefix()).into();
        let caller = Arc::new(Caller {
            grants: self.grants.rules_for_caller(&id, &groups),
            owner_key: Arc::clone(&id),
            id,
            method: AuthenticationMethod::Mtls,
            groups,
            scopes: Arc::default(),
            claims: CallerClaims::default(),
            tier: attributes.and_then(|attributes| attributes.tier.as_deref()).map(Into::into),
        });
        self.caller_cache.insert(*certificate.fingerprint(), Arc::clone(&caller));
        Some(caller)
    }
}

impl Authenticator for CertificateAuthenticator {
    fn describe(&self) -> CredentialDescription {
        CredentialDescription {
            method: AuthenticationMethod::Mtls,
            header: None,
            may_be_bearer: false,
            challenge: None,
            is_offered: true,
        }
    }

    fn authenticate<'a>(&'a self, presented: &PresentedCredentials<'a>) -> AuthenticationProgress<'a> {
        let Some(peer) = presented.client_certificate else {
            return AuthenticationResult::NotPresented.into();
        };
        if !peer.is_valid_at(unix_now()) {
            return InvalidCredential::new("the client certificate has expired").into();
        }
        match self.caller_cache.get(peer.fingerprint()).or_else(|| self.read_and_cache_caller(peer)) {
            Some(caller) => AuthenticationResult::Authenticated(caller).into(),
            None => {
                // Not the subject, which may be the name of a person.
                let fingerprint = encode_hex(peer.fingerprint());
                let detail = format!("its SHA-256 fingerprint is {fingerprint}");
                InvalidCredential::new("the client certificate has no caller name").with_detail(detail).into()
            }
        }
    }
}
