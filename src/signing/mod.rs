//! Signing: signatures over JSON documents (JWS, RFC 7515, over RFC 8785's canonical form) and over claims (JWT). The
//! module verifies signatures of others, and makes the gateway's own, with keys that are published.
//! It never fetches a key that a document names (`jku`): the author of a document must not choose its verifier. A
//! signature has no time: an older card of a publisher stays valid until its key is no longer trusted.

mod canonical_forms;
mod card_fields;
mod claims_token;
mod jwk;

pub use claims_token::ClaimsError;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jwk::{KeyMaterial, PublicJwk};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Map, Value, json};

/// Maximum number of signatures on one card.
const MAX_SIGNATURES: usize = 8;
/// Maximum number of characters of a signature's member.
const MAX_MEMBER_CHARS: usize = 8_192;

/// The gateway's own signing key.
pub struct SigningKey {
    pair: AsymmetricKeyPair,
    public: KeyMaterial,
    kid: String,
    random: SystemRandom,
}

enum AsymmetricKeyPair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Parses the private key in PEM (P-256 or Ed25519).
    ///
    /// # Errors
    /// The key is invalid or of another kind.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| "must be a private key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned())?;
        let der = key.secret_der();
        let (pair, public) = if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der)
        {
            let public = KeyMaterial::P256(pair.public_key().as_ref().to_vec());
            (AsymmetricKeyPair::P256(pair), public)
        } else if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            let public = KeyMaterial::Ed25519(pair.public_key().as_ref().to_vec());
            (AsymmetricKeyPair::Ed25519(pair), public)
        } else {
            return Err("must be a key on P-256 or of Ed25519".to_owned());
        };
        let kid = jwk::thumbprint(&public);
        Ok(Self { pair, public, kid, random: SystemRandom::new() })
    }

    /// Signs `card` as A2A 1.0 defines it: replaces its `signatures` by the gateway's, one for each canonical form
    /// that readers build (see `canonical_forms`; they are mostly equal). `jwks_url` is the URL that serves
    /// [`SigningKey::jwks`]. A value other than an object stays unchanged.
    pub fn sign_card(&self, card: &mut Value, jwks_url: &str) {
        let Value::Object(members) = card else { return };
        let header = json!({"alg": self.algorithm(), "jku": jwks_url, "kid": self.kid, "typ": "JOSE"});
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let forms = canonical_forms::forms_to_sign(members);
        let signatures = forms.iter().filter_map(|form| {
            let signature = self.sign(signing_input(&protected, &form.bytes).as_bytes())?;
            Some(json!({"protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature)}))
        });
        let signatures: Vec<Value> = signatures.collect();
        members.insert("signatures".to_owned(), Value::Array(signatures));
    }

    /// Returns the public key as a JWK Set (RFC 7517).
    pub fn jwks(&self) -> Value {
        let mut key = jwk::required_members(&self.public);
        if let Value::Object(members) = &mut key {
            let metadata = [("use", "sig"), ("alg", self.algorithm()), ("kid", &self.kid)];
            members.extend(metadata.map(|(name, value)| (name.to_owned(), Value::from(value))));
        }
        json!({"keys": [key]})
    }

    fn algorithm(&self) -> &'static str {
        match self.pair {
            AsymmetricKeyPair::P256(_) => "ES256",
            AsymmetricKeyPair::Ed25519(_) => "EdDSA",
        }
    }

    /// Signs `message`. Returns `None` if the machine has no randomness: the card then stays unsigned.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            AsymmetricKeyPair::P256(pair) => {
                pair.sign(&self.random, message).ok().map(|signature| signature.as_ref().to_vec())
            }
            AsymmetricKeyPair::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// Trusted public keys of publishers.
#[derive(Debug)]
pub struct TrustedKeys {
    keys: Vec<PublicJwk>,
}

impl TrustedKeys {
    /// Parses a JWK Set. Unusable keys are skipped.
    ///
    /// # Errors
    /// The value is not a JWK Set, or none of its keys is usable.
    pub fn from_jwks(jwks: &Value) -> Result<Self, String> {
        jwk::parse_jwk_set(jwks).map(|keys| Self { keys })
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
            match self.verify_signature(signature, &forms) {
                Ok(form) if form.covers_unknown_fields => return Ok(card.clone()),
                Ok(_) => return Ok(Value::Object(canonical_forms::known_fields(members))),
                Err(why) => reasons.push(format!("signatures[{at}]: {why}")),
            }
        }
        Err(reasons.join("; "))
    }

    /// Returns the form that the signature covers.
    fn verify_signature<'a>(
        &self,
        signature: &Value,
        forms: &'a [canonical_forms::CanonicalForm],
    ) -> Result<&'a canonical_forms::CanonicalForm, String> {
        let member = |name: &str| {
            let text = signature.get(name).and_then(Value::as_str).filter(|text| text.len() <= MAX_MEMBER_CHARS);
            text.ok_or_else(|| format!("{name}: must be a string of at most {MAX_MEMBER_CHARS} characters"))
        };
        let protected = member("protected")?;
        let header = decode_protected_header(protected)?;
        let signature = URL_SAFE_NO_PAD.decode(member("signature")?).map_err(|_| "signature: must be base64url")?;
        let algorithm = header.get("alg").and_then(Value::as_str).unwrap_or("none");
        let kid = header.get("kid").and_then(Value::as_str);
        let keys: Vec<&PublicJwk> = self.keys.iter().filter(|key| key.matches(algorithm, kid)).collect();
        if keys.is_empty() {
            return Err("is by no trusted key (alg and kid must match the key)".to_owned());
        }
        let inputs = forms.iter().map(|form| (form, signing_input(protected, &form.bytes)));
        for (form, input) in inputs {
            if keys.iter().any(|key| key.verifies(input.as_bytes(), &signature)) {
                return Ok(form);
            }
        }
        Err("is invalid: the card or the signature was changed".to_owned())
    }
}

/// Decodes the protected header. Critical extensions are refused: none is supported (RFC 7515 §4.1.11).
fn decode_protected_header(protected: &str) -> Result<Map<String, Value>, String> {
    let bytes = URL_SAFE_NO_PAD.decode(protected).map_err(|_| "protected: must be base64url")?;
    match crate::values::json::parse(&bytes, 8) {
        Ok(Value::Object(header)) if header.contains_key("crit") => {
            Err("protected.crit: names an extension that is not supported".to_owned())
        }
        Ok(Value::Object(header)) => Ok(header),
        _ => Err("protected: must be a JSON object in base64url".to_owned()),
    }
}

/// Builds the JWS signing input (RFC 7515 §5.1).
fn signing_input(protected: &str, payload: &[u8]) -> String {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload))
}

#[cfg(test)]
mod tests;
