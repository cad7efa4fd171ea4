//! Hashes under which keys and requests are stored. They are equal in every gateway, process and release, so that
//! gateways can share a store.

use aws_lc_rs::digest::{Context, Digest, SHA256};

/// Domain and version of the hash of a key. A change makes every stored key a new one.
const KEY_DOMAIN: [u8; 8] = *b"idemkey1";

/// Hash of an owner, a target and an idempotency key: SHA-256 over the domain `idemkey1`, the lengths of the three as
/// 64-bit big-endian integers, and the three. A collision would replay the response of another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Computes the hash of a key that belongs to a caller and an agent.
    pub fn new(owner: &str, target: &str, key: &str) -> Self {
        let parts = [owner, target, key];
        let [owner_length, target_length, key_length] = parts.map(|part| (part.len() as u64).to_be_bytes());
        let mut context = Context::new(&SHA256);
        context.update([KEY_DOMAIN, owner_length, target_length, key_length].as_flattened());
        parts.iter().for_each(|part| context.update(part.as_bytes()));
        Self(to_array(&context.finish()))
    }

    pub(super) const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Returns the bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Computes the digest that identifies a request: SHA-256 over its parts, each with its length.
pub fn request_digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    to_array(&context.finish())
}

fn to_array(digest: &Digest) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}
