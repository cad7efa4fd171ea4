//! Tokenizer from text to index terms, for agents and for queries. It stems English only, and splits scripts without
//! spaces into pairs of characters.

use foldhash::fast::RandomState;
use rust_stemmers::{Algorithm, Stemmer};
use std::{borrow::Cow, collections::HashMap};
use unicode_normalization::UnicodeNormalization;

/// Maximum number of characters of a term; the rest is ignored.
const MAX_TERM_CHARS: usize = 40;

/// English stop words.
const STOP_WORDS: &[&str] = &[
    "a", "about", "all", "am", "an", "and", "any", "are", "as", "at", "be", "been", "being", "but", "by", "can",
    "could", "did", "do", "does", "every", "for", "from", "had", "has", "have", "he", "her", "here", "him", "his",
    "how", "i", "if", "in", "into", "is", "it", "its", "just", "like", "may", "me", "might", "must", "my", "no", "not",
    "of", "on", "or", "our", "please", "s", "shall", "she", "should", "so", "some", "someone", "such", "t", "than",
    "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "us", "want", "was", "we",
    "were", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you", "your",
];

/// Role of the text that is tokenized.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextRole {
    /// Text of an agent: every form that a query may use.
    Agent,
    /// Text of a query: the most exact form only.
    Query,
}

/// Maximum number of words whose stems are cached. Agents share words, and stemming is the slowest part of indexing.
const MAX_CACHED_TERMS: usize = 20_000;

/// Tokenizes text into terms.
pub(super) struct TermTokenizer {
    stemmer: Stemmer,
    role: TextRole,
    term_cache: HashMap<Box<str>, Box<str>, RandomState>,
}

impl TermTokenizer {
    pub(super) fn new(role: TextRole) -> Self {
        Self { stemmer: Stemmer::create(Algorithm::English), role, term_cache: HashMap::default() }
    }

    /// Passes each term of `text` to `emit`, in order.
    pub(super) fn tokenize(&mut self, text: &str, emit: &mut impl FnMut(&str)) {
        let normalized = normalize_text(text);
        for run in normalized.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty()) {
            if run.chars().any(is_unspaced_script) {
                self.emit_character_pairs(run, emit)
            } else {
                self.emit_word_and_parts(run, emit)
            }
        }
    }

    /// Emits `translateText` as one word, and for agents `translate` and `text` too.
    fn emit_word_and_parts(&mut self, run: &str, emit: &mut impl FnMut(&str)) {
        self.emit_word(run, emit);
        if self.role == TextRole::Query {
            return;
        }
        let (mut start, mut previous_is_lowercase) = (0, false);
        for (at, c) in run.char_indices() {
            if previous_is_lowercase && c.is_uppercase() {
                self.emit_word(run.get(start..at).unwrap_or_default(), emit);
                start = at;
            }
            previous_is_lowercase = c.is_lowercase();
        }
        if start > 0 {
            self.emit_word(run.get(start..).unwrap_or_default(), emit);
        }
    }

    fn emit_word(&mut self, word: &str, emit: &mut impl FnMut(&str)) {
        let word = word.char_indices().nth(MAX_TERM_CHARS).map_or(word, |(end, _)| word.split_at(end).0);
        let term = match self.term_cache.get(word) {
            Some(term) => term,
            None => {
                if self.term_cache.len() >= MAX_CACHED_TERMS {
                    self.term_cache.clear();
                }
                let term = self.stem_word(word);
                self.term_cache.entry(word.into()).or_insert(term)
            }
        };
        if !term.is_empty() {
            emit(term);
        }
    }

    /// Returns the term of a word; empty for a stop word.
    fn stem_word(&self, word: &str) -> Box<str> {
        let word = word.to_lowercase();
        if STOP_WORDS.binary_search(&word.as_str()).is_ok() {
            return "".into();
        }
        // The stemmer expects English; other words change equally in agents and queries, so that they still match.
        if word.bytes().all(|b| b.is_ascii_lowercase()) { self.stemmer.stem(&word).into() } else { word.into() }
    }

    /// Emits pairs of characters, and single characters for agents and for queries of one character.
    fn emit_character_pairs(&mut self, run: &str, emit: &mut impl FnMut(&str)) {
        let mut rest = run;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c| is_unspaced_script(c) != is_unspaced_script(first)).unwrap_or(rest.len());
            let (segment, tail) = rest.split_at(end);
            rest = tail;
            if !is_unspaced_script(first) {
                self.emit_word_and_parts(segment, emit);
                continue;
            }
            let starts: Vec<usize> = segment.char_indices().map(|(at, _)| at).chain([segment.len()]).collect();
            let windows = |width: usize| starts.iter().zip(starts.iter().skip(width));
            if self.role == TextRole::Agent || starts.len() == 2 {
                windows(1).for_each(|(from, to)| emit(segment.get(*from..*to).unwrap_or_default()));
            }
            windows(2).for_each(|(from, to)| emit(segment.get(*from..*to).unwrap_or_default()));
        }
    }
}

/// Normalizes compatibility forms (full width, ligatures) and removes accents. Other marks stay: in Japanese, Hindi or
/// Thai they make another word.
fn normalize_text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    text.nfkd().filter(|c| !('\u{300}'..='\u{36f}').contains(c)).nfc().collect::<String>().into()
}

/// Returns whether `c` is of a script whose words are not separated by spaces, or whose spaces carry little meaning.
fn is_unspaced_script(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff // Thai, Lao
        | 0x1000..=0x109f // Burmese
        | 0x1780..=0x17ff // Khmer
        | 0x3040..=0x30ff | 0x31f0..=0x31ff // kana
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x3ffff // ideographs
        | 0xac00..=0xd7af // Hangul
    )
}
