//! Public keys: their members in a JSON Web Key (RFC 7517, 7518, 8037), their thumbprint, and their form for
//! `jsonwebtoken`, which verifies the signatures.
//!
//! The members are read here: a JWK of `jsonwebtoken` accepts neither padding, which some issuers add, nor the name
//! Ed25519 (RFC 9864), and does not bound the size of RSA keys.

use super::SignatureAlgorithm;
use crate::values::sha256;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::DecodingKey;
use serde_json::{Value, json};

/// Type of a key: `kty` and `crv`.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyType {
    P256,
    P384,
    Ed25519,
    Rsa,
}

impl KeyType {
    /// Returns the type of these names, if it is supported.
    pub(super) fn from_names(kty: Option<&str>, crv: Option<&str>) -> Option<Self> {
        match (kty?, crv) {
            ("EC", Some("P-256")) => Some(Self::P256),
            ("EC", Some("P-384")) => Some(Self::P384),
            ("OKP", Some("Ed25519")) => Some(Self::Ed25519),
            ("RSA", _) => Some(Self::Rsa),
            _ => None,
        }
    }

    /// Returns the algorithms that a key of this type may be used with.
    pub(super) const fn algorithms(self) -> &'static [SignatureAlgorithm] {
        match self {
            Self::P256 => &[SignatureAlgorithm::ES256],
            Self::P384 => &[SignatureAlgorithm::ES384],
            Self::Ed25519 => &[SignatureAlgorithm::EdDSA, SignatureAlgorithm::Ed25519],
            Self::Rsa => &[
                SignatureAlgorithm::RS256,
                SignatureAlgorithm::RS384,
                SignatureAlgorithm::RS512,
                SignatureAlgorithm::PS256,
                SignatureAlgorithm::PS384,
                SignatureAlgorithm::PS512,
            ],
        }
    }
}

/// Public key for verifying signatures.
#[derive(Debug)]
pub(super) enum PublicKey {
    /// Uncompressed point on P-256.
    P256(Vec<u8>),
    /// Uncompressed point on P-384.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

impl PublicKey {
    /// Decodes the members of a JWK.
    ///
    /// # Errors
    /// The first member that is missing or invalid.
    pub(super) fn from_jwk(key_type: KeyType, jwk: &Value) -> Result<Self, String> {
        let decode = |name: &str| {
            let text = jwk.get(name).and_then(Value::as_str);
            // Some issuers add padding, which RFC 7515 forbids.
            let bytes = text.and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok());
            bytes.ok_or_else(|| invalid_member(name))
        };
        let decode_sized = |name: &str, size: usize| {
            decode(name).and_then(|bytes| if bytes.len() == size { Ok(bytes) } else { Err(invalid_member(name)) })
        };
        let point = |size: usize| Ok([vec![4], decode_sized("x", size)?, decode_sized("y", size)?].concat());
        match key_type {
            KeyType::P256 => point(32).map(Self::P256),
            KeyType::P384 => point(48).map(Self::P384),
            KeyType::Ed25519 => decode_sized("x", 32).map(Self::Ed25519),
            KeyType::Rsa => Self::rsa(decode("n")?, decode("e")?),
        }
    }

    /// Checks an RSA key. RFC 7518 §3.3 requires at least 2048 bits; above 8192 verification costs too much.
    fn rsa(n: Vec<u8>, e: Vec<u8>) -> Result<Self, String> {
        let strip = |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
        let (n, e) = (strip(n), strip(e));
        let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
        if !(2048..=8192).contains(&bits) {
            return Err(format!("has {bits} bits (must be 2048 to 8192)"));
        }
        if e.is_empty() { Err(invalid_member("e")) } else { Ok(Self::Rsa { n, e }) }
    }

    /// Returns the key in the form that verifies signatures.
    pub(super) fn decoding_key(&self) -> DecodingKey {
        match self {
            // `jsonwebtoken` expects the uncompressed point in place of DER.
            Self::P256(point) | Self::P384(point) => DecodingKey::from_ec_der(point),
            Self::Ed25519(key) => DecodingKey::from_ed_der(key),
            Self::Rsa { n, e } => DecodingKey::from_rsa_raw_components(n, e),
        }
    }

    /// Returns the required members of the JWK (RFC 7638 §3.2), and no others.
    pub(super) fn required_members(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = |crv: &str, point: &[u8]| {
            let coordinates = point.get(1..).unwrap_or_default();
            let (x, y) = coordinates.split_at_checked(coordinates.len() / 2).unwrap_or_default();
            json!({"crv": crv, "kty": "EC", "x": encode(x), "y": encode(y)})
        };
        match self {
            Self::P256(bytes) => point("P-256", bytes),
            Self::P384(bytes) => point("P-384", bytes),
            Self::Ed25519(key) => json!({"crv": "Ed25519", "kty": "OKP", "x": encode(key)}),
            Self::Rsa { n, e } => json!({"e": encode(e), "kty": "RSA", "n": encode(n)}),
        }
    }

    /// Computes the thumbprint (RFC 7638 §3) over the required members in order, without whitespace.
    pub(super) fn thumbprint(&self) -> String {
        let text = serde_json_canonicalizer::to_vec(&self.required_members()).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(sha256(&text))
    }
}

fn invalid_member(name: &str) -> String {
    format!("{name}: is missing or invalid for this kind of key")
}
