//! Authentication by JWT (RFC 7519): a token that a configured issuer has signed.

use super::{
    bearer_token::{bearer_token, begins_like_jwt, describe_bearer_token, is_jwt},
    claims::TokenClaims,
    jwks::TokenSource,
    token_issuer::TokenIssuer,
    verified_token::{VerifiedToken, VerifiedTokenCache},
};
use crate::{
    auth::{
        authenticator::{
            AuthenticationFailure, AuthenticationProgress, AuthenticationResult, Authenticator, CredentialDescription,
            InvalidCredential,
        },
        build_context::BuildContext,
        caller::{PresentedCredentials, unix_now},
        config::BearerConfig,
    },
    signing::{CompactJws, JwsError},
    values::{json, sha256},
};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Authenticates callers by JWT.
#[derive(Debug)]
pub(in crate::auth) struct JwtAuthenticator {
    issuers: Vec<TokenIssuer>,
    cache: VerifiedTokenCache,
    max_cache_seconds: i64,
    /// Whether tokens that are not JWTs are refused; otherwise they are left to introspection.
    refuses_opaque_tokens: bool,
}

impl JwtAuthenticator {
    pub(super) fn build(
        config: &BearerConfig,
        cache: VerifiedTokenCache,
        context: &BuildContext<'_>,
    ) -> Result<Self, Vec<String>> {
        let previous = context.find_previous::<Self>();
        let (mut issuers, mut problems) = (Vec::with_capacity(config.issuers.len()), Vec::new());
        for (at, settings) in config.issuers.iter().enumerate() {
            let previous_issuer =
                previous.and_then(|previous| previous.issuers.iter().find(|issuer| issuer.has_name(&settings.issuer)));
            match TokenIssuer::build(settings, context, previous_issuer) {
                Ok(issuer) => issuers.push(issuer),
                Err(reasons) => problems.extend(reasons.into_iter().map(|why| format!("issuers[{at}].{why}"))),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let max_cache_seconds = config.token_cache_ttl.get().as_secs().try_into().unwrap_or(0);
        Ok(Self { issuers, cache, max_cache_seconds, refuses_opaque_tokens: config.introspection.is_none() })
    }

    async fn verify_and_cache(
        &self,
        token: &str,
        hash: [u8; 32],
        presented: PresentedCredentials<'_>,
    ) -> AuthenticationResult {
        let source = TokenSource { digest: hash, client_address: presented.client_address };
        match self.verify(token, source).await {
            Ok(verified) => self.cache.insert_and_authenticate(hash, Arc::new(verified), &presented),
            Err(failure) => failure.into(),
        }
    }

    async fn verify(&self, token: &str, source: TokenSource) -> Result<VerifiedToken, AuthenticationFailure> {
        let jws = CompactJws::parse(token).map_err(invalid_jws)?;
        let claims = TokenClaims(jws.claims(json::MAX_DEPTH).map_err(invalid_jws)?);
        let issuer = claims.text("iss").and_then(|name| self.issuers.iter().find(|issuer| issuer.has_name(name)));
        let issuer = issuer.ok_or_else(|| InvalidCredential::new("the token's issuer is not accepted"))?;
        let mut verified = issuer.verify(&jws, &claims, source).await?;
        verified.valid_until = verified.valid_until.min(unix_now() + self.max_cache_seconds);
        Ok(verified)
    }
}

impl Authenticator for JwtAuthenticator {
    fn describe(&self) -> CredentialDescription {
        describe_bearer_token()
    }

    fn authenticate<'a>(&'a self, presented: &PresentedCredentials<'a>) -> AuthenticationProgress<'a> {
        let token = match bearer_token(presented.headers) {
            Ok(Some(token)) => token,
            Ok(None) => return AuthenticationResult::NotPresented.into(),
            Err(invalid) => return invalid.into(),
        };
        if begins_like_jwt(token) {
            let hash = sha256(token.as_bytes());
            if let Some(result) = self.cache.authenticate(&hash, presented) {
                return result.into();
            }
            if is_jwt(token) {
                return AuthenticationProgress::Pending(Box::pin(self.verify_and_cache(token, hash, *presented)));
            }
        }
        if self.refuses_opaque_tokens {
            InvalidCredential::new("the token is not a JWT").into()
        } else {
            AuthenticationResult::NotPresented.into()
        }
    }

    /// Starts background fetches of issuers' keys that are due, so that calls do not wait for them.
    fn maintain(&self) -> BoxFuture<'_, ()> {
        self.issuers.iter().for_each(TokenIssuer::refresh_keys_if_due);
        Box::pin(std::future::ready(()))
    }
}

fn invalid_jws(why: JwsError) -> InvalidCredential {
    let reason = match why {
        JwsError::Malformed(_) => "the token is malformed",
        JwsError::UnsupportedHeader(_) => "the token's header is not accepted",
    };
    InvalidCredential::new(reason).with_detail(why.reason())
}
