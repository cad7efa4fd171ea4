//! Hashes of API keys.

use crate::values::{Secret, sha256};
use aws_lc_rs::hmac;

/// Minimum length of the secret part: 32 of 62 letters are 190 bits.
pub(super) const SECRET_LENGTH: usize = 32;

/// Computes the stored hash of a key. Keys are random, so that a slow hash would add no security, and would let callers
/// overload the gateway.
#[derive(Debug)]
pub(super) enum KeyHasher {
    Sha256,
    HmacSha256(Box<hmac::Key>),
}

impl KeyHasher {
    pub(super) fn new(pepper: Option<&Secret>) -> Self {
        match pepper {
            None => Self::Sha256,
            Some(pepper) => Self::HmacSha256(Box::new(hmac::Key::new(hmac::HMAC_SHA256, pepper.expose().as_bytes()))),
        }
    }

    pub(super) fn hash(&self, key: &str) -> [u8; 32] {
        match self {
            Self::Sha256 => sha256(key.as_bytes()),
            Self::HmacSha256(pepper) => {
                let mut hash = [0; 32];
                hash.copy_from_slice(hmac::sign(pepper, key.as_bytes()).as_ref());
                hash
            }
        }
    }
}
