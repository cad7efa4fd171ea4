//! Which tokens an operator revokes: one, by itself or by its `jti`, or all that an issuer has issued to a subject.

use super::{
    new_revocation::{NewRevocation, Revocation, bound_lifetime},
    revocation_key::RevocationKey,
};
use crate::{
    signing::CompactJws,
    values::{ConfigDuration, json},
};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use time::OffsetDateTime;

/// How long a token lives at most, if neither the token nor the operator says it.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(30 * 86_400);
/// Tolerated clock skew of tokens, which is at most `leeway` of an issuer.
const MAX_LEEWAY: Duration = Duration::from_secs(300);
/// Maximum length of a token, as for calls, and of an issuer, `jti` or subject.
const MAX_TOKEN_BYTES: usize = 16 << 10;
const MAX_NAME_BYTES: usize = 2 << 10;

/// The request to revoke tokens: `token`, or `issuer` with `jti` or `subject`.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenRevocationRequest {
    /// The token itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// `iss` of the tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// `jti` of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// `sub` of the tokens, of which those issued until now are revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How long from now such a token is valid at most. Default: until `exp` of `token`, or 30d.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lifetime: Option<ConfigDuration>,
}

impl fmt::Debug for TokenRevocationRequest {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("TokenRevocationRequest").finish_non_exhaustive()
    }
}

/// The tokens that are revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokedTokens {
    /// What to put in force.
    pub revocation: NewRevocation,
    /// What is revoked, for the audit log: never the token.
    pub subject: String,
    /// More about it, for the audit log.
    pub detail: Option<String>,
}

impl RevokedTokens {
    /// Returns how long the revocation is remembered.
    pub fn lifetime(&self) -> Duration {
        self.revocation.lifetime
    }
}

impl TokenRevocationRequest {
    /// Returns the tokens that the request means. `now` is the time since the Unix epoch by the clock of the gateways.
    ///
    /// # Errors
    /// What the request must have.
    pub fn select(&self, now: Duration) -> Result<RevokedTokens, String> {
        for name in [&self.issuer, &self.jti, &self.subject].into_iter().flatten() {
            if name.is_empty() || name.len() > MAX_NAME_BYTES {
                return Err(format!("issuer, jti and subject have 1 to {MAX_NAME_BYTES} bytes"));
            }
        }
        match (self.token.as_deref().map(str::trim), &self.issuer, &self.jti, &self.subject) {
            (Some(token), None, None, None) => self.select_token(token),
            (None, Some(issuer), Some(id), None) => {
                let key = RevocationKey::of_token_id(issuer, id);
                Ok(self.selected(key, format!("jti {id}"), format!("issuer {issuer}")))
            }
            (None, Some(issuer), None, Some(subject)) => {
                let mut selected = self.selected(
                    RevocationKey::of_subject(issuer, subject),
                    format!("subject {subject}"),
                    format!("issuer {issuer}, issued until now"),
                );
                selected.revocation.revocation.issued_until = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
                Ok(selected)
            }
            _ => Err("write token, or issuer with jti, or issuer with subject".to_owned()),
        }
    }

    fn select_token(&self, token: &str) -> Result<RevokedTokens, String> {
        let is_token_byte = |byte: u8| byte.is_ascii_graphic();
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES || !token.bytes().all(is_token_byte) {
            return Err("token is not a bearer token".to_owned());
        }
        let key = RevocationKey::of_token(token);
        let mut selected = self.selected(key, format!("token {}", key.short()), String::new());
        if let (Some(expires), None) = (expiry_of(token), self.max_lifetime) {
            let rest = Duration::try_from(expires - OffsetDateTime::now_utc()).unwrap_or_default();
            selected.revocation.lifetime = bound_lifetime(rest + MAX_LEEWAY);
        }
        Ok(selected)
    }

    fn selected(&self, key: RevocationKey, subject: String, detail: String) -> RevokedTokens {
        let lifetime = self.max_lifetime.map_or(DEFAULT_LIFETIME, |max| max.get() + MAX_LEEWAY);
        let revocation = Revocation { from: i64::MIN, issued_until: i64::MAX };
        RevokedTokens {
            revocation: NewRevocation { key, revocation, lifetime: bound_lifetime(lifetime) },
            subject,
            detail: Some(detail).filter(|detail| !detail.is_empty()),
        }
    }
}

/// Returns `exp` of a JWT. Its signature is not verified: a caller that revokes a token has it, and the revocation concerns no
/// other.
fn expiry_of(token: &str) -> Option<OffsetDateTime> {
    let claims = CompactJws::parse(token).ok()?.claims(json::MAX_DEPTH).ok()?;
    let expires = claims.get("exp")?;
    let seconds = expires.as_i64().or_else(|| expires.as_f64().map(|seconds| seconds.ceil() as i64))?;
    // Authentication refuses a token with a time beyond the calendar.
    OffsetDateTime::from_unix_timestamp(seconds).ok()
}
