//! JSON Web Signatures (RFC 7515): headers and the compact serialization, parsed strictly. Text that two parsers could
//! read differently is malformed, and no extension is supported.

use super::{SignatureAlgorithm, verification_key::VerificationKey};
use crate::values::json;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// Maximum nesting of arrays and objects in a header.
const MAX_HEADER_NESTING: u16 = 8;
/// Maximum bytes of `alg`, `kid` and `typ`, which the signer chooses and the gateway compares with every key.
const MAX_HEADER_TEXT_BYTES: usize = 512;

/// Why a text is not a signature that can be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwsError {
    /// The text is malformed: the reason.
    Malformed(&'static str),
    /// The header requires what is not supported: the reason.
    UnsupportedHeader(&'static str),
}

impl JwsError {
    /// Returns the reason.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed(reason) | Self::UnsupportedHeader(reason) => reason,
        }
    }
}

/// Protected header of a signature. Members that name a key of the sender's choice (`jwk`, `jku`, `x5u`, `x5c`) are
/// ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwsHeader {
    /// `alg`.
    pub algorithm: Option<String>,
    /// `kid`.
    pub key_id: Option<String>,
    /// `typ`.
    pub typ: Option<String>,
    /// `exp`, the time at which the signer withdraws the signature of a document; not checked yet.
    pub(super) expires_at: Option<Value>,
}

impl JwsHeader {
    /// Decodes a header from base64url.
    ///
    /// # Errors
    /// The header is not strict JSON, or requires an extension.
    pub(super) fn decode(encoded: &str) -> Result<Self, JwsError> {
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| JwsError::Malformed("the header must be base64url"))?;
        let Ok(Value::Object(mut members)) = json::parse(&bytes, MAX_HEADER_NESTING) else {
            return Err(JwsError::Malformed("the header must be a JSON object in base64url"));
        };
        // RFC 7515 §4.1.11: no extension is supported, so none may be critical. `b64` is an extension (RFC 7797).
        if members.contains_key("crit") || members.contains_key("b64") {
            return Err(JwsError::UnsupportedHeader(
                "the header has an extension (crit or b64), and none is supported",
            ));
        }
        let mut text = |name: &str| match members.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= MAX_HEADER_TEXT_BYTES => Ok(Some(text)),
            Some(_) => {
                Err(JwsError::UnsupportedHeader("alg, kid and typ of the header must be strings of at most 512 bytes"))
            }
        };
        let (algorithm, key_id, typ) = (text("alg")?, text("kid")?, text("typ")?);
        Ok(Self { algorithm, key_id, typ, expires_at: members.remove("exp") })
    }

    /// Returns the algorithm, if the header names a supported one.
    pub fn signature_algorithm(&self) -> Option<SignatureAlgorithm> {
        SignatureAlgorithm::from_name(self.algorithm.as_deref()?)
    }
}

/// A signed token in the compact serialization (RFC 7515 §7.1). Nothing in it is trusted before its signature has been
/// verified.
#[derive(Debug)]
pub struct CompactJws<'a> {
    /// Header.
    pub header: JwsHeader,
    payload: &'a str,
    /// Encoded header and payload, which the signature covers.
    signing_input: &'a [u8],
    signature: Vec<u8>,
}

impl<'a> CompactJws<'a> {
    /// Splits a token and decodes its header and its signature. The caller bounds the length of `token`.
    ///
    /// # Errors
    /// The token is malformed, or its header is not supported.
    pub fn parse(token: &'a str) -> Result<Self, JwsError> {
        let malformed = || JwsError::Malformed("it does not have three parts");
        let (signing_input, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, payload) = signing_input.split_once('.').ok_or_else(malformed)?;
        if payload.contains('.') {
            return Err(malformed());
        }
        let header = JwsHeader::decode(header)?;
        let signature =
            URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwsError::Malformed("its signature is not base64url"))?;
        Ok(Self { header, payload, signing_input: signing_input.as_bytes(), signature })
    }

    /// Decodes the payload as claims, an object with at most `max_nesting` nested arrays and objects.
    ///
    /// # Errors
    /// The payload is not a JSON object.
    pub fn claims(&self, max_nesting: u16) -> Result<Value, JwsError> {
        let bytes =
            URL_SAFE_NO_PAD.decode(self.payload).map_err(|_| JwsError::Malformed("its claims are not base64url"))?;
        match json::parse(&bytes, max_nesting) {
            Ok(claims @ Value::Object(_)) => Ok(claims),
            _ => Err(JwsError::Malformed("its claims are not a JSON object")),
        }
    }

    /// Returns the encoded header and payload, which the signature covers.
    pub fn signing_input(&self) -> &'a [u8] {
        self.signing_input
    }

    /// Returns whether the token is signed by `key` with `algorithm`.
    pub fn is_signed_by(&self, key: &VerificationKey, algorithm: SignatureAlgorithm) -> bool {
        key.verifies(algorithm, self.signing_input, &self.signature)
    }
}

/// Builds the signing input (RFC 7515 §5.1) from an encoded header and a payload.
pub(super) fn signing_input(encoded_header: &str, payload: &[u8]) -> String {
    format!("{encoded_header}.{}", URL_SAFE_NO_PAD.encode(payload))
}
