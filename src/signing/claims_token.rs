//! Signed claims in the compact form (JWT, RFC 7519), issued by the gateway and verified with trusted keys. The token's
//! type is verified too (RFC 8725 §3.11): a signature for one use is not valid for another. The caller checks the
//! claims, including their expiry.

use super::{SigningKey, TrustedKeys, decode_protected_header};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// Maximum nesting of arrays and objects in claims.
const MAX_CLAIMS_NESTING: u16 = 8;

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimsError {
    /// The text is not a token, or a token of another type.
    Malformed(&'static str),
    /// The token is not signed by a trusted key.
    Untrusted,
}

impl SigningKey {
    /// Builds a signed token of the type `kind` with `claims`. `None` if the machine has no randomness.
    pub fn sign_token(&self, kind: &str, claims: &Value) -> Option<String> {
        let header = json!({"alg": self.algorithm(), "kid": self.kid, "typ": kind});
        let mut token = URL_SAFE_NO_PAD.encode(header.to_string());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
        let signature = self.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Some(token)
    }
}

impl TrustedKeys {
    /// Returns the claims of a token of the type `kind`, signed by the trusted key that it names. The caller bounds its
    /// length.
    ///
    /// # Errors
    /// The token is malformed, or signed by no trusted key.
    pub fn verify_claims(&self, kind: &str, token: &str) -> Result<Value, ClaimsError> {
        let mut parts = token.split('.');
        let (Some(head), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ClaimsError::Malformed("it does not have three parts"));
        };
        let header = decode_protected_header(head).map_err(|_| ClaimsError::Malformed("its header is invalid"))?;
        let text = |name: &str| header.get(name).and_then(Value::as_str);
        if text("typ").is_none_or(|typ| !typ.eq_ignore_ascii_case(kind)) {
            return Err(ClaimsError::Malformed("it is of another type"));
        }
        let (Some(algorithm), Some(kid)) = (text("alg"), text("kid")) else {
            return Err(ClaimsError::Malformed("its header has no algorithm or no key id"));
        };
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| ClaimsError::Malformed("its signature is not base64url"))?;
        let signed_text = token.get(..head.len() + 1 + claims.len()).unwrap_or_default().as_bytes();
        let mut keys = self.keys.iter().filter(|key| key.matches(algorithm, Some(kid)));
        if !keys.any(|key| key.verifies(signed_text, &signature)) {
            return Err(ClaimsError::Untrusted);
        }
        let claims =
            URL_SAFE_NO_PAD.decode(claims).map_err(|_| ClaimsError::Malformed("its claims are not base64url"))?;
        match crate::values::json::parse(&claims, MAX_CLAIMS_NESTING) {
            Ok(claims @ Value::Object(_)) => Ok(claims),
            _ => Err(ClaimsError::Malformed("its claims are not a JSON object")),
        }
    }
}
