//! Header names for people.

use http::HeaderName;

/// Formats a header name in its usual case: `X-API-Key`.
pub(super) fn display_header_name(header: &HeaderName) -> String {
    let word = |word: &str| match word {
        "api" | "id" => word.to_ascii_uppercase(),
        _ => {
            word.char_indices().map(|(at, letter)| if at == 0 { letter.to_ascii_uppercase() } else { letter }).collect()
        }
    };
    header.as_str().split('-').map(word).collect::<Vec<String>>().join("-")
}
