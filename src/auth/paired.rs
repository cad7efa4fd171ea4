//! Browser pairing (R88): an operator creates a code, and a browser page redeems it once for a key that is valid for
//! the page's origin and a limited time. All state is in memory: a restart ends every pairing.

use super::{
    access::Access,
    caller::{Bad, Caller, CallerKind, Verdict},
    peer::hex,
};
use aws_lc_rs::{digest, rand};
use http::{HeaderMap, HeaderName, header};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq;

/// Prefix of page keys; API keys start with `gp_`.
const PAGE_KEY_PREFIX: &str = "gpb_";

/// Lifetime of a code, and the number of wrong guesses that invalidates it.
const CODE_HOLDS: Duration = Duration::from_secs(120);
const MISSES: u32 = 5;

/// Alphabet of codes, without letters that are easily confused. 8 of 32 letters are 40 bits, for five guesses.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Maximum number of paired pages; the oldest is dropped for a new one.
const MOST: usize = 1000;

type Hash = [u8; 32];

/// Pairing codes and paired pages. One instance per process.
#[derive(Debug, Default)]
pub struct Paired(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    code: Option<Code>,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Code {
    hash: Hash,
    ends: Instant,
    misses: u32,
}

#[derive(Debug)]
struct Page {
    hash: Hash,
    origin: Box<str>,
    ends: Instant,
}

impl Paired {
    /// Creates a code and returns it with its lifetime; `None` without randomness. Invalidates the previous code.
    pub fn offer(&self) -> Option<(String, Duration)> {
        let mut bytes = [0; 8];
        rand::fill(&mut bytes).ok()?;
        let letter = |byte: &u8| LETTERS.get(usize::from(byte & 31)).copied().map(char::from);
        let code: String = bytes.iter().filter_map(letter).collect();
        let offered = Code { hash: hash(&code), ends: Instant::now() + CODE_HOLDS, misses: 0 };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).code = Some(offered);
        let (first, last) = code.split_at(4);
        Some((format!("{first}-{last}"), CODE_HOLDS))
    }

    /// Redeems `code` once for a key that is valid for pages of `origin` during `span`.
    pub fn redeem(&self, code: &str, origin: &str, span: Duration) -> Option<String> {
        let plain: String = code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).ok()?;
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut offered = state.code.take().filter(|offered| offered.ends > now)?;
        if !bool::from(offered.hash.ct_eq(&hash(&plain))) {
            offered.misses += 1;
            state.code = Some(offered).filter(|offered| offered.misses < MISSES);
            return None;
        }
        let key = format!("{PAGE_KEY_PREFIX}{}", hex(&bytes));
        state.pages.retain(|page| page.ends > now);
        if state.pages.len() >= MOST {
            state.pages.remove(0);
        }
        state.pages.push(Page { hash: hash(&key), origin: origin.into(), ends: now + span });
        Some(key)
    }

    fn holds(&self, key: &str, origin: &str) -> bool {
        let (hash, now) = (hash(key), Instant::now());
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = state.pages.iter().find(|page| bool::from(page.hash.ct_eq(&hash)));
        found.is_some_and(|page| page.ends > now && *page.origin == *origin)
    }
}

fn hash(text: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    hash
}

/// Authenticator of paired pages for one configuration.
#[derive(Debug)]
pub(super) struct Pages {
    paired: Arc<Paired>,
    /// Origins that the configuration allows.
    origins: Vec<String>,
    header: HeaderName,
    access: Arc<Access>,
}

impl Pages {
    pub(super) fn new(paired: Arc<Paired>, origins: Vec<String>, header: HeaderName, access: Arc<Access>) -> Self {
        Self { paired, origins, header, access }
    }

    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Checks a page key. The key is valid only for the origin it was issued to.
    pub(super) fn check(&self, headers: &HeaderMap) -> Verdict {
        let key = headers.get(&self.header).and_then(|key| key.to_str().ok());
        let Some(key) = key.filter(|key| key.starts_with(PAGE_KEY_PREFIX)) else { return Verdict::NotMine };
        let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok()).unwrap_or_default();
        let known = self.origins.iter().any(|known| known == origin) && self.paired.holds(key, origin);
        if !known {
            return Verdict::Bad(Bad::new("the page's key is not valid"));
        }
        let id = format!("browser:{origin}");
        let grants = self.access.for_caller(&id, &[]);
        Verdict::Known(Arc::new(Caller {
            id: id.into(),
            kind: CallerKind::Key,
            groups: Arc::default(),
            scopes: Arc::default(),
            tier: None,
            grants,
        }))
    }
}
