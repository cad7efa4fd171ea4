//! Labels of internationalised names: which code points they have and where (RFC 5892).

use regex_syntax::hir::{Class, ClassUnicode, HirKind};
use std::sync::LazyLock;

/// The letters, digits and marks of RFC 5892, section 2.1, without what is ignored (2.3, 2.4) and the old Hangul letters
/// (2.9). What normalisation changes (2.2) is refused or replaced before by the mapping of the `idna` crate.
static LETTERS_AND_DIGITS: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| {
    class(
        r"[[\p{Ll}\p{Lu}\p{Lo}\p{Nd}\p{Lm}\p{Mn}\p{Mc}]--[\p{Default_Ignorable_Code_Point}\x{20D0}-\x{20FF}\x{1D100}-\x{1D24F}\x{1100}-\x{11FF}\x{A960}-\x{A97C}\x{D7B0}-\x{D7FB}]]",
    )
});
/// Combining marks, which begin no label (RFC 5891, section 4.2.3.2).
static MARKS: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| class(r"\p{M}"));
/// The scripts of which a label with U+30FB has a character (RFC 5892, appendix A.7).
static JAPANESE_SCRIPTS: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| class(r"[\p{Hiragana}\p{Katakana}\p{Han}]"));
static GREEK: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| class(r"\p{Greek}"));
static HEBREW: LazyLock<Option<ClassUnicode>> = LazyLock::new(|| class(r"\p{Hebrew}"));

/// Returns the class that the pattern stands for. The patterns are constants, and a test compiles each.
fn class(pattern: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(pattern).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

fn is_in(class: &Option<ClassUnicode>, character: char) -> bool {
    let ranges = class.as_ref().map_or(&[][..], ClassUnicode::ranges);
    let following = ranges.partition_point(|range| range.end() < character);
    ranges.get(following).is_some_and(|range| range.start() <= character)
}

/// Returns whether `label` is a label of an internationalised name, apart from its length, its joiners and its
/// direction.
pub(super) fn is_valid(label: &str) -> bool {
    let has_hyphens = label.chars().skip(2).take(2).eq(['-', '-']);
    let is_start_valid = label.chars().next().is_some_and(|first| first != '-' && !is_in(&MARKS, first));
    if has_hyphens || !is_start_valid || label.ends_with('-') {
        return false;
    }
    let mut previous = None;
    let mut characters = label.chars().peekable();
    while let Some(character) = characters.next() {
        if !is_allowed(label, previous, character, characters.peek().copied()) {
            return false;
        }
        previous = Some(character);
    }
    true
}

/// Returns whether `character` may be in `label` between its neighbours.
fn is_allowed(label: &str, previous: Option<char>, character: char, next: Option<char>) -> bool {
    match character {
        'a'..='z' | '0'..='9' | '-' => true,
        // Upper case is another spelling of the same name; other ASCII characters are in no name.
        'A'..='Z' => true,
        '\0'..='\x7F' => false,
        // RFC 5892, section 2.6: code points that are allowed or not against their general category.
        '\u{DF}' | '\u{3C2}' | '\u{6FD}' | '\u{6FE}' | '\u{F0B}' | '\u{3007}' => true,
        '\u{640}' | '\u{7FA}' | '\u{302E}' | '\u{302F}' | '\u{3031}'..='\u{3035}' | '\u{303B}' => false,
        // Appendices A.1 and A.2: the `idna` crate checks what is around a joiner.
        '\u{200C}' | '\u{200D}' => true,
        // Appendix A.3.
        '\u{B7}' => previous == Some('l') && next == Some('l'),
        // Appendix A.4.
        '\u{375}' => next.is_some_and(|next| is_in(&GREEK, next)),
        // Appendices A.5 and A.6.
        '\u{5F3}' | '\u{5F4}' => previous.is_some_and(|previous| is_in(&HEBREW, previous)),
        // Appendix A.7.
        '\u{30FB}' => label.chars().any(|other| other != character && is_in(&JAPANESE_SCRIPTS, other)),
        // Appendices A.8 and A.9.
        '\u{660}'..='\u{669}' => !label.contains(|other| matches!(other, '\u{6F0}'..='\u{6F9}')),
        '\u{6F0}'..='\u{6F9}' => !label.contains(|other| matches!(other, '\u{660}'..='\u{669}')),
        _ => is_in(&LETTERS_AND_DIGITS, character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_of_characters_compiles() {
        for class in [&LETTERS_AND_DIGITS, &MARKS, &JAPANESE_SCRIPTS, &GREEK, &HEBREW] {
            assert!(class.is_some());
        }
        assert!(is_in(&LETTERS_AND_DIGITS, '\u{e9}') && !is_in(&LETTERS_AND_DIGITS, '\u{1100}'));
        assert!(is_in(&LETTERS_AND_DIGITS, '\u{4e2d}') && !is_in(&LETTERS_AND_DIGITS, '\u{2764}'));
    }
}
