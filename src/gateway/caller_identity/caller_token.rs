//! Signed tokens about callers: a JWT for one agent, which the gateway's published keys verify.

use crate::{
    auth::{Caller, CallerClaim},
    signing::SigningKey,
};
use http::HeaderValue;
use serde_json::{Map, Value, json};
use std::{sync::Arc, time::Duration};

/// The `typ` of the tokens (RFC 8725 §3.11): no token of this kind is a delegation chain, or an access token.
const TOKEN_TYPE: &str = "caller+jwt";

/// Signs tokens about callers with the gateway's key.
#[derive(Debug)]
pub struct CallerTokenSigner {
    key: Arc<SigningKey>,
    issuer: Box<str>,
}

/// What a token is about, besides its caller.
pub(super) struct TokenSubject<'a> {
    pub(super) agent: &'a str,
    pub(super) call_id: &'a str,
    pub(super) ttl: Duration,
    /// The claims of the caller's token that the token repeats.
    pub(super) claims: &'a [Box<str>],
}

/// Why there is no token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenError {
    /// A claim cannot be told.
    Unusable(Box<str>, &'static str),
    /// The signature failed.
    Signing,
}

impl CallerTokenSigner {
    /// Creates a signer; `issuer` is the `iss` of its tokens.
    pub fn new(key: Arc<SigningKey>, issuer: &str) -> Self {
        Self { key, issuer: issuer.into() }
    }

    /// Signs a token about a caller.
    pub(super) fn sign(&self, caller: &Caller, subject: &TokenSubject<'_>) -> Result<HeaderValue, TokenError> {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let ttl = i64::try_from(subject.ttl.as_secs()).unwrap_or(60);
        let groups: Vec<&str> = caller.groups.iter().map(|group| &**group).collect();
        let mut claims = json!({
            "iss": &*self.issuer,
            "sub": &*caller.id,
            "aud": subject.agent,
            "jti": subject.call_id,
            "iat": now,
            "exp": now.saturating_add(ttl),
            "method": caller.method.document_type(),
            "groups": groups,
        });
        if !subject.claims.is_empty()
            && let Value::Object(members) = &mut claims
        {
            members.insert("claims".to_owned(), Value::Object(told_claims(caller, subject.claims)?));
        }
        let token = self.key.sign_token(TOKEN_TYPE, &claims).ok_or(TokenError::Signing)?;
        HeaderValue::try_from(token).map_err(|_| TokenError::Signing)
    }
}

fn told_claims(caller: &Caller, names: &[Box<str>]) -> Result<Map<String, Value>, TokenError> {
    let mut told = Map::new();
    for name in names {
        match caller.claims.get(name) {
            None => {}
            Some(CallerClaim::Value(value)) => drop(told.insert(name.to_string(), value.clone())),
            Some(CallerClaim::Unusable(why)) => return Err(TokenError::Unusable(name.clone(), why)),
        }
    }
    Ok(told)
}
