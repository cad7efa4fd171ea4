//! JSON Web Keys of issuers (RFC 7517), and signature verification. The key determines the algorithms it may be used
//! with; a token only selects one of them. The cryptography is that of `jsonwebtoken`.

use crate::auth::config::Algorithm;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of keys of one issuer.
const MOST: usize = 100;

/// A key that verifies signatures.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) kid: Option<Box<str>>,
    algorithms: Vec<Algorithm>,
    material: DecodingKey,
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
pub(super) fn usable(keys: &[Value]) -> Vec<Key> {
    keys.iter().take(MOST).filter_map(|key| Key::read(Jwk::deserialize(key).ok()?)).collect()
}

impl Key {
    fn read(jwk: Jwk) -> Option<Self> {
        let signs = jwk.usage.as_deref().is_none_or(|usage| usage == "sig");
        let verifies = jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !signs || !verifies {
            return None;
        }
        let (material, mut algorithms) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => rsa(&jwk)?,
            ("EC", Some("P-256")) => (point(&jwk, 32)?, vec![Algorithm::ES256]),
            ("EC", Some("P-384")) => (point(&jwk, 48)?, vec![Algorithm::ES384]),
            ("OKP", Some("Ed25519")) => {
                let x = bytes(jwk.x.as_deref()).filter(|x| x.len() == 32)?;
                (DecodingKey::from_ed_der(&x), vec![Algorithm::EdDSA, Algorithm::Ed25519])
            }
            _ => return None,
        };
        if let Some(only) = jwk.alg.as_deref() {
            let only = algorithm(only)?;
            let edwards = [Algorithm::EdDSA, Algorithm::Ed25519];
            // RFC 9864 adds a second name for EdDSA over Ed25519.
            algorithms.retain(|each| *each == only || (edwards.contains(each) && edwards.contains(&only)));
        }
        (!algorithms.is_empty()).then_some(Self { kid: jwk.kid.map(Into::into), algorithms, material })
    }

    /// Returns whether a token with this algorithm and key id may be signed with this key.
    pub(super) fn fits(&self, algorithm: Algorithm, kid: Option<&str>) -> bool {
        let named = match (kid, self.kid.as_deref()) {
            (Some(kid), Some(ours)) => kid == ours,
            _ => true,
        };
        named && self.algorithms.contains(&algorithm)
    }

    /// Returns whether `signature`, in base64url, is this key's signature of `message`.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &str) -> bool {
        jsonwebtoken::crypto::verify(signature, message, &self.material, checked_as(algorithm)).unwrap_or(false)
    }
}

/// Returns the algorithm of this name, if it is supported.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    Algorithm::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

/// Builds an RSA key. RFC 7518 §3.3: at least 2048 bits. Beyond 8192 bits a check would be too expensive.
fn rsa(jwk: &Jwk) -> Option<(DecodingKey, Vec<Algorithm>)> {
    let strip = |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
    let (n, e) = (strip(bytes(jwk.n.as_deref())?), strip(bytes(jwk.e.as_deref())?));
    let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let all =
        [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];
    let key = || (DecodingKey::from_rsa_raw_components(&n, &e), all.to_vec());
    ((2048..=8192).contains(&bits) && !e.is_empty()).then(key)
}

/// Builds an EC key from its uncompressed point, the form that `jsonwebtoken` expects.
fn point(jwk: &Jwk, size: usize) -> Option<DecodingKey> {
    let (x, y) = (bytes(jwk.x.as_deref())?, bytes(jwk.y.as_deref())?);
    (x.len() == size && y.len() == size).then(|| DecodingKey::from_ec_der(&[&[4], x.as_slice(), &y].concat()))
}

fn bytes(text: Option<&str>) -> Option<Vec<u8>> {
    // Some issuers add padding, which RFC 7515 forbids.
    URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()
}

fn checked_as(algorithm: Algorithm) -> jsonwebtoken::Algorithm {
    use jsonwebtoken::Algorithm as Checked;
    match algorithm {
        Algorithm::RS256 => Checked::RS256,
        Algorithm::RS384 => Checked::RS384,
        Algorithm::RS512 => Checked::RS512,
        Algorithm::PS256 => Checked::PS256,
        Algorithm::PS384 => Checked::PS384,
        Algorithm::PS512 => Checked::PS512,
        Algorithm::ES256 => Checked::ES256,
        Algorithm::ES384 => Checked::ES384,
        Algorithm::EdDSA | Algorithm::Ed25519 => Checked::EdDSA,
    }
}
