//! The classes of characters that several formats share.

/// Returns whether RFC 3987 allows this character of other scripts in a path, a query, a fragment and a name.
pub(super) fn is_ucschar(character: char) -> bool {
    match u32::from(character) {
        0xA0..=0xD7FF | 0xF900..=0xFDCF | 0xFDF0..=0xFFEF => true,
        // Planes 1 to 14 without their last two code points; plane 14 without its tags.
        code @ 0x1_0000..=0xE_FFFF => code & 0xFFFF <= 0xFFFD && !(0xE_0000..0xE_1000).contains(&code),
        _ => false,
    }
}

/// Returns whether RFC 3987 allows this character of private use in a query.
pub(super) fn is_iprivate(character: char) -> bool {
    matches!(u32::from(character), 0xE000..=0xF8FF | 0xF_0000..=0xF_FFFD | 0x10_0000..=0x10_FFFD)
}

/// Returns whether the character is `unreserved` in RFC 3986.
pub(super) fn is_unreserved(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_' | '~')
}

/// Returns whether the character is one of `sub-delims` in RFC 3986.
pub(super) fn is_sub_delimiter(character: char) -> bool {
    matches!(character, '!' | '$' | '&' | '\'' | '(' | ')' | '*' | '+' | ',' | ';' | '=')
}
