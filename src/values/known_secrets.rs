//! The secrets that the gateway holds, and their removal from text (R131): plain, in Base64 and hexadecimal, and behind
//! the escapes of JSON, URLs and HTML. [`super::SecretRef::load`] registers each secret that it loads, so that text of
//! an agent that repeats a secret is recognised by the secret itself and not by its format.

use aho_corasick::AhoCorasick;
use arc_swap::ArcSwapOption;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
    ops::Range,
    sync::{Arc, LazyLock},
};

/// The shortest secret that is searched for; a shorter one would remove words from messages.
const MIN_KNOWN_SECRET_LEN: usize = 8;
/// The shortest line of a key file that counts as a secret of its own.
const MIN_LINE_LEN: usize = 16;
/// The most bytes of configured secrets that are remembered, which bounds the automaton.
const MAX_SECRET_BYTES: usize = 256 << 10;
/// The most tokens that are remembered; the oldest is forgotten first.
const MAX_TOKENS: usize = 16;
/// How many layers of escapes are decoded, such as JSON within JSON within a URL.
const MAX_DECODE_PASSES: usize = 4;

const REDACTED: &str = "[redacted]";

static KNOWN_SECRETS: LazyLock<KnownSecrets> = LazyLock::new(KnownSecrets::default);

/// Registers a secret of the configuration. A short secret is not registered.
pub fn register_secret(secret: &str) {
    KNOWN_SECRETS.register(secret);
}

/// Registers a token that the gateway was issued, which a later one replaces.
pub fn register_token(token: &str) {
    KNOWN_SECRETS.register_token(token);
}

/// Returns `text` with each secret of this process replaced by `[redacted]`; borrows `text` if it has none.
pub fn redact_known_secrets(text: &str) -> Cow<'_, str> {
    KNOWN_SECRETS.redact(text)
}

/// Returns whether `bytes` contain a secret of this process.
pub fn contains_known_secret(bytes: &[u8]) -> bool {
    matches!(redact_known_secrets(&String::from_utf8_lossy(bytes)), Cow::Owned(_))
}

/// A set of secrets, and the automaton that finds them.
#[derive(Default)]
pub(super) struct KnownSecrets {
    secrets: Mutex<SecretList>,
    matcher: ArcSwapOption<AhoCorasick>,
}

#[derive(Default)]
struct SecretList {
    configured: HashSet<Box<str>>,
    configured_bytes: usize,
    /// The oldest first.
    tokens: VecDeque<Box<str>>,
}

impl SecretList {
    /// Adds a configured secret; returns whether it is new.
    fn insert(&mut self, text: &str) -> bool {
        let is_bounded = self.configured_bytes + text.len() <= MAX_SECRET_BYTES;
        let is_new = text.len() >= MIN_KNOWN_SECRET_LEN && is_bounded && self.configured.insert(text.into());
        if is_new {
            self.configured_bytes += text.len();
        }
        is_new
    }

    fn build_matcher(&self) -> Option<Arc<AhoCorasick>> {
        let patterns: Vec<String> =
            self.configured.iter().chain(&self.tokens).flat_map(|text| encodings(text)).collect();
        // The bounds above keep the automaton far below the crate's own.
        AhoCorasick::builder().ascii_case_insensitive(true).build(patterns).ok().map(Arc::new)
    }
}

impl KnownSecrets {
    pub(super) fn register(&self, text: &str) {
        let mut secrets = self.secrets.lock();
        let mut is_changed = false;
        // A key file has several lines; a log may repeat one of them.
        if text.trim().contains('\n') {
            let lines = text.lines().map(str::trim);
            for line in lines.filter(|line| line.len() >= MIN_LINE_LEN && !line.starts_with("-----")) {
                is_changed |= secrets.insert(line);
            }
        } else {
            is_changed |= secrets.insert(text.trim());
            if let Some(password) = url_password(text) {
                is_changed |= secrets.insert(password);
                is_changed |= super::percent_decode(password).is_some_and(|password| secrets.insert(&password));
            }
        }
        if is_changed {
            self.matcher.store(secrets.build_matcher());
        }
    }

    pub(super) fn register_token(&self, text: &str) {
        let mut secrets = self.secrets.lock();
        if text.len() < MIN_KNOWN_SECRET_LEN || secrets.tokens.iter().any(|token| **token == *text) {
            return;
        }
        secrets.tokens.push_back(text.into());
        if secrets.tokens.len() > MAX_TOKENS {
            secrets.tokens.pop_front();
        }
        self.matcher.store(secrets.build_matcher());
    }

    pub(super) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(matcher) = self.matcher.load_full() else { return Cow::Borrowed(text) };
        let mut found: Vec<Range<usize>> = matcher.find_iter(text).map(|secret| secret.start()..secret.end()).collect();
        let mut view = DecodedView::of(text.as_bytes());
        for _ in 0..MAX_DECODE_PASSES {
            let Some(decoded) = view else { break };
            found.extend(matcher.find_iter(&decoded.bytes).map(|secret| decoded.original_range(secret.range())));
            view = decoded.decode_again();
        }
        if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replace_ranges(text, found)) }
    }
}

/// Returns the password of a URL such as `postgres://user:password@host/`.
fn url_password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (userinfo, _) = authority.rsplit_once('@')?;
    userinfo.split_once(':').map(|(_, password)| password)
}

/// Returns the forms of a secret that contain no escapes: plain, hexadecimal, and Base64 in its two alphabets. Within
/// longer text, Base64 has one of three forms: at each, the characters count that depend on the secret alone.
fn encodings(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let mut encodings = vec![secret.to_owned(), super::encode_hex(bytes)];
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        for before in 0..3 {
            let padded: Vec<u8> = std::iter::repeat_n(0, before).chain(bytes.iter().copied()).collect();
            let text = engine.encode(&padded);
            let (start, end) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
            encodings.extend(text.get(start..end).map(str::to_owned));
        }
    }
    encodings
}

/// A text without its escapes, with the place in the original text of each byte.
struct DecodedView {
    bytes: Vec<u8>,
    /// Start of each byte in the original text, and the end of the last one.
    offsets: Vec<usize>,
}

impl DecodedView {
    /// Decodes `text`; `None` if it has no escape.
    fn of(text: &[u8]) -> Option<Self> {
        Self::decode(text, |at| at)
    }

    fn decode_again(&self) -> Option<Self> {
        Self::decode(&self.bytes, |at| self.offsets.get(at).copied().unwrap_or_default())
    }

    fn original_range(&self, range: Range<usize>) -> Range<usize> {
        let offset = |at: usize| self.offsets.get(at).copied().unwrap_or_default();
        offset(range.start)..offset(range.end)
    }

    fn decode(text: &[u8], original: impl Fn(usize) -> usize) -> Option<Self> {
        memchr::memchr3(b'%', b'\\', b'&', text)?;
        let mut view = Self { bytes: Vec::with_capacity(text.len()), offsets: Vec::with_capacity(text.len() + 1) };
        let (mut at, mut is_changed) = (0, false);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let mut utf8 = [0; 4];
            let (decoded, length): (&[u8], usize) = match decode_escape(rest) {
                Some((c @ '\0'..='\u{7f}', length)) => (c.encode_utf8(&mut utf8).as_bytes(), length),
                // A percent escape is one byte; the other escapes are characters.
                Some((c, 3)) if rest.first() == Some(&b'%') => {
                    utf8 = [u8::try_from(u32::from(c)).unwrap_or_default(), 0, 0, 0];
                    (utf8.get(..1).unwrap_or_default(), 3)
                }
                Some((c, length)) => (c.encode_utf8(&mut utf8).as_bytes(), length),
                None => (rest.get(..1).unwrap_or_default(), 1),
            };
            is_changed |= length > 1;
            for byte in decoded {
                view.bytes.push(*byte);
                view.offsets.push(original(at));
            }
            at += length;
        }
        view.offsets.push(original(text.len()));
        is_changed.then_some(view)
    }
}

/// Decodes the escape at the start of `text`; returns the character, or the byte of a percent escape, and the length.
fn decode_escape(text: &[u8]) -> Option<(char, usize)> {
    let hex = |range: Range<usize>| {
        let digits = std::str::from_utf8(text.get(range)?).ok()?;
        u32::from_str_radix(digits, 16).ok().filter(|_| digits.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    match (text.first()?, text.get(1)?) {
        (b'%', _) => Some((char::from_u32(hex(1..3)?)?, 3)),
        (b'\\', b'u') => Some((char::from_u32(hex(2..6)?)?, 6)),
        (b'\\', b'x') => Some((char::from_u32(hex(2..4)?)?, 4)),
        (b'\\', escaped @ (b'"' | b'\'' | b'\\' | b'/')) => Some((char::from(*escaped), 2)),
        (b'&', b'#') => {
            let end = text.iter().take(10).position(|byte| *byte == b';')?;
            let digits = std::str::from_utf8(text.get(2..end)?).ok()?;
            let code = match digits.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => digits.parse().ok()?,
            };
            Some((char::from_u32(code)?, end + 1))
        }
        (b'&', _) => {
            let entities = [("&amp;", '&'), ("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\'')];
            let (name, c) = entities.into_iter().find(|(name, _)| text.starts_with(name.as_bytes()))?;
            Some((c, name.len()))
        }
        _ => None,
    }
}

fn replace_ranges(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_by_key(|range| range.start);
    let (mut redacted, mut position) = (String::with_capacity(text.len()), 0);
    for range in ranges {
        let (start, end) = (text.floor_char_boundary(range.start), text.ceil_char_boundary(range.end));
        if start >= position && start < end {
            redacted.push_str(text.get(position..start).unwrap_or_default());
            redacted.push_str(REDACTED);
        }
        position = position.max(end);
    }
    redacted.push_str(text.get(position..).unwrap_or_default());
    redacted
}
