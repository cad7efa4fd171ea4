//! The gateway's own signing key: signs agent cards and claims. The public key is published as a JWK Set.

use super::{SignatureAlgorithm, canonical_forms, jws::signing_input, public_key::PublicKey};
use crate::values::parse_private_key;
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use p256::{SecretKey, ecdsa::signature::Signer, pkcs8::DecodePrivateKey};
use serde_json::{Value, json};

/// The gateway's own signing key.
pub struct SigningKey {
    pair: AsymmetricKeyPair,
    public: PublicKey,
    pub(super) kid: String,
    random: SystemRandom,
}

enum AsymmetricKeyPair {
    P256 {
        /// Makes another signature each time, and is fast: for tokens, which are made for each call.
        random: EcdsaKeyPair,
        /// Makes the same signature of the same message (RFC 6979): for documents, whose `ETag` covers it.
        deterministic: Box<p256::ecdsa::SigningKey>,
    },
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
        let key = parse_private_key(pem.as_bytes())
            .map_err(|mistake| format!("must be a private key in PEM (-----BEGIN PRIVATE KEY-----): {mistake}"))?;
        let der = key.secret_der();
        let random = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        let deterministic = SecretKey::from_pkcs8_der(der).or_else(|_| SecretKey::from_sec1_der(der));
        let (pair, public) = if let (Ok(random), Ok(deterministic)) = (random, deterministic) {
            let public = PublicKey::P256(random.public_key().as_ref().to_vec());
            (AsymmetricKeyPair::P256 { random, deterministic: Box::new(deterministic.into()) }, public)
        } else if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            let public = PublicKey::Ed25519(pair.public_key().as_ref().to_vec());
            (AsymmetricKeyPair::Ed25519(pair), public)
        } else {
            return Err("must be a key on P-256 or of Ed25519".to_owned());
        };
        let kid = public.thumbprint();
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
            let signature = self.sign_document(signing_input(&protected, &form.bytes).as_bytes())?;
            Some(json!({"protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature)}))
        });
        let signatures: Vec<Value> = signatures.collect();
        members.insert("signatures".to_owned(), Value::Array(signatures));
    }

    /// Builds a signed token (JWT, RFC 7519) of the type `typ` with `claims`. `None` if the machine has no randomness.
    pub fn sign_token(&self, typ: &str, claims: &Value) -> Option<String> {
        let header = json!({"alg": self.algorithm(), "kid": self.kid, "typ": typ});
        let mut token = signing_input(&URL_SAFE_NO_PAD.encode(header.to_string()), claims.to_string().as_bytes());
        let signature = self.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Some(token)
    }

    /// Returns the public key as a JWK Set (RFC 7517).
    pub fn jwks(&self) -> Value {
        let mut key = self.public.required_members();
        if let Value::Object(members) = &mut key {
            let metadata = [("use", "sig"), ("alg", self.algorithm().as_str()), ("kid", &self.kid)];
            members.extend(metadata.map(|(name, value)| (name.to_owned(), Value::from(value))));
        }
        json!({"keys": [key]})
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match self.pair {
            AsymmetricKeyPair::P256 { .. } => SignatureAlgorithm::ES256,
            AsymmetricKeyPair::Ed25519(_) => SignatureAlgorithm::EdDSA,
        }
    }

    /// Signs a document: the same document always gets the same signature, in every process with the key.
    pub(super) fn sign_document(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            AsymmetricKeyPair::P256 { deterministic, .. } => {
                let signature: p256::ecdsa::Signature = deterministic.try_sign(message).ok()?;
                Some(signature.to_bytes().to_vec())
            }
            AsymmetricKeyPair::Ed25519(_) => self.sign(message),
        }
    }

    /// Signs `message`. Returns `None` if the machine has no randomness.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            AsymmetricKeyPair::P256 { random, .. } => {
                random.sign(&self.random, message).ok().map(|signature| signature.as_ref().to_vec())
            }
            AsymmetricKeyPair::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}
