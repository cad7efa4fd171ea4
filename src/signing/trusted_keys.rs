//! Trusted public keys: verify agent cards and the claims of tokens.

use super::{
    SignatureAlgorithm, canonical_forms,
    canonical_forms::CanonicalForm,
    jws::{CompactJws, JwsHeader, signing_input},
    verification_key::VerificationKey,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// Algorithms of trusted keys; each key has one.
const ALGORITHMS: [SignatureAlgorithm; 4] =
    [SignatureAlgorithm::ES256, SignatureAlgorithm::EdDSA, SignatureAlgorithm::Ed25519, SignatureAlgorithm::RS256];
/// Maximum number of keys in a set.
const MAX_KEYS: usize = 100;
/// Maximum number of signatures on one card.
pub(super) const MAX_SIGNATURES: usize = 8;
/// Maximum number of characters of a signature's member.
pub(super) const MAX_MEMBER_CHARS: usize = 8_192;
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

/// Trusted public keys of publishers.
#[derive(Debug)]
pub struct TrustedKeys {
    keys: Vec<VerificationKey>,
}

impl TrustedKeys {
    /// Parses a JWK Set. Unusable keys are skipped.
    ///
    /// # Errors
    /// The value is not a JWK Set, or none of its keys is usable.
    pub fn from_jwks(jwks: &Value) -> Result<Self, String> {
        let keys = jwks.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or("is not a JWK Set (an object with an array 'keys')")?;
        if keys.len() > MAX_KEYS {
            return Err(format!("has {} keys (at most {MAX_KEYS})", keys.len()));
        }
        let (mut usable, mut reasons) = (Vec::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            match VerificationKey::from_jwk(key, &ALGORITHMS) {
                Ok(key) => usable.push(key),
                Err(why) => reasons.push(format!("keys[{at}]: {why}")),
            }
        }
        if !usable.is_empty() {
            return Ok(Self { keys: usable });
        }
        Err(if reasons.is_empty() { "has no key".to_owned() } else { reasons.join("; ") })
    }

    /// Verifies that one of the `signatures` of `card` is by a trusted key and covers the card as it is.
    ///
    /// # Errors
    /// The card is unsigned, or no signature is valid: an unknown key, or changed content.
    pub fn verify_card(&self, card: &Value) -> Result<(), String> {
        self.extract_verified_card(card).map(drop)
    }

    /// As [`TrustedKeys::verify_card`]; returns the part of the card that the signature covers: all of it or, if the
    /// signature is by an SDK that signs only the fields of A2A 1.0, those fields.
    ///
    /// # Errors
    /// As [`TrustedKeys::verify_card`].
    pub fn extract_verified_card(&self, card: &Value) -> Result<Value, String> {
        let members = card.as_object().ok_or("signatures: only an object can be signed")?;
        let signatures = match members.get("signatures") {
            Some(Value::Array(signatures)) if signatures.len() > MAX_SIGNATURES => {
                return Err(format!("signatures: has {} (at most {MAX_SIGNATURES})", signatures.len()));
            }
            Some(Value::Array(signatures)) if !signatures.is_empty() => signatures,
            Some(Value::Array(_)) | None => return Err("signatures: the card is not signed".to_owned()),
            Some(_) => return Err("signatures: must be an array".to_owned()),
        };
        let forms = canonical_forms::acceptable_forms(members);
        let mut reasons = Vec::new();
        for (at, signature) in signatures.iter().enumerate() {
            match self.verify_card_signature(signature, &forms) {
                Ok(form) if form.covers_unknown_fields => return Ok(card.clone()),
                Ok(_) => return Ok(Value::Object(canonical_forms::known_fields(members))),
                Err(why) => reasons.push(format!("signatures[{at}]: {why}")),
            }
        }
        Err(reasons.join("; "))
    }

    /// Returns the form that the signature covers. The signature is detached: its payload is not part of it.
    fn verify_card_signature<'a>(
        &self,
        signature: &Value,
        forms: &'a [CanonicalForm],
    ) -> Result<&'a CanonicalForm, String> {
        let member = |name: &str| {
            let text = signature.get(name).and_then(Value::as_str).filter(|text| text.len() <= MAX_MEMBER_CHARS);
            text.ok_or_else(|| format!("{name}: must be a string of at most {MAX_MEMBER_CHARS} characters"))
        };
        let protected = member("protected")?;
        let header = JwsHeader::decode(protected).map_err(|why| format!("protected: {}", why.reason()))?;
        let signature = URL_SAFE_NO_PAD.decode(member("signature")?).map_err(|_| "signature: must be base64url")?;
        let algorithm = header.signature_algorithm();
        let keys = algorithm.map(|algorithm| self.matching_keys(algorithm, header.key_id.as_deref()));
        let Some((algorithm, keys)) = algorithm.zip(keys).filter(|(_, keys)| !keys.is_empty()) else {
            return Err("is by no trusted key (alg and kid must match the key)".to_owned());
        };
        for form in forms {
            let input = signing_input(protected, &form.bytes);
            if keys.iter().any(|key| key.verifies(algorithm, input.as_bytes(), &signature)) {
                return Ok(form);
            }
        }
        Err("is invalid: the card or the signature was changed".to_owned())
    }

    /// Returns the claims of a token (JWT, RFC 7519) of the type `typ`, signed by the trusted key that it names. The
    /// type is verified too (RFC 8725 §3.11): a signature for one use is not valid for another. The caller bounds the
    /// token's length, and checks the claims, including their expiry.
    ///
    /// # Errors
    /// The token is malformed, or signed by no trusted key.
    pub fn verify_claims(&self, typ: &str, token: &str) -> Result<Value, ClaimsError> {
        let jws = CompactJws::parse(token).map_err(|why| ClaimsError::Malformed(why.reason()))?;
        let header = &jws.header;
        if header.typ.as_ref().is_none_or(|own| !own.eq_ignore_ascii_case(typ)) {
            return Err(ClaimsError::Malformed("it is of another type"));
        }
        if header.algorithm.is_none() || header.key_id.is_none() {
            return Err(ClaimsError::Malformed("its header has no algorithm or no key id"));
        }
        let algorithm = header.signature_algorithm().ok_or(ClaimsError::Untrusted)?;
        let keys = self.matching_keys(algorithm, header.key_id.as_deref());
        if !keys.iter().any(|key| jws.is_signed_by(key, algorithm)) {
            return Err(ClaimsError::Untrusted);
        }
        jws.claims(MAX_CLAIMS_NESTING).map_err(|why| ClaimsError::Malformed(why.reason()))
    }

    fn matching_keys(&self, algorithm: SignatureAlgorithm, key_id: Option<&str>) -> Vec<&VerificationKey> {
        self.keys.iter().filter(|key| key.matches(algorithm, key_id)).collect()
    }
}
