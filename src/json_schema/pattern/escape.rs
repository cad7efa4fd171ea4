//! The parser of escapes, group names and character classes.

use super::PatternError;
use super::code_points::{CodePointSet, digits, white_space, word_characters};
use super::parser::{Grammar, Parser};
use super::property::PropertyError;
use super::syntax::Expression;

/// Ranges of one class that are collected before they are merged.
const MAX_UNMERGED_RANGES: usize = 16_384;

/// A part of a character class.
enum ClassAtom {
    CodePoint(u32),
    Set(CodePointSet),
}

impl ClassAtom {
    fn push_to(self, ranges: &mut Vec<(u32, u32)>) {
        match self {
            Self::CodePoint(code_point) => ranges.push((code_point, code_point)),
            Self::Set(set) => ranges.extend_from_slice(set.ranges()),
        }
    }
}

impl Parser<'_, '_> {
    /// Parses an escape outside a class.
    pub(super) fn parse_atom_escape(&mut self) -> Result<Expression, PatternError> {
        self.position += 1;
        match self.peek() {
            Some('1'..='9') => {
                if let Some(reference) = self.parse_numbered_reference()? {
                    return Ok(reference);
                }
            }
            Some('k') if self.is_unicode() || self.has_named_groups => return self.parse_named_reference(),
            _ => {}
        }
        if let Some(set) = self.parse_set_escape()? {
            return self.class_expression(set);
        }
        let code_point = self.parse_character_escape(false)?;
        self.class_expression(CodePointSet::from_code_point(code_point))
    }

    fn parse_numbered_reference(&mut self) -> Result<Option<Expression>, PatternError> {
        let start = self.position;
        let number = self.parse_decimal().unwrap_or(u32::MAX);
        if number <= self.total_groups {
            self.has_back_references = true;
            return Ok(Some(Expression::BackReference(vec![number])));
        }
        self.position = start;
        if self.is_unicode() {
            return Err(self.syntax_error("a reference to a group that is not there"));
        }
        Ok(None)
    }

    fn parse_named_reference(&mut self) -> Result<Expression, PatternError> {
        self.position += 1;
        if !self.take_if('<') {
            return Err(self.syntax_error("\\k has no name"));
        }
        let position = self.position;
        let name = self.parse_group_name()?;
        self.referenced_names.push((name, position));
        self.has_back_references = true;
        Ok(Expression::BackReference(Vec::new()))
    }

    /// Parses the name of a group with its `>`.
    pub(super) fn parse_group_name(&mut self) -> Result<String, PatternError> {
        let mut name = String::new();
        loop {
            let code_point = match self.peek() {
                None => return Err(self.syntax_error("the name of a group has no '>'")),
                Some('>') if !name.is_empty() => {
                    self.position += 1;
                    return Ok(name);
                }
                Some('\\') => {
                    self.position += 1;
                    if !self.take_if('u') {
                        return Err(self.syntax_error("the name of a group has an escape of another kind than \\u"));
                    }
                    self.parse_unicode_escape()
                }
                Some(character) => {
                    self.position += 1;
                    Some(u32::from(character))
                }
            };
            match code_point.and_then(char::from_u32) {
                Some(character) if self.allows_in_name(character, name.is_empty()) => name.push(character),
                _ => return Err(self.syntax_error("the name of a group has a character that is not allowed")),
            }
        }
    }

    fn allows_in_name(&mut self, character: char, is_first: bool) -> bool {
        if character.is_ascii() {
            let is_digit = character.is_ascii_digit() && !is_first;
            return character.is_ascii_alphabetic() || is_digit || matches!(character, '$' | '_');
        }
        if !is_first && matches!(character, '\u{200C}' | '\u{200D}') {
            return true;
        }
        let code_point = u32::from(character);
        let (set, _) = self.properties.find(if is_first { "ID_Start" } else { "ID_Continue" });
        set.is_ok_and(|set| set.ranges().iter().any(|&(low, high)| low <= code_point && code_point <= high))
    }

    /// Parses `\d` and the other escapes that stand for a set. Other escapes are left where they are.
    fn parse_set_escape(&mut self) -> Result<Option<CodePointSet>, PatternError> {
        let set = match self.peek() {
            Some('d') => digits(),
            Some('D') => digits().complement(),
            Some('s') => white_space(),
            Some('S') => white_space().complement(),
            Some('w') => word_characters(),
            Some('W') => word_characters().complement(),
            Some('p' | 'P') => return self.parse_property_escape(),
            _ => return Ok(None),
        };
        self.position += 1;
        Ok(Some(set))
    }

    /// Parses `\p{…}` or `\P{…}`. Annex B knows no properties, but a pattern that needs its grammar elsewhere, such as
    /// `[\w-.\p{L}]`, means the property where it names one.
    fn parse_property_escape(&mut self) -> Result<Option<CodePointSet>, PatternError> {
        let start = self.position;
        let is_negative = self.peek() == Some('P');
        match self.parse_property() {
            Ok(set) => Ok(Some(if is_negative { set.complement() } else { set })),
            Err(PatternError::Syntax(_)) if !self.is_unicode() => {
                self.position = start;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn parse_property(&mut self) -> Result<CodePointSet, PatternError> {
        self.position += 1;
        if !self.take_if('{') {
            return Err(self.syntax_error("a property has no '{'"));
        }
        let mut expression = String::new();
        loop {
            match self.peek() {
                Some('}') => break,
                Some(character) if expression.len() < 64 => expression.push(character),
                _ => return Err(self.syntax_error("a property has no '}'")),
            }
            self.position += 1;
        }
        self.position += 1;
        self.budget.charge(8)?;
        let (set, is_new) = self.properties.find(&expression);
        match set {
            Ok(set) => {
                self.budget.charge(set.ranges().len() as u64 / 4)?;
                if is_new {
                    self.budget.charge(2_000 + set.ranges().len() as u64 * 4)?;
                }
                Ok(set)
            }
            Err(PropertyError::NoSuchProperty) => Err(self.syntax_error("no Unicode property has this name")),
            Err(PropertyError::NoTable) => Err(PatternError::Unsupported(format!(
                "position {}: the Unicode property {expression} has no table",
                self.position
            ))),
        }
    }

    /// Parses an escape that stands for one code point, behind its backslash.
    fn parse_character_escape(&mut self, is_in_class: bool) -> Result<u32, PatternError> {
        let Some(character) = self.peek() else {
            return Err(self.syntax_error("a backslash at the end"));
        };
        if character.is_ascii_digit()
            && let Some(code_point) = self.parse_octal_escape()?
        {
            return Ok(code_point);
        }
        if character == 'c' {
            return self.parse_control_escape(is_in_class);
        }
        self.position += 1;
        let control = match character {
            'f' => Some(0x0C),
            'n' => Some(0x0A),
            'r' => Some(0x0D),
            't' => Some(0x09),
            'v' => Some(0x0B),
            'x' => self.parse_hexadecimal(2),
            'u' => self.parse_unicode_escape(),
            _ => None,
        };
        match control {
            Some(code_point) => Ok(code_point),
            None => self.check_identity_escape(character, is_in_class),
        }
    }

    fn check_identity_escape(&mut self, character: char, is_in_class: bool) -> Result<u32, PatternError> {
        let is_allowed = match self.grammar {
            Grammar::Unicode => {
                matches!(
                    character,
                    '^' | '$' | '\\' | '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '/'
                ) || (is_in_class && character == '-')
            }
            Grammar::AnnexB => character != 'k' || !self.has_named_groups,
            Grammar::AnnexBStrictEscapes => !character.is_ascii_alphabetic(),
        };
        if is_allowed { Ok(u32::from(character)) } else { Err(self.syntax_error("a backslash has no meaning here")) }
    }

    /// Parses `\0`, and by Annex B up to three octal digits.
    fn parse_octal_escape(&mut self) -> Result<Option<u32>, PatternError> {
        if self.is_unicode() {
            if self.peek() == Some('0') && !self.peek_at(1).is_some_and(|next| next.is_ascii_digit()) {
                self.position += 1;
                return Ok(Some(0));
            }
            return Err(self.syntax_error("an octal escape"));
        }
        let mut value = 0;
        let mut length = 0;
        while let Some(digit) = self.peek().and_then(|character| character.to_digit(8)) {
            if length == 3 || value * 8 + digit > 0o377 {
                break;
            }
            value = value * 8 + digit;
            length += 1;
            self.position += 1;
        }
        Ok((length > 0).then_some(value))
    }

    /// Parses `\cX`. By Annex B a `\c` without a letter is a backslash, and the `c` follows.
    fn parse_control_escape(&mut self, is_in_class: bool) -> Result<u32, PatternError> {
        let is_control = |character: char| {
            character.is_ascii_alphabetic()
                || (is_in_class && !self.is_unicode() && (character.is_ascii_digit() || character == '_'))
        };
        match self.peek_at(1) {
            Some(character) if is_control(character) => {
                self.position += 2;
                Ok(u32::from(character) % 32)
            }
            _ if self.grammar == Grammar::AnnexB => Ok(u32::from('\\')),
            _ => Err(self.syntax_error("\\c has no letter")),
        }
    }

    fn parse_hexadecimal(&mut self, length: usize) -> Option<u32> {
        let mut value = 0;
        for offset in 0..length {
            value = value * 16 + self.peek_at(offset)?.to_digit(16)?;
        }
        self.position += length;
        Some(value)
    }

    /// Parses what follows `\u`. Two surrogates are one code point. Braces hold a code point by Annex B as well, as
    /// for properties.
    fn parse_unicode_escape(&mut self) -> Option<u32> {
        if self.peek() == Some('{') {
            return self.parse_braced_code_point();
        }
        let first = self.parse_hexadecimal(4)?;
        if (0xD800..0xDC00).contains(&first) && self.peek() == Some('\\') && self.peek_at(1) == Some('u') {
            let start = self.position;
            self.position += 2;
            if let Some(second @ 0xDC00..0xE000) = self.parse_hexadecimal(4) {
                return Some(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00));
            }
            self.position = start;
        }
        Some(first)
    }

    fn parse_braced_code_point(&mut self) -> Option<u32> {
        let mut value = 0u32;
        let mut offset = 1;
        while let Some(digit) = self.peek_at(offset).and_then(|character| character.to_digit(16)) {
            value = value * 16 + digit;
            if value > 0x10_FFFF {
                return None;
            }
            offset += 1;
        }
        if offset == 1 || self.peek_at(offset) != Some('}') {
            return None;
        }
        self.position += offset + 1;
        Some(value)
    }

    /// Parses a class in brackets.
    pub(super) fn parse_class(&mut self) -> Result<Expression, PatternError> {
        self.position += 1;
        let is_negative = self.take_if('^');
        let mut ranges = Vec::new();
        loop {
            self.budget.charge(2)?;
            if self.take_if(']') {
                break;
            }
            if ranges.len() > MAX_UNMERGED_RANGES {
                self.budget.charge(ranges.len() as u64 / 2)?;
                ranges = CodePointSet::from_ranges(ranges).ranges().to_vec();
            }
            let first = self.parse_class_atom()?;
            if self.peek() != Some('-') || matches!(self.peek_at(1), Some(']') | None) {
                first.push_to(&mut ranges);
                continue;
            }
            self.position += 1;
            let last = self.parse_class_atom()?;
            self.push_range(first, last, &mut ranges)?;
        }
        self.budget.charge(ranges.len() as u64)?;
        let set = CodePointSet::from_ranges(ranges);
        self.class_expression(if is_negative { set.complement() } else { set })
    }

    fn push_range(
        &mut self,
        first: ClassAtom,
        last: ClassAtom,
        ranges: &mut Vec<(u32, u32)>,
    ) -> Result<(), PatternError> {
        match (first, last) {
            (ClassAtom::CodePoint(low), ClassAtom::CodePoint(high)) if low > high => {
                return Err(self.syntax_error("the bounds of a range are out of order"));
            }
            (ClassAtom::CodePoint(low), ClassAtom::CodePoint(high)) => ranges.push((low, high)),
            _ if self.is_unicode() => return Err(self.syntax_error("a set is the bound of a range")),
            (first, last) => {
                first.push_to(ranges);
                last.push_to(ranges);
                ranges.push((u32::from('-'), u32::from('-')));
            }
        }
        Ok(())
    }

    fn parse_class_atom(&mut self) -> Result<ClassAtom, PatternError> {
        let Some(character) = self.peek() else { return Err(self.syntax_error("a class has no ']'")) };
        self.position += 1;
        if character != '\\' {
            return Ok(ClassAtom::CodePoint(u32::from(character)));
        }
        if self.take_if('b') {
            return Ok(ClassAtom::CodePoint(0x08));
        }
        match self.parse_set_escape()? {
            Some(set) => Ok(ClassAtom::Set(set)),
            None => self.parse_character_escape(true).map(ClassAtom::CodePoint),
        }
    }
}
