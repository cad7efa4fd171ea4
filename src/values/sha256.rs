//! SHA-256 and hexadecimal digits.

use aws_lc_rs::digest::{SHA256, digest};
use std::fmt::Write;

/// Computes the SHA-256 hash of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Encodes bytes as lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
