//! Signatures over JSON documents (JWS, RFC 7515, over RFC 8785's canonical form) and over claims (JWT): others' are
//! verified, and the gateway's own are made, with keys that are published.
//! It fetches no key that a document names (`jku`): whoever writes a document would choose its judge. A signature says
//! nothing of time: a publisher's older card stays signed until its key is no longer believed.

mod forms;
mod jwk;
mod schema;
mod token;

pub use token::Refused;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jwk::{Key, Material};
use rustls_pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Map, Value, json};

/// Signatures on one card that are looked at.
const MOST_SIGNATURES: usize = 8;
/// Characters of one member of a signature.
const LONGEST_MEMBER: usize = 8_192;

/// The gateway's own key.
pub struct Signer {
    pair: Pair,
    public: Material,
    kid: String,
    random: SystemRandom,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Signer").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl Signer {
    /// Reads the private key in PEM (P-256 or Ed25519).
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn from_pem(pem: &str) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| "it holds no private key in PEM (-----BEGIN PRIVATE KEY-----)".to_owned())?;
        let der = key.secret_der();
        let (pair, public) = if let Ok(pair) = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, der)
        {
            let public = Material::P256(pair.public_key().as_ref().to_vec());
            (Pair::P256(pair), public)
        } else if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            let public = Material::Ed25519(pair.public_key().as_ref().to_vec());
            (Pair::Ed25519(pair), public)
        } else {
            return Err("the key cannot sign cards (a key on P-256 or of Ed25519 is needed)".to_owned());
        };
        let kid = jwk::thumbprint(&public);
        Ok(Self { pair, public, kid, random: SystemRandom::new() })
    }

    /// Signs `card` as A2A 1.0 has it: its `signatures` are replaced by the gateway's, one for each canonical form
    /// that readers of it make (see `forms.rs`; mostly these are one). `keys` is the URL under which [`Signer::jwks`]
    /// is served. What is no object is left as it is.
    pub fn sign_card(&self, card: &mut Value, keys: &str) {
        let Value::Object(members) = card else { return };
        let header = json!({"alg": self.algorithm(), "jku": keys, "kid": self.kid, "typ": "JOSE"});
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let forms = forms::signed(members);
        let signatures = forms.iter().filter_map(|form| {
            let signature = self.sign(signing_input(&protected, &form.bytes).as_bytes())?;
            Some(json!({"protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature)}))
        });
        let signatures: Vec<Value> = signatures.collect();
        members.insert("signatures".to_owned(), Value::Array(signatures));
    }

    /// The public key as a JWK Set (RFC 7517).
    pub fn jwks(&self) -> Value {
        let mut key = jwk::required(&self.public);
        if let Value::Object(members) = &mut key {
            let told = [("use", "sig"), ("alg", self.algorithm()), ("kid", &self.kid)];
            members.extend(told.map(|(name, value)| (name.to_owned(), Value::from(value))));
        }
        json!({"keys": [key]})
    }

    fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::P256(_) => "ES256",
            Pair::Ed25519(_) => "EdDSA",
        }
    }

    /// `None` where the machine has no randomness: the card then goes unsigned rather than wrongly signed.
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            Pair::P256(pair) => pair.sign(&self.random, message).ok().map(|signature| signature.as_ref().to_vec()),
            Pair::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// Keys of publishers that are believed.
#[derive(Debug)]
pub struct Trusted {
    keys: Vec<Key>,
}

impl Trusted {
    /// Reads a JWK Set. Keys of it that cannot be used are left out.
    ///
    /// # Errors
    /// Why it cannot be used: it is no set, or none of its keys can be used.
    pub fn from_jwks(set: &Value) -> Result<Self, String> {
        jwk::set(set).map(|keys| Self { keys })
    }

    /// Whether `card` has `signatures` of which at least one is by a key believed here, and covers the card as it is.
    ///
    /// # Errors
    /// Why not: unsigned, an unknown key, or a signature that does not hold.
    pub fn verify_card(&self, card: &Value) -> Result<(), String> {
        self.believed(card).map(drop)
    }

    /// As [`Trusted::verify_card`], and what of the card the signature covers: all of it, or, where it was made by an
    /// SDK that signs only the fields of A2A 1.0, those.
    ///
    /// # Errors
    /// As [`Trusted::verify_card`].
    pub fn believed(&self, card: &Value) -> Result<Value, String> {
        let members = card.as_object().ok_or("signatures: only an object is signed")?;
        let signatures = match members.get("signatures") {
            Some(Value::Array(signatures)) if signatures.len() > MOST_SIGNATURES => {
                return Err(format!("signatures: there are {} (at most {MOST_SIGNATURES})", signatures.len()));
            }
            Some(Value::Array(signatures)) if !signatures.is_empty() => signatures,
            Some(Value::Array(_)) | None => return Err("signatures: the card is not signed".to_owned()),
            Some(_) => return Err("signatures: must be an array".to_owned()),
        };
        let forms = forms::accepted(members);
        let mut reasons = Vec::new();
        for (at, signature) in signatures.iter().enumerate() {
            match self.covers(signature, &forms) {
                Ok(form) if form.foreign => return Ok(card.clone()),
                Ok(_) => return Ok(Value::Object(forms::known(members))),
                Err(why) => reasons.push(format!("signatures[{at}]: {why}")),
            }
        }
        Err(reasons.join("; "))
    }

    /// Which of the forms the signature holds for.
    fn covers<'a>(&self, signature: &Value, forms: &'a [forms::Form]) -> Result<&'a forms::Form, String> {
        let member = |name: &str| {
            let text = signature.get(name).and_then(Value::as_str).filter(|text| text.len() <= LONGEST_MEMBER);
            text.ok_or_else(|| format!("{name}: must be a string of at most {LONGEST_MEMBER} characters"))
        };
        let protected = member("protected")?;
        let header = header(protected)?;
        let signature = URL_SAFE_NO_PAD.decode(member("signature")?).map_err(|_| "signature: must be base64url")?;
        let algorithm = header.get("alg").and_then(Value::as_str).unwrap_or("none");
        let kid = header.get("kid").and_then(Value::as_str);
        let keys: Vec<&Key> = self.keys.iter().filter(|key| key.fits(algorithm, kid)).collect();
        if keys.is_empty() {
            return Err(
                "is by no key that is believed (the algorithm and the key's id must be the key's own)".to_owned()
            );
        }
        let inputs = forms.iter().map(|form| (form, signing_input(protected, &form.bytes)));
        for (form, input) in inputs {
            if keys.iter().any(|key| key.verifies(input.as_bytes(), &signature)) {
                return Ok(form);
            }
        }
        Err("does not hold: the card or the signature was changed".to_owned())
    }
}

/// The protected header. An extension that must be understood is not (RFC 7515 §4.1.11).
fn header(protected: &str) -> Result<Map<String, Value>, String> {
    let bytes = URL_SAFE_NO_PAD.decode(protected).map_err(|_| "protected: must be base64url")?;
    match crate::unit::json::read(&bytes, 8) {
        Ok(Value::Object(header)) if header.contains_key("crit") => {
            Err("protected.crit: asks for an extension that is not understood".to_owned())
        }
        Ok(Value::Object(header)) => Ok(header),
        _ => Err("protected: must be a JSON object in base64url".to_owned()),
    }
}

/// RFC 7515 §5.1.
fn signing_input(protected: &str, payload: &[u8]) -> String {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload))
}

#[cfg(test)]
mod tests;
