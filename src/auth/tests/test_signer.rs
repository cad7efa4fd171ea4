//! Signing keys of an issuer, generated in the process.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(super) fn encode_base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

enum SigningKeyPair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

pub(super) struct TestSigner {
    pub(super) alg: &'static str,
    pub(super) kid: &'static str,
    pair: SigningKeyPair,
}

impl TestSigner {
    pub(super) fn new(alg: &'static str, kid: &'static str) -> Self {
        let pair = match alg {
            "ES256" => SigningKeyPair::Ec(EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()),
            "ES384" => SigningKeyPair::Ec(EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_FIXED_SIGNING).unwrap()),
            "ES512" => SigningKeyPair::Ec(EcdsaKeyPair::generate(&signature::ECDSA_P521_SHA512_FIXED_SIGNING).unwrap()),
            "EdDSA" => SigningKeyPair::Ed(Ed25519KeyPair::generate().unwrap()),
            _ => SigningKeyPair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()),
        };
        Self { alg, kid, pair }
    }

    pub(super) fn jwk(&self) -> Value {
        let point = |public: &[u8], crv: &str| {
            let (x, y) = public[1..].split_at((public.len() - 1) / 2);
            json!({"kty": "EC", "crv": crv, "x": encode_base64url(x), "y": encode_base64url(y)})
        };
        let mut jwk = match (&self.pair, self.alg) {
            (SigningKeyPair::Rsa(pair), _) => {
                let public = pair.public_key();
                json!({"kty": "RSA", "n": encode_base64url(public.modulus().big_endian_without_leading_zero()),
                    "e": encode_base64url(public.exponent().big_endian_without_leading_zero())})
            }
            (SigningKeyPair::Ec(pair), "ES256") => point(pair.public_key().as_ref(), "P-256"),
            (SigningKeyPair::Ec(pair), "ES384") => point(pair.public_key().as_ref(), "P-384"),
            (SigningKeyPair::Ec(pair), _) => point(pair.public_key().as_ref(), "P-521"),
            (SigningKeyPair::Ed(pair), _) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode_base64url(pair.public_key().as_ref())})
            }
        };
        jwk["kid"] = self.kid.into();
        jwk["use"] = "sig".into();
        jwk
    }

    pub(super) fn sign(&self, message: &str) -> Vec<u8> {
        let (message, random) = (message.as_bytes(), SystemRandom::new());
        match &self.pair {
            SigningKeyPair::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            SigningKeyPair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            SigningKeyPair::Rsa(pair) => {
                let padding: &'static dyn signature::RsaEncoding = match self.alg {
                    "PS256" => &signature::RSA_PSS_SHA256,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut bytes = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message, &mut bytes).unwrap();
                bytes
            }
        }
    }

    /// Signs a token whose header has `alg` and `kid`, overridden by `header`; null removes a member.
    pub(super) fn token(&self, header: &Value, claims: &Value) -> String {
        let mut members = json!({"alg": self.alg, "kid": self.kid});
        for (name, value) in header.as_object().unwrap() {
            members[name] = value.clone();
        }
        members.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.token_from_text(&members.to_string(), &claims.to_string())
    }

    /// Signs a token with exactly these two texts.
    pub(super) fn token_from_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode_base64url(header), encode_base64url(claims));
        format!("{signed}.{}", encode_base64url(self.sign(&signed)))
    }
}
