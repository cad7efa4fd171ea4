//! The code and the paired pages of a gateway that shares no state: in memory, so that a restart ends every pairing.

use super::pairing_code::MAX_WRONG_GUESSES;
use crate::values::sha256;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// Maximum number of paired pages; a new one replaces the oldest.
const MAX_PAIRED_PAGES: usize = 1000;

/// The code and the paired pages.
#[derive(Debug, Default)]
pub(super) struct LocalPairings(Mutex<PairingState>);

#[derive(Debug, Default)]
struct PairingState {
    code: Option<PendingCode>,
    pages: Vec<PairedPage>,
}

#[derive(Debug)]
struct PendingCode {
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

impl LocalPairings {
    /// Replaces the code.
    pub(super) fn set_code(&self, code: &str, lifetime: Duration) {
        let (hash, expires_at) = (sha256(code.as_bytes()), Instant::now() + lifetime);
        self.0.lock().code = Some(PendingCode { hash, expires_at, wrong_guesses: 0 });
    }

    /// Takes the code if it is equal, and returns whether it was.
    pub(super) fn redeem_code(&self, code: &str) -> bool {
        let mut state = self.0.lock();
        let Some(mut pending) = state.code.take().filter(|pending| pending.expires_at > Instant::now()) else {
            return false;
        };
        let is_equal = bool::from(pending.hash.ct_eq(&sha256(code.as_bytes())));
        if !is_equal {
            pending.wrong_guesses += 1;
            state.code = Some(pending).filter(|pending| pending.wrong_guesses < MAX_WRONG_GUESSES);
        }
        is_equal
    }

    /// Adds a page.
    pub(super) fn add_page(&self, key: &str, origin: &str, lifetime: Duration) {
        let (now, mut state) = (Instant::now(), self.0.lock());
        state.pages.retain(|page| page.expires_at > now);
        if state.pages.len() >= MAX_PAIRED_PAGES {
            state.pages.remove(0);
        }
        let page = PairedPage { hash: sha256(key.as_bytes()), origin: origin.into(), expires_at: now + lifetime };
        state.pages.push(page);
    }

    /// Returns whether `key` was issued to pages of `origin` and has not expired.
    pub(super) fn is_valid_key(&self, key: &str, origin: &str) -> bool {
        let (hash, now) = (sha256(key.as_bytes()), Instant::now());
        let state = self.0.lock();
        let page = state.pages.iter().find(|page| bool::from(page.hash.ct_eq(&hash)));
        page.is_some_and(|page| page.expires_at > now && *page.origin == *origin)
    }
}
