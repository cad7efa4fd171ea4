//! Trusted public keys: verify agent cards and the claims of tokens.

use super::{
    SignatureAlgorithm, canonical_forms,
    canonical_forms::CanonicalForm,
    jws::{CompactJws, JwsError, JwsHeader, signing_input},
    verification_key::VerificationKey,
};
use crate::values::unix_time;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use std::path::Path;

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

/// Why a document's signatures are not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentSignatureError {
    /// The reason, by the signature.
    pub reason: String,
    /// What the keys say about the signatures.
    pub finding: SignatureFinding,
}

/// What the keys say about signatures of which none is valid. The order is from the least to the most decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SignatureFinding {
    /// Each is by another key.
    OtherKey,
    /// One could not be checked: it is of an unsupported kind, or needs too many checks.
    NotChecked,
    /// One is forged, expired or malformed.
    Invalid,
}

/// The part of a document that a valid signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifiedPart {
    /// All of it.
    Whole,
    /// The fields of A2A 1.0.
    KnownFields,
}

impl VerifiedPart {
    /// Removes what the signature does not cover.
    pub fn select(self, document: Value) -> Value {
        match (self, document) {
            (Self::KnownFields, Value::Object(members)) => Value::Object(canonical_forms::known_fields(&members)),
            (_, document) => document,
        }
    }
}

/// Maximum number of signature checks for one document whose keys are not the operator's.
const MAX_CHECKS: usize = 128;

/// Trusted public keys of publishers.
#[derive(Debug)]
pub struct TrustedKeys {
    keys: Vec<VerificationKey>,
}

impl TrustedKeys {
    /// Reads a file with a JWK Set. Unusable keys are skipped. Blocks on the file system.
    ///
    /// # Errors
    /// The file cannot be read, is not a JWK Set, or has no usable key.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        let at_path = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read(path).map_err(|why| at_path(format!("cannot be read ({why})")))?;
        let jwks = serde_json::from_slice(&text).map_err(|why| at_path(format!("is not JSON ({why})")))?;
        Self::from_jwks(&jwks).map_err(at_path)
    }

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
        self.verify(card, usize::MAX).map(|part| part.select(card.clone())).map_err(|why| why.reason)
    }

    /// As [`TrustedKeys::verify_card`], with few signature checks: the author of the document, or another server, chose
    /// the keys. Returns the part of the document that the signature covers.
    ///
    /// # Errors
    /// Why no signature is valid.
    pub fn verify_document(&self, document: &Value) -> Result<VerifiedPart, DocumentSignatureError> {
        self.verify(document, MAX_CHECKS)
    }

    fn verify(&self, card: &Value, max_checks: usize) -> Result<VerifiedPart, DocumentSignatureError> {
        let invalid = |reason: String| Err(DocumentSignatureError { reason, finding: SignatureFinding::Invalid });
        let Some(members) = card.as_object() else {
            return invalid("signatures: only an object can be signed".to_owned());
        };
        let signatures = match members.get("signatures") {
            Some(Value::Array(signatures)) if signatures.len() > MAX_SIGNATURES => {
                return invalid(format!("signatures: has {} (at most {MAX_SIGNATURES})", signatures.len()));
            }
            Some(Value::Array(signatures)) if !signatures.is_empty() => signatures,
            Some(Value::Array(_)) | None => return invalid("signatures: the card is not signed".to_owned()),
            Some(_) => return invalid("signatures: must be an array".to_owned()),
        };
        let forms = canonical_forms::acceptable_forms(members);
        let (mut checks_left, mut reasons, mut finding) = (max_checks, Vec::new(), SignatureFinding::OtherKey);
        for (at, signature) in signatures.iter().enumerate() {
            match self.verify_card_signature(signature, &forms, &mut checks_left) {
                Ok(form) if form.covers_unknown_fields => return Ok(VerifiedPart::Whole),
                Ok(_) => return Ok(VerifiedPart::KnownFields),
                Err(why) => {
                    reasons.push(format!("signatures[{at}]: {}", why.reason));
                    finding = finding.max(why.finding);
                }
            }
        }
        Err(DocumentSignatureError { reason: reasons.join("; "), finding })
    }

    /// Returns the form that the signature covers. The signature is detached: its payload is not part of it.
    fn verify_card_signature<'a>(
        &self,
        signature: &Value,
        forms: &'a [CanonicalForm],
        checks_left: &mut usize,
    ) -> Result<&'a CanonicalForm, DocumentSignatureError> {
        let error = |reason: String, finding| DocumentSignatureError { reason, finding };
        let invalid = |reason: String| error(reason, SignatureFinding::Invalid);
        let member = |name: &str| {
            let text = signature.get(name).and_then(Value::as_str).filter(|text| text.len() <= MAX_MEMBER_CHARS);
            text.ok_or_else(|| format!("{name}: must be a string of at most {MAX_MEMBER_CHARS} characters"))
        };
        let protected = member("protected").map_err(invalid)?;
        let header = JwsHeader::decode(protected).map_err(|why| {
            let finding = match why {
                JwsError::UnsupportedHeader(_) => SignatureFinding::NotChecked,
                JwsError::Malformed(_) => SignatureFinding::Invalid,
            };
            error(format!("protected: {}", why.reason()), finding)
        })?;
        let signature = URL_SAFE_NO_PAD
            .decode(member("signature").map_err(invalid)?)
            .map_err(|_| invalid("signature: must be base64url".to_owned()))?;
        let algorithm = header.signature_algorithm();
        let keys = algorithm.map(|algorithm| self.matching_keys(algorithm, header.key_id.as_deref()));
        let Some((algorithm, keys)) = algorithm.zip(keys).filter(|(_, keys)| !keys.is_empty()) else {
            // An algorithm that proves nothing makes the signature a forgery, and not one by another key.
            let proves_nothing = header.algorithm.is_none_or(|name| name == "none" || name.starts_with("HS"));
            let finding = if proves_nothing { SignatureFinding::Invalid } else { SignatureFinding::OtherKey };
            return Err(error("is by no trusted key (alg and kid must match the key)".to_owned(), finding));
        };
        match header.expires_at.as_ref().map(Value::as_f64) {
            Some(None) => return Err(invalid("exp of the header must be a time in seconds".to_owned())),
            Some(Some(time)) if time <= unix_time().as_secs() as f64 => return Err(invalid("has expired".to_owned())),
            _ => {}
        }
        for form in forms {
            let input = signing_input(protected, &form.bytes);
            for key in &keys {
                *checks_left = checks_left
                    .checked_sub(1)
                    .ok_or_else(|| error("needs too many checks".to_owned(), SignatureFinding::NotChecked))?;
                if key.verifies(algorithm, input.as_bytes(), &signature) {
                    return Ok(form);
                }
            }
        }
        Err(invalid("is invalid: the card or the signature was changed".to_owned()))
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
        let mut keys: Vec<&VerificationKey> = Vec::new();
        for key in self.keys.iter().filter(|key| key.matches(algorithm, key_id)) {
            // A key may be listed under several ids, which all match a signature without one.
            if !keys.iter().any(|other| other.has_same_material(key)) {
                keys.push(key);
            }
        }
        keys
    }
}
