//! The errors of the parser: what is wrong, where, and in which value.

use super::{BLOCK_BYTES, EnclosingKind, Failure, NO_NAME, ParserState, TapeParser, name_text};
use crate::tape::{
    TapeError,
    error::{SyntaxError, push_pointer_segment, truncate_name},
    text_decoder::block_at,
};

impl TapeParser {
    pub(super) fn unexpected(&self, byte: u8) -> SyntaxError {
        match self.state {
            ParserState::Value if byte == b']' && self.frame.kind == EnclosingKind::Array => SyntaxError::TrailingComma,
            ParserState::Name if byte == b'}' => SyntaxError::TrailingComma,
            ParserState::FirstName | ParserState::Name => SyntaxError::NameIsNotString,
            ParserState::AfterItem => SyntaxError::ExpectedCommaOrArrayEnd,
            ParserState::AfterMember => SyntaxError::ExpectedCommaOrObjectEnd,
            ParserState::Colon => SyntaxError::ExpectedColon,
            ParserState::End => SyntaxError::TrailingCharacters,
            _ => SyntaxError::ExpectedValue,
        }
    }

    #[cold]
    pub(super) fn fail(&self, text: &[u8], error: SyntaxError, end: usize) -> Failure {
        self.describe(text, error.message(), end)
    }

    #[cold]
    pub(super) fn fail_duplicate(&mut self, text: &[u8]) -> Failure {
        let name = truncated(name_text(text, &self.entries, self.frame.name));
        self.frame.name = NO_NAME;
        self.describe(text, &format!("the name '{name}' appears twice in one object"), self.at)
    }

    fn describe(&self, text: &[u8], message: &str, end: usize) -> Failure {
        let reason = self.line.describe(text, end.min(text.len()), message);
        let mut pointer = String::new();
        for frame in self.parents.iter().chain([&self.frame]) {
            match (frame.kind, frame.name) {
                (EnclosingKind::Array, _) => push_pointer_segment(&mut pointer, &frame.count.to_string()),
                (EnclosingKind::Object, name) if name != NO_NAME => {
                    push_pointer_segment(&mut pointer, &truncated(name_text(text, &self.entries, name)));
                }
                _ => {}
            }
        }
        Box::new(TapeError { pointer, reason })
    }
}

/// Decodes the beginning of a name, for a message.
fn truncated(raw: &[u8]) -> String {
    truncate_name(block_at(raw, 0, BLOCK_BYTES))
}
