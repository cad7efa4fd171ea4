//! The names under which revocations are found: hashes, so that the shared state has neither tokens nor names.

use crate::{auth::bearer::is_jwt, values::sha256};

/// The name of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::auth) struct RevocationKey(pub(super) [u8; 32]);

impl RevocationKey {
    /// Names an API key by its public prefix.
    pub(in crate::auth) fn of_api_key(prefix: &[u8]) -> Self {
        Self::hash("api-key", &[prefix])
    }

    /// Names one token. Of a JWT its signature does not count: a signature of ECDSA has a second form, with which the
    /// token would be another one.
    pub(in crate::auth) fn of_token(token: &str) -> Self {
        let (without_signature, _) = token.rsplit_once('.').filter(|_| is_jwt(token)).unwrap_or((token, ""));
        Self::of_signed_text(without_signature.as_bytes())
    }

    /// Names a JWT by the text that its signature covers.
    pub(in crate::auth) fn of_signed_text(text: &[u8]) -> Self {
        Self::hash("token", &[text])
    }

    /// Names the token of an issuer that has this `jti`.
    pub(in crate::auth) fn of_token_id(issuer: &str, id: &str) -> Self {
        Self::hash("token-id", &[issuer.as_bytes(), id.as_bytes()])
    }

    /// Names the tokens that an issuer issued to a subject.
    pub(in crate::auth) fn of_subject(issuer: &str, subject: &str) -> Self {
        Self::hash("subject", &[issuer.as_bytes(), subject.as_bytes()])
    }

    /// Hashes the parts of a name. Each has its length before it, so that no two names have one text.
    fn hash(kind: &str, parts: &[&[u8]]) -> Self {
        let mut text = kind.as_bytes().to_vec();
        for part in parts {
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part);
        }
        Self(sha256(&text))
    }

    /// Returns the first digits of the hash, for logs.
    pub(super) fn short(&self) -> String {
        self.0.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }
}
