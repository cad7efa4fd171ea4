//! Percent-encoding (RFC 3986 §2.1) and the encoding of HTML forms. Decoding is strict: a `%` without two hexadecimal
//! digits is an error here, and not a literal `%`, because two readers could decode it differently.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::{borrow::Cow, fmt::Display};

/// Everything but the unreserved characters (RFC 3986 §2.3).
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Everything that a fragment may not contain (RFC 3986 §3.5).
const FRAGMENT: &AsciiSet = &COMPONENT
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/')
    .remove(b'?');

/// What the value of a header field does not have as it is; whatever is not ASCII is encoded in any case.
const FIELD: &AsciiSet = &CONTROLS.add(b'%');

/// What an item of a list that commas separate does not have as it is.
const LIST_ITEM: &AsciiSet = &FIELD.add(b',');

/// Decodes `text`; `None` if an escape is malformed or the decoded text is not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let is_well_formed =
        text.split('%').skip(1).all(|rest| matches!(rest.as_bytes(), [high, low, ..] if is_escape(*high, *low)));
    let decoded = percent_decode_str(text).decode_utf8().ok();
    decoded.filter(|_| is_well_formed).map(Cow::into_owned)
}

/// Decodes a name or a value of a query or an HTML form: like [`percent_decode`], with `+` as a space.
pub fn form_decode(text: &str) -> Option<String> {
    if text.contains('+') { percent_decode(&text.replace('+', " ")) } else { percent_decode(text) }
}

/// Returns the names and values of a query or an HTML form, decoded; `None` for a pair that cannot be decoded.
pub fn form_pairs(query: &str) -> impl Iterator<Item = Option<(String, String)>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        form_decode(name).zip(form_decode(value))
    })
}

/// Decodes the two hexadecimal digits after a `%`; `None` if one of them is no such digit.
pub fn decode_octet(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// Encodes everything but the unreserved characters, so that the text can stand in any part of a URI.
pub fn percent_encode(text: &str) -> impl Display {
    utf8_percent_encode(text, COMPONENT)
}

/// Encodes everything that a fragment may not contain.
pub fn percent_encode_fragment(text: &str) -> impl Display {
    utf8_percent_encode(text, FRAGMENT)
}

/// Encodes what the value of a header field may not contain, and `%`. Decoding yields the text again.
pub fn percent_encode_field(text: &str) -> String {
    encode_field(text, FIELD)
}

/// Encodes as [`percent_encode_field`] does, and commas, so that the text is one item of a list.
pub fn percent_encode_list_item(text: &str) -> String {
    encode_field(text, LIST_ITEM)
}

/// Spaces at the ends are encoded too, because readers of header fields remove them.
fn encode_field(text: &str, encoded: &'static AsciiSet) -> String {
    let rest = text.trim_start_matches(' ');
    let inner = rest.trim_end_matches(' ');
    let (leading, trailing) = (text.len() - rest.len(), rest.len() - inner.len());
    format!("{}{}{}", "%20".repeat(leading), utf8_percent_encode(inner, encoded), "%20".repeat(trailing))
}

fn is_escape(high: u8, low: u8) -> bool {
    high.is_ascii_hexdigit() && low.is_ascii_hexdigit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_in_either_case() {
        assert_eq!(percent_decode("a%2Fb%2f%C3%a9%25").as_deref(), Some("a/b/é%"));
        assert_eq!(percent_decode("").as_deref(), Some(""));
        assert_eq!(percent_decode("é").as_deref(), Some("é"));
    }

    #[test]
    fn malformed_escapes_and_text_that_is_not_utf_8_are_refused() {
        for text in ["%", "a%2", "%zz", "%%20", "%+1", "% 1", "%2é", "%é", "%ff", "%C3", "%c3%28"] {
            assert_eq!(percent_decode(text), None, "{text}");
            assert_eq!(form_decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_plus_is_a_space_only_in_forms() {
        assert_eq!(percent_decode("a+b%2B").as_deref(), Some("a+b+"));
        assert_eq!(form_decode("a+b%2B+").as_deref(), Some("a b+ "));
        assert_eq!(form_decode("%2+1"), None, "a plus is not a digit");
    }

    #[test]
    fn encoded_text_is_decoded_to_itself() {
        let text: String = (0..=0xff_u8).map(char::from).chain(['€', '😀']).collect();
        assert_eq!(percent_decode(&percent_encode(&text).to_string()), Some(text.clone()));
        assert_eq!(percent_decode(&percent_encode_fragment(&text).to_string()), Some(text.clone()));
        assert_eq!(form_decode(&percent_encode(&text).to_string()), Some(text.clone()));
    }

    #[test]
    fn each_part_of_a_uri_keeps_the_characters_that_it_may_contain() {
        assert_eq!(percent_encode("aZ09-._~ /?#é").to_string(), "aZ09-._~%20%2F%3F%23%C3%A9");
        assert_eq!(
            percent_encode_fragment("/$defs/a b?!&'()*+,;=:@#%\"").to_string(),
            "/$defs/a%20b?!&'()*+,;=:@%23%25%22"
        );
    }
}
