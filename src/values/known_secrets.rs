//! The secrets that the gateway holds, and their removal from text (R131): plain, in Base64 and hexadecimal, as decimal
//! bytes, behind the escapes of JSON, URLs and HTML, and the halves of long ones, which a cut text has.
//! [`super::SecretRef::load`] registers each secret that it loads, so that text of an agent that repeats a secret is
//! recognised by the secret itself and not by its format.

use aho_corasick::AhoCorasick;
use arc_swap::ArcSwapOption;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, LazyLock},
};

/// The shortest secret that is searched for; a shorter one would remove words from messages.
const MIN_KNOWN_SECRET_LEN: usize = 8;
/// The shortest line of a key file that counts as a secret of its own.
const MIN_LINE_LEN: usize = 16;
/// The shortest half of a secret that is searched for.
const MIN_HALF_LEN: usize = 12;
/// The fewest decimal numbers in a row that may be a secret.
const MIN_DECIMALS: usize = MIN_KNOWN_SECRET_LEN;
/// The most bytes of configured secrets that are remembered, which bounds the automaton; the one that was not loaded for
/// the longest time is forgotten first.
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
    /// The configured secrets, each with the number of its last load.
    configured: HashMap<Box<str>, u64>,
    configured_bytes: usize,
    loads: u64,
    /// The oldest first.
    tokens: VecDeque<Box<str>>,
    /// Whether a configured secret was forgotten, or not remembered.
    is_incomplete: bool,
}

impl SecretList {
    /// Adds a configured secret, or makes it the last to be forgotten; returns whether it is new.
    fn insert(&mut self, text: &str) -> bool {
        if text.len() < MIN_KNOWN_SECRET_LEN {
            return false;
        }
        self.loads += 1;
        if let Some(last_load) = self.configured.get_mut(text) {
            *last_load = self.loads;
            return false;
        }
        if text.len() > MAX_SECRET_BYTES {
            self.is_incomplete = true;
            return false;
        }
        while self.configured_bytes + text.len() > MAX_SECRET_BYTES {
            let Some(oldest) = self.configured.iter().min_by_key(|(_, load)| **load).map(|(secret, _)| secret.clone())
            else {
                break;
            };
            self.configured.remove(&oldest);
            self.configured_bytes -= oldest.len();
            self.is_incomplete = true;
        }
        self.configured_bytes += text.len();
        self.configured.insert(text.into(), self.loads);
        true
    }

    fn build_matcher(&self) -> Option<Arc<AhoCorasick>> {
        let patterns: Vec<String> =
            self.configured.keys().chain(&self.tokens).flat_map(|text| encodings(text)).collect();
        // The bounds above keep the automaton far below the crate's own.
        AhoCorasick::builder().ascii_case_insensitive(true).build(patterns).ok().map(Arc::new)
    }
}

impl KnownSecrets {
    pub(super) fn register(&self, text: &str) {
        let mut secrets = self.secrets.lock();
        let (mut is_changed, was_incomplete) = (false, secrets.is_incomplete);
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
        let is_newly_incomplete = secrets.is_incomplete && !was_incomplete;
        drop(secrets);
        if is_newly_incomplete {
            tracing::warn!(
                "more than {} KiB of secrets were loaded: the oldest are no longer removed from logs and answers (use \
                 fewer or shorter secrets, or restart the gateway after many were replaced)",
                MAX_SECRET_BYTES >> 10
            );
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
        // One secret may begin with another, or with the end of another: every match counts.
        let mut found: Vec<Range<usize>> = matcher.find_overlapping_iter(text).map(|secret| secret.range()).collect();
        if let Some(decoded) = DecodedView::of_decimals(text.as_bytes()) {
            let matches = matcher.find_overlapping_iter(&decoded.bytes);
            found.extend(matches.map(|secret| decoded.original_range(secret.range())));
        }
        let mut view = DecodedView::of(text.as_bytes());
        for _ in 0..MAX_DECODE_PASSES {
            let Some(decoded) = view else { break };
            let matches = matcher.find_overlapping_iter(&decoded.bytes);
            found.extend(matches.map(|secret| decoded.original_range(secret.range())));
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

/// Returns the halves of a secret, if they are long enough and have letters and digits: others may be words. Those of a
/// URL would hide its host in every message; its password is a secret by itself.
fn halves(secret: &str) -> impl Iterator<Item = &str> {
    let (first, second) = secret.split_at(secret.floor_char_boundary(secret.len() / 2));
    let is_no_word = |half: &&str| {
        half.len() >= MIN_HALF_LEN
            && !secret.contains("://")
            && half.bytes().any(|byte| byte.is_ascii_digit())
            && half.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    [first, second].into_iter().filter(is_no_word)
}

/// Returns the forms of a secret that contain no escapes: plain, hexadecimal, and Base64 in its two alphabets. Within
/// longer text, Base64 has one of three forms: at each, the characters count that depend on the secret alone.
fn encodings(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let mut encodings = vec![secret.to_owned(), super::encode_hex(bytes)];
    encodings.extend(halves(secret).map(str::to_owned));
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

    /// Reads runs of decimal bytes, as Rust and JSON write arrays: `[115, 101]`; `None` if there is none that is long
    /// enough.
    fn of_decimals(text: &[u8]) -> Option<Self> {
        if memchr::memchr_iter(b',', text).take(MIN_DECIMALS - 1).count() < MIN_DECIMALS - 1 {
            return None;
        }
        let mut view = Self { bytes: Vec::new(), offsets: Vec::new() };
        let (mut at, mut run, mut longest) = (0, 0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = rest.get(..digits).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u8>().ok());
            if let Some(byte) = number {
                run += 1;
                longest = longest.max(run);
                view.bytes.push(byte);
                view.offsets.push(at);
                at += digits;
                let is_separator = |byte: &u8| *byte == b',' || byte.is_ascii_whitespace();
                at += rest.iter().skip(digits).take_while(|byte| is_separator(byte)).count();
            } else {
                // Ends the run; what is no number is none of the secret's bytes.
                if run > 0 || view.bytes.is_empty() {
                    view.bytes.push(0);
                    view.offsets.push(at);
                }
                run = 0;
                at += digits.max(1);
            }
        }
        view.offsets.push(text.len());
        (longest >= MIN_DECIMALS).then_some(view)
    }

    fn decode_again(&self) -> Option<Self> {
        Self::decode(&self.bytes, |at| self.offsets.get(at).copied().unwrap_or_default())
    }

    fn original_range(&self, range: Range<usize>) -> Range<usize> {
        let offset = |at: usize| self.offsets.get(at).copied().unwrap_or_default();
        offset(range.start)..offset(range.end)
    }

    fn decode(text: &[u8], original: impl Fn(usize) -> usize) -> Option<Self> {
        let find_escape = |text: &[u8]| memchr::memchr3(b'%', b'\\', b'&', text);
        find_escape(text)?;
        let mut view = Self { bytes: Vec::with_capacity(text.len()), offsets: Vec::with_capacity(text.len() + 1) };
        let (mut at, mut is_changed) = (0, false);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let mut utf8 = [0; 4];
            let (decoded, length): (&[u8], usize) = match decode_escape(rest) {
                // A percent escape is one byte; the other escapes are characters.
                Some((c, length)) if rest.first() == Some(&b'%') => {
                    utf8 = [u8::try_from(u32::from(c)).unwrap_or_default(), 0, 0, 0];
                    (utf8.get(..1).unwrap_or_default(), length)
                }
                Some((c, length)) => (c.encode_utf8(&mut utf8).as_bytes(), length),
                None => {
                    // Up to the next byte that may begin an escape.
                    let next = rest.get(1..).and_then(find_escape).map_or(rest.len(), |next| next + 1);
                    view.bytes.extend_from_slice(rest.get(..next).unwrap_or_default());
                    view.offsets.extend((at..at + next).map(&original));
                    at += next;
                    continue;
                }
            };
            is_changed = true;
            view.bytes.extend_from_slice(decoded);
            view.offsets.extend(decoded.iter().map(|_| original(at)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r131_the_secret_that_was_not_loaded_for_the_longest_time_is_forgotten_first() {
        let mut secrets = SecretList::default();
        let large = |name: &str| format!("{name}{}", "x".repeat(60 << 10));
        for name in ["first", "second", "third", "fourth"] {
            assert!(secrets.insert(&large(name)), "{name}");
        }
        assert!(!secrets.insert(&large("first")) && !secrets.is_incomplete);
        assert!(secrets.insert(&large("fifth")) && secrets.is_incomplete);
        assert!(!secrets.configured.contains_key(large("second").as_str()));
        for name in ["first", "third", "fourth", "fifth"] {
            assert!(secrets.configured.contains_key(large(name).as_str()), "{name}");
        }
        // A secret beyond the bound replaces no others.
        assert!(!secrets.insert(&"y".repeat(300 << 10)));
        assert_eq!(secrets.configured.len(), 4);
        assert_eq!(secrets.configured_bytes, secrets.configured.keys().map(|secret| secret.len()).sum::<usize>());
    }
}
