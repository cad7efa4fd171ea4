//! Keys that verify signatures, parsed from JSON Web Keys (RFC 7517). A key determines the algorithms that it may be
//! used with; the header of a signature only selects one of them.

use super::{
    SignatureAlgorithm,
    public_key::{KeyType, PublicKey},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use serde_json::Value;

/// A key that verifies signatures.
#[derive(Debug)]
pub struct VerificationKey {
    key_id: Option<Box<str>>,
    thumbprint: String,
    algorithms: Vec<SignatureAlgorithm>,
    decoding_key: DecodingKey,
}

impl VerificationKey {
    /// Parses a JWK, to be used with the `accepted` algorithms only.
    ///
    /// # Errors
    /// Why the key is not usable.
    pub fn from_jwk(jwk: &Value, accepted: &[SignatureAlgorithm]) -> Result<Self, String> {
        let text = |name: &str| match jwk.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(format!("{name}: must be a string")),
        };
        if text("use")?.is_some_and(|usage| usage != "sig") {
            return Err("use: must be sig".to_owned());
        }
        let may_verify = |operations: &Value| operations.as_array().is_some_and(|list| list.contains(&"verify".into()));
        if !jwk.get("key_ops").is_none_or(may_verify) {
            return Err("key_ops: must include verify".to_owned());
        }
        let key_type = KeyType::from_names(text("kty")?, text("crv")?);
        let supported = key_type.map(KeyType::algorithms).unwrap_or_default().iter().copied();
        let mut algorithms: Vec<SignatureAlgorithm> = supported.filter(|name| accepted.contains(name)).collect();
        let Some(key_type) = key_type.filter(|_| !algorithms.is_empty()) else {
            return Err(format!("is of an unsupported kind (keys for {} are accepted)", list_names(accepted)));
        };
        if let Some(name) = text("alg")? {
            let own = list_names(&algorithms);
            algorithms.retain(|each| SignatureAlgorithm::from_name(name).is_some_and(|alg| alg.is_synonym_of(*each)));
            if algorithms.is_empty() {
                return Err(format!("alg: '{name}' does not match the key ({own})"));
            }
        }
        let public_key = PublicKey::from_jwk(key_type, jwk)?;
        let (thumbprint, decoding_key) = (public_key.thumbprint(), public_key.decoding_key());
        Ok(Self { key_id: text("kid")?.map(Into::into), thumbprint, algorithms, decoding_key })
    }

    /// Returns whether the key has a `kid`.
    pub fn has_key_id(&self) -> bool {
        self.key_id.is_some()
    }

    /// Returns whether both are the same key, whatever their ids are.
    pub(super) fn has_same_material(&self, other: &Self) -> bool {
        self.thumbprint == other.thumbprint && self.algorithms == other.algorithms
    }

    /// Returns whether a signature with this algorithm and key id may be by this key. A key is also named by its
    /// thumbprint, and a key without an id by any id.
    pub fn matches(&self, algorithm: SignatureAlgorithm, key_id: Option<&str>) -> bool {
        let has_id = |id: &str| id == self.thumbprint || self.key_id.as_deref().is_none_or(|own| own == id);
        self.algorithms.contains(&algorithm) && key_id.is_none_or(has_id)
    }

    /// Returns whether `signature` is this key's signature of `message` with `algorithm`.
    pub fn verifies(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.algorithms.contains(&algorithm) {
            return false;
        }
        let signature = URL_SAFE_NO_PAD.encode(signature);
        jsonwebtoken::crypto::verify(&signature, message, &self.decoding_key, to_jsonwebtoken(algorithm))
            .unwrap_or(false)
    }
}

fn list_names(algorithms: &[SignatureAlgorithm]) -> String {
    algorithms.iter().map(|algorithm| algorithm.as_str()).collect::<Vec<_>>().join(", ")
}

fn to_jsonwebtoken(algorithm: SignatureAlgorithm) -> jsonwebtoken::Algorithm {
    use jsonwebtoken::Algorithm;
    match algorithm {
        SignatureAlgorithm::RS256 => Algorithm::RS256,
        SignatureAlgorithm::RS384 => Algorithm::RS384,
        SignatureAlgorithm::RS512 => Algorithm::RS512,
        SignatureAlgorithm::PS256 => Algorithm::PS256,
        SignatureAlgorithm::PS384 => Algorithm::PS384,
        SignatureAlgorithm::PS512 => Algorithm::PS512,
        SignatureAlgorithm::ES256 => Algorithm::ES256,
        SignatureAlgorithm::ES384 => Algorithm::ES384,
        SignatureAlgorithm::EdDSA | SignatureAlgorithm::Ed25519 => Algorithm::EdDSA,
    }
}
