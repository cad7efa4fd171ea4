//! WordPiece tokenizer of BERT's uncased models: converts to lower case without accents, separates punctuation and
//! ideographs, and then takes the longest known piece first.

use super::piece_table::{PieceKind, PieceTable};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Maximum number of characters of a word, as in the tokenizer of the model's training; a longer word is unknown.
const MAX_WORD_CHARS: usize = 100;

/// Splits words into the pieces of a model's vocabulary.
pub(super) struct WordPieceTokenizer {
    pieces: PieceTable,
}

impl WordPieceTokenizer {
    pub(super) fn new(pieces: PieceTable) -> Self {
        Self { pieces }
    }

    /// Passes the id of each piece of `text` to `emit`, until it returns false. Unknown words are skipped. Returns the
    /// share of the words that are pieces themselves: the meaning of the others is approximated from their parts.
    pub(super) fn tokenize(&self, text: &str, emit: &mut impl FnMut(u32) -> bool) -> f32 {
        let (mut words, mut known_words) = (0.0, 0.0);
        let normalized = normalize_text(text);
        let mut rest = normalized.as_str();
        while let Some(first) = rest.chars().next() {
            let is_boundary = |c: char| c.is_whitespace() || is_standalone(c);
            let end = if is_boundary(first) { first.len_utf8() } else { rest.find(is_boundary).unwrap_or(rest.len()) };
            let (word, tail) = rest.split_at(end);
            rest = tail;
            // A single letter or sign has no meaning; a single ideograph is not a word to a model of another language.
            if word.len() > 1 && !first.is_whitespace() {
                words += 1.0;
                known_words += if !is_standalone(first) && self.pieces.get(PieceKind::WordStart, word).is_some() {
                    1.0
                } else {
                    0.0
                };
            }
            if !first.is_whitespace() && !self.tokenize_word(word, emit) {
                break;
            }
        }
        if words > 0.0 { known_words / words } else { 1.0 }
    }

    fn tokenize_word(&self, word: &str, emit: &mut impl FnMut(u32) -> bool) -> bool {
        if word.chars().count() > MAX_WORD_CHARS {
            return true;
        }
        let mut pieces = Vec::with_capacity(8);
        let mut rest = word;
        while !rest.is_empty() {
            let kind = if rest.len() == word.len() { PieceKind::WordStart } else { PieceKind::Continuation };
            let (window, _) = rest.split_at(rest.floor_char_boundary(self.pieces.max_piece_bytes()));
            let ends = window.char_indices().rev().map(|(at, c)| at + c.len_utf8());
            let mut splits = ends.filter_map(|end| rest.split_at_checked(end));
            let Some((id, tail)) = splits.find_map(|(piece, tail)| Some((self.pieces.get(kind, piece)?, tail))) else {
                return true;
            };
            pieces.push(id);
            rest = tail;
        }
        pieces.into_iter().all(emit)
    }
}

fn normalize_text(text: &str) -> String {
    if text.bytes().all(|b| b.is_ascii() && (!b.is_ascii_control() || b.is_ascii_whitespace())) {
        return text.to_ascii_lowercase();
    }
    let normalized = text.nfd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase);
    normalized.filter(|c| c.is_whitespace() || !(c.is_control() || is_format_character(*c))).collect()
}

/// Returns whether `c` only controls formatting: soft hyphens, joiners, directions.
fn is_format_character(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Returns whether `c` is a token of its own: punctuation or an ideograph.
fn is_standalone(c: char) -> bool {
    match u32::from(c) {
        0x21..=0x2f | 0x3a..=0x40 | 0x5b..=0x60 | 0x7b..=0x7e => true,
        0..=0x7f => false,
        // Unicode's punctuation blocks, which contain no letters.
        0xa1 | 0xa7 | 0xab | 0xb6 | 0xb7 | 0xbb | 0xbf => true,
        0x2010..=0x2027 | 0x2030..=0x205e | 0x3001..=0x3003 | 0x3008..=0x3011 | 0x3014..=0x301f => true,
        0xff01..=0xff0f | 0xff1a..=0xff20 | 0xff3b..=0xff40 | 0xff5b..=0xff65 => true,
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x20000..=0x2fa1f => true,
        _ => false,
    }
}
