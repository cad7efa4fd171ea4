//! Verified tokens and their cache.

use crate::{
    auth::{
        authenticator::{AuthenticationFailure, AuthenticationResult, InvalidCredential},
        caller::{Caller, PresentedCredentials, unix_now},
        revocation::{RevocationList, TokenIdentity},
    },
    fault::{Fault, FaultCode},
    values::ConfigDuration,
};
use std::{sync::Arc, time::Duration};

/// `Retry-After` for callers while an issuer is unreachable.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A verified token.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    pub(super) caller: Arc<Caller>,
    /// First second at which the token must be verified again, or is no longer valid.
    pub(super) valid_until: i64,
    /// Fingerprint of the certificate that the token is bound to (RFC 8705 §3).
    pub(super) bound_certificate: Option<[u8; 32]>,
    /// The names under which it may be revoked.
    pub(super) identity: TokenIdentity,
}

impl VerifiedToken {
    /// Checks that the token is not revoked, and the certificate binding (RFC 8705 §3): a bound token is valid only on a
    /// connection with its certificate.
    fn authenticate(&self, presented: &PresentedCredentials<'_>, revocations: &RevocationList) -> AuthenticationResult {
        if revocations.is_token_revoked(&self.identity) {
            return InvalidCredential::new("the token is revoked").into();
        }
        match (&self.bound_certificate, presented.client_certificate) {
            (None, _) => AuthenticationResult::Authenticated(Arc::clone(&self.caller)),
            (Some(bound), Some(peer)) if bound == peer.fingerprint() && peer.is_valid_at(unix_now()) => {
                AuthenticationResult::Authenticated(Arc::clone(&self.caller))
            }
            (Some(_), _) => InvalidCredential::new("the token is bound to another client certificate").into(),
        }
    }
}

/// Cache of verified tokens by their SHA-256 hash. Clones share their entries. Whether a token is revoked is not cached.
#[derive(Clone, Debug)]
pub(super) struct VerifiedTokenCache {
    tokens: moka::sync::Cache<[u8; 32], Arc<VerifiedToken>>,
    revocations: Arc<RevocationList>,
}

impl VerifiedTokenCache {
    pub(super) fn new(max_tokens: u64, ttl: ConfigDuration, revocations: &Arc<RevocationList>) -> Self {
        let tokens = moka::sync::Cache::builder().max_capacity(max_tokens).time_to_live(ttl.get()).build();
        Self { tokens, revocations: Arc::clone(revocations) }
    }

    /// Judges a token without I/O and without allocation; `None` if the token is not cached.
    pub(super) fn authenticate(
        &self,
        hash: &[u8; 32],
        presented: &PresentedCredentials<'_>,
    ) -> Option<AuthenticationResult> {
        let verified = self.tokens.get(hash).filter(|verified| unix_now() < verified.valid_until)?;
        Some(verified.authenticate(presented, &self.revocations))
    }

    /// Caches a token that was verified now, and judges it.
    pub(super) fn insert_and_authenticate(
        &self,
        hash: [u8; 32],
        verified: Arc<VerifiedToken>,
        presented: &PresentedCredentials<'_>,
    ) -> AuthenticationResult {
        let result = verified.authenticate(presented, &self.revocations);
        self.tokens.insert(hash, verified);
        result
    }
}

/// Returns the failure of a check that failed technically: 503, because the token may be valid.
#[cold]
pub(super) fn token_check_unavailable(detail: impl std::fmt::Display) -> AuthenticationFailure {
    let fault = Fault::new(FaultCode::Overloaded, "The token cannot be checked at the moment");
    AuthenticationFailure::Unavailable(fault.with_detail(detail).with_retry_after(RETRY_AFTER))
}
