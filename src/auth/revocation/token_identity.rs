//! The names under which a verified token may be revoked.

use super::revocation_key::RevocationKey;

/// What a token says of itself.
#[derive(Clone, Copy, Debug)]
pub(in crate::auth) struct TokenNames<'a> {
    /// Its issuer; of an introspected token that names none, what the configuration says.
    pub(in crate::auth) issuer: &'a str,
    /// `jti`.
    pub(in crate::auth) id: Option<&'a str>,
    /// `sub`.
    pub(in crate::auth) subject: Option<&'a str>,
    /// `iat`.
    pub(in crate::auth) issued_at: Option<i64>,
}

/// The names under which a verified token may be revoked; computed once, when it is verified.
#[derive(Debug)]
pub(in crate::auth) struct TokenIdentity {
    pub(super) token: RevocationKey,
    pub(super) id: Option<RevocationKey>,
    pub(super) subject: Option<RevocationKey>,
    /// When the token was issued; `i64::MIN` if it does not say, so that a revocation of its subject includes it.
    pub(super) issued_at: i64,
}

impl TokenIdentity {
    /// Returns the identity of the token that `token` names.
    pub(in crate::auth) fn new(token: RevocationKey, names: TokenNames<'_>) -> Self {
        Self {
            token,
            id: names.id.map(|id| RevocationKey::of_token_id(names.issuer, id)),
            subject: names.subject.map(|subject| RevocationKey::of_subject(names.issuer, subject)),
            issued_at: names.issued_at.unwrap_or(i64::MIN),
        }
    }
}
