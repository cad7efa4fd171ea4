//! URI templates (RFC 6570, level 4).

use super::{
    Scanner,
    characters::{is_iprivate, is_ucschar},
};

/// Maximum number of digits of a prefix length, which is below 10,000.
const MAX_PREFIX_DIGITS: u8 = 4;

/// A scanner of URI templates.
#[derive(Clone, Debug, Default)]
pub(super) struct UriTemplateScanner {
    part: Part,
    /// Hexadecimal digits that a percent sign still requires.
    hex_digits_left: u8,
}

#[derive(Clone, Copy, Debug, Default)]
enum Part {
    #[default]
    Literal,
    /// After `{`: an operator or a variable.
    Expression,
    /// Before a character of a variable's name.
    NameStart,
    Name,
    /// After `:`, with the number of digits.
    Prefix(u8),
    /// After `*`.
    Explode,
}

impl UriTemplateScanner {
    fn next_part(&self, character: char) -> Option<Part> {
        Some(match (self.part, character) {
            (Part::Literal, '{') => Part::Expression,
            (Part::Literal, _) if is_literal(character) => Part::Literal,
            (Part::Expression, _) if is_operator(character) => Part::NameStart,
            (Part::Expression | Part::NameStart | Part::Name, _) if is_varchar(character) => Part::Name,
            (Part::Name, '.') => Part::NameStart,
            (Part::Name, ':') => Part::Prefix(0),
            (Part::Name, '*') => Part::Explode,
            (Part::Prefix(0), '1'..='9') => Part::Prefix(1),
            (Part::Prefix(digits @ 1..MAX_PREFIX_DIGITS), '0'..='9') => Part::Prefix(digits + 1),
            (Part::Name | Part::Prefix(1..) | Part::Explode, ',') => Part::NameStart,
            (Part::Name | Part::Prefix(1..) | Part::Explode, '}') => Part::Literal,
            _ => return None,
        })
    }
}

impl Scanner for UriTemplateScanner {
    fn read(&mut self, character: char) -> bool {
        if self.hex_digits_left > 0 {
            self.hex_digits_left -= 1;
            return character.is_ascii_hexdigit();
        }
        let Some(part) = self.next_part(character) else { return false };
        self.part = part;
        if character == '%' {
            self.hex_digits_left = 2;
        }
        true
    }

    fn is_complete(&self) -> bool {
        self.hex_digits_left == 0 && matches!(self.part, Part::Literal)
    }
}

/// Returns whether the character is one of `op-level2`, `op-level3` or `op-reserve`.
fn is_operator(character: char) -> bool {
    matches!(character, '+' | '#' | '.' | '/' | ';' | '?' | '&' | '=' | ',' | '!' | '@' | '|')
}

/// Returns whether the character is, or begins, a `varchar`.
fn is_varchar(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '%')
}

/// Returns whether the character is, or begins, one of `literals`. Erratum 6937 adds the apostrophe.
fn is_literal(character: char) -> bool {
    match character {
        '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' => false,
        '!'..='~' => true,
        _ => is_ucschar(character) || is_iprivate(character),
    }
}
