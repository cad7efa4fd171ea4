//! Characters that make a text read otherwise than it is.

/// Returns whether a character is not seen, ends a line, or changes the direction of the text. All of them are in the
/// basic plane, so that each is one escape in JSON, Python and JavaScript.
pub fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}
