//! Public keys as JWK (RFC 7517, 7518, 8037), and verification with them. The key determines the algorithm; a
//! signature's header must match it.

use crate::values::sha256;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// Maximum number of keys in a set.
const MAX_KEYS: usize = 100;

/// Public key for verifying signatures.
#[derive(Debug)]
pub(super) struct PublicJwk {
    kid: Option<Box<str>>,
    thumbprint: String,
    material: KeyMaterial,
}

#[derive(Debug)]
pub(super) enum KeyMaterial {
    /// Uncompressed point on P-256.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

/// Returns the usable keys of a JWK Set.
///
/// # Errors
/// The value is not a JWK Set, or none of its keys is usable.
pub(super) fn parse_jwk_set(jwks: &Value) -> Result<Vec<PublicJwk>, String> {
    let keys = jwks.get("keys").and_then(Value::as_array).ok_or("is not a JWK Set (an object with an array 'keys')")?;
    if keys.len() > MAX_KEYS {
        return Err(format!("has {} keys (at most {MAX_KEYS})", keys.len()));
    }
    let (mut usable, mut reasons) = (Vec::new(), Vec::new());
    for (at, key) in keys.iter().enumerate() {
        match PublicJwk::parse(key) {
            Ok(key) => usable.push(key),
            Err(why) => reasons.push(format!("keys[{at}]: {why}")),
        }
    }
    match usable.is_empty() {
        true if reasons.is_empty() => Err("has no key".to_owned()),
        true => Err(reasons.join("; ")),
        false => Ok(usable),
    }
}

impl PublicJwk {
    fn parse(jwk: &Value) -> Result<Self, String> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|usage| usage != "sig") {
            return Err("use: must be sig".to_owned());
        }
        let operations = jwk.get("key_ops").and_then(Value::as_array);
        if operations.is_some_and(|operations| !operations.iter().any(|operation| operation == "verify")) {
            return Err("key_ops: must include verify".to_owned());
        }
        let decode_member = |name: &str, size: Option<usize>| {
            let bytes = text(name).and_then(|text| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok());
            let bytes = bytes.filter(|bytes| size.is_none_or(|size| bytes.len() == size));
            bytes.ok_or_else(|| format!("{name}: is missing or invalid for this kind of key"))
        };
        let material = match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => {
                KeyMaterial::P256([vec![4], decode_member("x", Some(32))?, decode_member("y", Some(32))?].concat())
            }
            (Some("OKP"), Some("Ed25519")) => KeyMaterial::Ed25519(decode_member("x", Some(32))?),
            (Some("RSA"), _) => rsa_material(decode_member("n", None)?, decode_member("e", None)?)?,
            _ => return Err("is of an unsupported kind (EC on P-256, OKP with Ed25519 or RSA is required)".to_owned()),
        };
        let key = Self { kid: text("kid").map(Into::into), thumbprint: thumbprint(&material), material };
        match text("alg") {
            Some(other) if !key.matches(other, None) => {
                Err(format!("alg: '{other}' does not match the key ({})", key.algorithm()))
            }
            _ => Ok(key),
        }
    }

    /// Returns the name of the key's algorithm (RFC 7518 §3.1, RFC 8037 §3.1).
    pub(super) fn algorithm(&self) -> &'static str {
        match self.material {
            KeyMaterial::P256(_) => "ES256",
            KeyMaterial::Ed25519(_) => "EdDSA",
            KeyMaterial::Rsa { .. } => "RS256",
        }
    }

    /// Returns whether a signature with this algorithm and key id may be by this key.
    pub(super) fn matches(&self, algorithm: &str, kid: Option<&str>) -> bool {
        // RFC 9864 adds a second name for EdDSA over Ed25519.
        let matches_algorithm =
            algorithm == self.algorithm() || (algorithm == "Ed25519" && self.algorithm() == "EdDSA");
        let matches_key_id =
            kid.is_none_or(|kid| kid == self.thumbprint || self.kid.as_deref().is_none_or(|key_id| key_id == kid));
        matches_algorithm && matches_key_id
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.material {
            KeyMaterial::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            KeyMaterial::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            KeyMaterial::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        };
        verified.is_ok()
    }
}

/// Validates an RSA key. RFC 7518 §3.3 requires at least 2048 bits; above 8192 verification costs too much.
fn rsa_material(n: Vec<u8>, e: Vec<u8>) -> Result<KeyMaterial, String> {
    let strip = |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
    let (n, e) = (strip(n), strip(e));
    let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
    match (2048..=8192).contains(&bits) && !e.is_empty() {
        true => Ok(KeyMaterial::Rsa { n, e }),
        false => Err(format!("has {bits} bits (must be 2048 to 8192)")),
    }
}

/// Returns the required members of a key (RFC 7638 §3.2), and no others.
pub(super) fn required_members(material: &KeyMaterial) -> Value {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    match material {
        KeyMaterial::P256(point) => {
            let (x, y) = point.get(1..).unwrap_or_default().split_at_checked(32).unwrap_or_default();
            json!({"crv": "P-256", "kty": "EC", "x": encode(x), "y": encode(y)})
        }
        KeyMaterial::Ed25519(key) => json!({"crv": "Ed25519", "kty": "OKP", "x": encode(key)}),
        KeyMaterial::Rsa { n, e } => json!({"e": encode(e), "kty": "RSA", "n": encode(n)}),
    }
}

/// Computes the thumbprint (RFC 7638 §3) over the required members in order, without whitespace.
pub(super) fn thumbprint(material: &KeyMaterial) -> String {
    let text = serde_json_canonicalizer::to_vec(&required_members(material)).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(sha256(&text))
}
