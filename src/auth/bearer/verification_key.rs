//! JSON Web Keys of issuers (RFC 7517), and signature verification with `jsonwebtoken`. A key determines the algorithms
//! that it may be used with; a token only selects one of them.

use crate::auth::config::SignatureAlgorithm;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of keys of one issuer.
const MAX_KEYS: usize = 100;

/// A key that verifies signatures.
#[derive(Debug)]
pub(super) struct VerificationKey {
    pub(super) kid: Option<Box<str>>,
    algorithms: Vec<SignatureAlgorithm>,
    decoding_key: DecodingKey,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Returns the usable keys of a set; invalid keys are skipped and do not affect the others.
pub(super) fn usable_keys(keys: &[Value]) -> Vec<VerificationKey> {
    keys.iter().take(MAX_KEYS).filter_map(|key| VerificationKey::from_jwk(Jwk::deserialize(key).ok()?)).collect()
}

impl VerificationKey {
    fn from_jwk(jwk: Jwk) -> Option<Self> {
        let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig");
        let may_verify = jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !is_for_signatures || !may_verify {
            return None;
        }
        let (decoding_key, mut algorithms) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => rsa_key(&jwk)?,
            ("EC", Some("P-256")) => (ec_key(&jwk, 32)?, vec![SignatureAlgorithm::ES256]),
            ("EC", Some("P-384")) => (ec_key(&jwk, 48)?, vec![SignatureAlgorithm::ES384]),
            ("OKP", Some("Ed25519")) => {
                let x = decode_base64url(jwk.x.as_deref()).filter(|x| x.len() == 32)?;
                (DecodingKey::from_ed_der(&x), vec![SignatureAlgorithm::EdDSA, SignatureAlgorithm::Ed25519])
            }
            _ => return None,
        };
        if let Some(name) = jwk.alg.as_deref() {
            let alg = parse_algorithm(name)?;
            // RFC 9864 adds a second name for EdDSA over Ed25519.
            let synonyms = [SignatureAlgorithm::EdDSA, SignatureAlgorithm::Ed25519];
            algorithms.retain(|each| *each == alg || (synonyms.contains(each) && synonyms.contains(&alg)));
        }
        (!algorithms.is_empty()).then_some(Self { kid: jwk.kid.map(Into::into), algorithms, decoding_key })
    }

    /// Returns whether a token with this algorithm and key id may be signed with this key.
    pub(super) fn matches(&self, algorithm: SignatureAlgorithm, kid: Option<&str>) -> bool {
        let may_have_kid = match (kid, self.kid.as_deref()) {
            (Some(kid), Some(own_kid)) => kid == own_kid,
            _ => true,
        };
        may_have_kid && self.algorithms.contains(&algorithm)
    }

    /// Returns whether `signature`, in base64url, is this key's signature of `message`.
    pub(super) fn verify_signature(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &str) -> bool {
        jsonwebtoken::crypto::verify(signature, message, &self.decoding_key, to_jsonwebtoken(algorithm))
            .unwrap_or(false)
    }
}

/// Returns the algorithm of this name, if it is supported.
pub(super) fn parse_algorithm(name: &str) -> Option<SignatureAlgorithm> {
    SignatureAlgorithm::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

/// Builds an RSA key of at least 2048 bits (RFC 7518 §3.3) and at most 8192 bits, which bounds the cost of a check.
fn rsa_key(jwk: &Jwk) -> Option<(DecodingKey, Vec<SignatureAlgorithm>)> {
    let strip_zeros = |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
    let (n, e) = (strip_zeros(decode_base64url(jwk.n.as_deref())?), strip_zeros(decode_base64url(jwk.e.as_deref())?));
    let modulus_bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let algorithms = [
        SignatureAlgorithm::RS256,
        SignatureAlgorithm::RS384,
        SignatureAlgorithm::RS512,
        SignatureAlgorithm::PS256,
        SignatureAlgorithm::PS384,
        SignatureAlgorithm::PS512,
    ];
    let key = || (DecodingKey::from_rsa_raw_components(&n, &e), algorithms.to_vec());
    ((2048..=8192).contains(&modulus_bits) && !e.is_empty()).then(key)
}

/// Builds an EC key from its uncompressed point, the form that `jsonwebtoken` expects.
fn ec_key(jwk: &Jwk, size: usize) -> Option<DecodingKey> {
    let (x, y) = (decode_base64url(jwk.x.as_deref())?, decode_base64url(jwk.y.as_deref())?);
    (x.len() == size && y.len() == size).then(|| DecodingKey::from_ec_der(&[&[4], x.as_slice(), &y].concat()))
}

fn decode_base64url(text: Option<&str>) -> Option<Vec<u8>> {
    // Some issuers add padding, which RFC 7515 forbids.
    URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()
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
