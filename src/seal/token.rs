//! Claims in the compact form (JWT, RFC 7519): signed by the gateway, and verified where their signer is believed.
//! The type of a token is part of what is checked (RFC 8725 §3.11): a signature made for one use counts for no other.
//! What the claims say, and whether their time is over, is the reader's to judge.

use super::{Signer, Trusted, header};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// Nested arrays and objects in claims.
const DEEPEST: u16 = 8;

/// Why a token is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is none, or none of this type.
    Malformed(&'static str),
    /// No key that is believed has signed it.
    Foreign,
}

impl Signer {
    /// A token of the type `kind` with `claims`. `None` where the machine has no randomness.
    pub fn token(&self, kind: &str, claims: &Value) -> Option<String> {
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

impl Trusted {
    /// The claims of a token of the type `kind`, signed by a key believed here, which it names. The reader bounds its
    /// length.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn claims(&self, kind: &str, token: &str) -> Result<Value, Refused> {
        let mut parts = token.split('.');
        let (Some(head), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refused::Malformed("it has not three parts"));
        };
        let read = header(head).map_err(|_| Refused::Malformed("its header cannot be read"))?;
        let text = |name: &str| read.get(name).and_then(Value::as_str);
        if text("typ").is_none_or(|typ| !typ.eq_ignore_ascii_case(kind)) {
            return Err(Refused::Malformed("it is of another type"));
        }
        let (Some(algorithm), Some(kid)) = (text("alg"), text("kid")) else {
            return Err(Refused::Malformed("its header names no algorithm or no key"));
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Malformed("its signature is none"))?;
        let signed = token.get(..head.len() + 1 + claims.len()).unwrap_or_default().as_bytes();
        let mut keys = self.keys.iter().filter(|key| key.fits(algorithm, Some(kid)));
        if !keys.any(|key| key.verifies(signed, &signature)) {
            return Err(Refused::Foreign);
        }
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| Refused::Malformed("its claims cannot be read"))?;
        match crate::unit::json::read(&claims, DEEPEST) {
            Ok(claims @ Value::Object(_)) => Ok(claims),
            _ => Err(Refused::Malformed("its claims are no JSON object")),
        }
    }
}
