//! Issuers' keys (RFC 7517) and the check of a signature. Which algorithms a key may be used with is read from the
//! key; a token can only choose among them.

use crate::auth::config::Algorithm;
use aws_lc_rs::signature::{
    self as signing, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

/// Keys of one issuer that are looked at.
const MOST: usize = 100;

/// A key that signatures can be checked with.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) kid: Option<Box<str>>,
    algorithms: Vec<Algorithm>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point, or an Ed25519 key.
    Point(Vec<u8>),
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

/// The usable keys of a set; the others are left out, one bad key does not lose the set.
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
            ("EC", Some("P-521")) => (point(&jwk, 66)?, vec![Algorithm::ES512]),
            ("OKP", Some("Ed25519")) => {
                let x = bytes(jwk.x.as_deref()).filter(|x| x.len() == 32)?;
                (Material::Point(x), vec![Algorithm::EdDSA, Algorithm::Ed25519])
            }
            _ => return None,
        };
        if let Some(only) = jwk.alg.as_deref() {
            let only = algorithm(only)?;
            let edwards = [Algorithm::EdDSA, Algorithm::Ed25519];
            // RFC 9864 gives EdDSA over Ed25519 a second name.
            algorithms.retain(|each| *each == only || (edwards.contains(each) && edwards.contains(&only)));
        }
        (!algorithms.is_empty()).then_some(Self { kid: jwk.kid.map(Into::into), algorithms, material })
    }

    /// Whether a token with this algorithm and key id can have been signed with this key.
    pub(super) fn fits(&self, algorithm: Algorithm, kid: Option<&str>) -> bool {
        let named = match (kid, self.kid.as_deref()) {
            (Some(kid), Some(ours)) => kid == ours,
            _ => true,
        };
        named && self.algorithms.contains(&algorithm)
    }

    /// Whether `signature` is this key's over `message`.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match (&self.material, rsa_parameters(algorithm), point_algorithm(algorithm)) {
            (Material::Rsa { n, e }, Some(parameters), _) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok()
            }
            (Material::Point(point), _, Some(algorithm)) => {
                UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
            }
            _ => false,
        }
    }
}

/// The algorithm of this name, if it is one that can be pinned.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    Algorithm::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

/// RFC 7518 §3.3: 2048 bits or more. Beyond 8192 a check would cost too much.
fn rsa(jwk: &Jwk) -> Option<(Material, Vec<Algorithm>)> {
    let strip = |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
    let (n, e) = (strip(bytes(jwk.n.as_deref())?), strip(bytes(jwk.e.as_deref())?));
    let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let all =
        [Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512];
    ((2048..=8192).contains(&bits) && !e.is_empty()).then(|| (Material::Rsa { n, e }, all.to_vec()))
}

fn point(jwk: &Jwk, size: usize) -> Option<Material> {
    let (x, y) = (bytes(jwk.x.as_deref())?, bytes(jwk.y.as_deref())?);
    (x.len() == size && y.len() == size).then(|| Material::Point([&[4], x.as_slice(), &y].concat()))
}

fn bytes(text: Option<&str>) -> Option<Vec<u8>> {
    // Some issuers pad, which RFC 7515 does not.
    URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &signing::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signing::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signing::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signing::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signing::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signing::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn point_algorithm(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &signing::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &signing::ECDSA_P384_SHA384_FIXED,
        Algorithm::ES512 => &signing::ECDSA_P521_SHA512_FIXED,
        Algorithm::EdDSA | Algorithm::Ed25519 => &signing::ED25519,
        _ => return None,
    })
}
