//! Browser pairing (R88): an operator creates a code, and a browser page redeems it once for a key that is valid for
//! the page's origin and for a limited time. The state is in memory: a restart ends every pairing.

use crate::values::{encode_hex, sha256};
use aws_lc_rs::rand;
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;

/// Prefix of page keys; API keys start with `gp_`.
pub(super) const PAGE_KEY_PREFIX: &str = "gpb_";

/// Lifetime of a code, and the number of wrong guesses that invalidates it.
const CODE_LIFETIME: Duration = Duration::from_secs(120);
const MAX_WRONG_GUESSES: u32 = 5;

/// Alphabet of codes, without characters that are easily confused. A code of 8 characters has 40 bits.
const CODE_ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Maximum number of paired pages; a new one replaces the oldest.
const MAX_PAIRED_PAGES: usize = 1000;

/// Pairings, and the origins whose pages may use them.
#[derive(Clone, Debug)]
pub struct BrowserPairingAccess {
    pairings: Arc<BrowserPairings>,
    origins: Vec<String>,
}

impl BrowserPairingAccess {
    /// Allows the pages of `origins` to use the pairings of the process.
    pub fn new(pairings: &Arc<BrowserPairings>, origins: &[String]) -> Self {
        Self { pairings: Arc::clone(pairings), origins: origins.to_vec() }
    }

    /// Returns whether `key` is valid for pages of `origin`.
    pub(super) fn is_valid_key(&self, key: &str, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin) && self.pairings.is_valid_key(key, origin)
    }
}

/// Pairing codes and paired pages. One instance per process.
#[derive(Debug, Default)]
pub struct BrowserPairings(Mutex<PairingState>);

#[derive(Debug, Default)]
struct PairingState {
    code: Option<PairingCode>,
    pages: Vec<PairedPage>,
}

#[derive(Debug)]
struct PairingCode {
    hash: [u8; 32],
    expires_at: Instant,
    wrong_guesses: u32,
}

#[derive(Debug)]
struct PairedPage {
    hash: [u8; 32],
    origin: Box<str>,
    expires_at: Instant,
}

impl BrowserPairings {
    /// Creates a code, invalidates the previous code, and returns the new code with its lifetime. `None` if the system
    /// has no randomness.
    pub fn create_code(&self) -> Option<(String, Duration)> {
        let mut bytes = [0; 8];
        rand::fill(&mut bytes).ok()?;
        let letter = |byte: &u8| CODE_ALPHABET.get(usize::from(byte & 31)).copied().map(char::from);
        let code: String = bytes.iter().filter_map(letter).collect();
        let pairing =
            PairingCode { hash: sha256(code.as_bytes()), expires_at: Instant::now() + CODE_LIFETIME, wrong_guesses: 0 };
        self.0.lock().code = Some(pairing);
        let (first, last) = code.split_at(4);
        Some((format!("{first}-{last}"), CODE_LIFETIME))
    }

    /// Redeems `code` once for a key that is valid for pages of `origin` during `lifetime`.
    pub fn redeem_code(&self, code: &str, origin: &str, lifetime: Duration) -> Option<String> {
        let normalized: String =
            code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).ok()?;
        let now = Instant::now();
        let mut state = self.0.lock();
        let mut pending = state.code.take().filter(|pending| pending.expires_at > now)?;
        if !bool::from(pending.hash.ct_eq(&sha256(normalized.as_bytes()))) {
            pending.wrong_guesses += 1;
            state.code = Some(pending).filter(|pending| pending.wrong_guesses < MAX_WRONG_GUESSES);
            return None;
        }
        let key = format!("{PAGE_KEY_PREFIX}{}", encode_hex(&bytes));
        state.pages.retain(|page| page.expires_at > now);
        if state.pages.len() >= MAX_PAIRED_PAGES {
            state.pages.remove(0);
        }
        state.pages.push(PairedPage {
            hash: sha256(key.as_bytes()),
            origin: origin.into(),
            expires_at: now + lifetime,
        });
        Some(key)
    }

    /// Returns whether `key` was issued to pages of `origin` and has not expired.
    fn is_valid_key(&self, key: &str, origin: &str) -> bool {
        let (hash, now) = (sha256(key.as_bytes()), Instant::now());
        let state = self.0.lock();
        let page = state.pages.iter().find(|page| bool::from(page.hash.ct_eq(&hash)));
        page.is_some_and(|page| page.expires_at > now && *page.origin == *origin)
    }
}
