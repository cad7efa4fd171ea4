//! Authentication by opaque token: a bearer token that only its introspection endpoint can check.

use super::{
    bearer_token::{bearer_token, describe_bearer_token, is_jwt},
    token_introspector::TokenIntrospector,
    verified_token::VerifiedTokenCache,
};
use crate::{
    auth::{
        authenticator::{AuthenticationProgress, AuthenticationResult, Authenticator, CredentialDescription},
        caller::PresentedCredentials,
    },
    values::sha256,
};

/// Authenticates callers by token introspection.
#[derive(Debug)]
pub(super) struct IntrospectionAuthenticator {
    introspector: TokenIntrospector,
    cache: VerifiedTokenCache,
}

impl IntrospectionAuthenticator {
    pub(super) fn new(introspector: TokenIntrospector, cache: VerifiedTokenCache) -> Self {
        Self { introspector, cache }
    }

    async fn introspect_and_cache(
        &self,
        token: &str,
        hash: [u8; 32],
        presented: PresentedCredentials<'_>,
    ) -> AuthenticationResult {
        match self.introspector.introspect(token, hash).await {
            Ok(verified) => self.cache.insert_and_authenticate(hash, verified, &presented),
            Err(failure) => failure.into(),
        }
    }
}

impl Authenticator for IntrospectionAuthenticator {
    fn describe(&self) -> CredentialDescription {
        describe_bearer_token()
    }

    fn authenticate<'a>(&'a self, presented: &PresentedCredentials<'a>) -> AuthenticationProgress<'a> {
        let token = match bearer_token(presented.headers) {
            Ok(Some(token)) if !is_jwt(token) => token,
            Ok(_) => return AuthenticationResult::NotPresented.into(),
            Err(invalid) => return invalid.into(),
        };
        let hash = sha256(token.as_bytes());
        match self.cache.authenticate(&hash, presented) {
            Some(result) => result.into(),
            None => AuthenticationProgress::Pending(Box::pin(self.introspect_and_cache(token, hash, *presented))),
        }
    }
}
