//! Pairing codes: how they look, and how they are stored where gateways share them.

use aws_lc_rs::{pbkdf2, rand};
use std::{num::NonZeroU32, time::Duration};

/// Lifetime of a code, and the number of wrong guesses that invalidates it.
pub(super) const CODE_LIFETIME: Duration = Duration::from_secs(120);
pub(super) const MAX_WRONG_GUESSES: u32 = 5;

/// Alphabet of codes, without characters that are easily confused. A code of 8 characters has 40 bits.
const CODE_ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Rounds of the hash of a shared code. A code is short, so that who reads the store could try all of them within its
/// lifetime if the hash were fast. The gateway computes five of them for a code at most.
const ROUNDS: NonZeroU32 = NonZeroU32::new(100_000).unwrap();
const SALT_LENGTH: usize = 16;

/// A new pairing code, which is shown once.
#[derive(Debug)]
pub struct NewPairingCode {
    /// The code, as a person types it.
    pub code: String,
    /// How long it is valid.
    pub lifetime: Duration,
}

/// Generates a code of 8 characters. `None` if the system has no randomness.
pub(super) fn generate_code() -> Option<String> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).ok()?;
    let letter = |byte: &u8| CODE_ALPHABET.get(usize::from(byte & 31)).copied().map(char::from);
    Some(bytes.iter().filter_map(letter).collect())
}

/// Returns a code as it was generated: a person may type it with a dash, or in lower case.
pub(super) fn normalize_code(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase()
}

/// Returns what the shared state stores of a code: a salt and a slow hash. `None` if the system has no randomness. Blocks
/// for some 50 ms.
pub(super) fn seal_code(code: &str) -> Option<Vec<u8>> {
    let mut salt = [0; SALT_LENGTH];
    rand::fill(&mut salt).ok()?;
    Some(hash_with_salt(code, &salt))
}

/// Returns what the shared state would have stored of a code with the salt of `stored`. Blocks as [`seal_code`].
pub(super) fn seal_like(code: &str, stored: &[u8]) -> Vec<u8> {
    hash_with_salt(code, stored.get(..SALT_LENGTH).unwrap_or_default())
}

fn hash_with_salt(code: &str, salt: &[u8]) -> Vec<u8> {
    let mut hash = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, salt, code.as_bytes(), &mut hash);
    [salt, &hash].concat()
}
