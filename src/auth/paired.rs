//! Pages in a browser that were paired by hand (R88): an operator makes a code, the page shows it once, and gets a key
//! that holds for that page's origin and for a while. All of it lives in memory: a restart ends every pairing.

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

/// How a page's key begins; API keys begin with `gp_`.
const MARK: &str = "gpb_";

/// How long a code holds, and how often it may be missed.
const CODE_HOLDS: Duration = Duration::from_secs(120);
const MISSES: u32 = 5;

/// Letters of codes: none that is mistaken for another. 32 of them, 8 times, are 40 bits for five guesses.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// Pages that are paired at once; the oldest goes for the newest.
const MOST: usize = 1000;

type Hash = [u8; 32];

/// Codes and pages. One for the life of the process.
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
    /// A new code, and how long it holds; none where there is no randomness. The one before counts no more.
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

    /// A key for pages of `origin`, which holds for `span`, if `code` is the one that was offered. It counts once.
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
        let key = format!("{MARK}{}", hex(&bytes));
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

/// The pages that count under one configuration.
#[derive(Debug)]
pub(super) struct Pages {
    paired: Arc<Paired>,
    /// Origins that are still configured.
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

    /// Whose key it is; another page that got hold of it is nobody.
    pub(super) fn check(&self, headers: &HeaderMap) -> Verdict {
        let key = headers.get(&self.header).and_then(|key| key.to_str().ok());
        let Some(key) = key.filter(|key| key.starts_with(MARK)) else { return Verdict::NotMine };
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
