//! The queries of URLs, whose values may be secrets: signatures of a storage service, codes of a function.

use std::borrow::Cow;

const HIDDEN: &str = "[redacted]";

/// Returns a URL, or a path with a query, without the values of its query. The names stay, which tell URLs apart.
pub fn hide_query_values(url: &str) -> Cow<'_, str> {
    let Some((before, query)) = url.split_once('?') else { return url.into() };
    let query = query.split('#').next().unwrap_or_default();
    let fields = query.split('&').map(|field| match field.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}={HIDDEN}"),
        // A field without a name may be a value.
        None if !field.is_empty() => HIDDEN.to_owned(),
        _ => field.to_owned(),
    });
    format!("{before}?{}", fields.collect::<Vec<_>>().join("&")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_values_go() {
        for (url, hidden) in [
            ("https://x/a", "https://x/a"),
            ("https://x/a?sig=s%2F1&sv=2&e=", "https://x/a?sig=[redacted]&sv=[redacted]&e="),
            ("/a?code=c=d#f", "/a?code=[redacted]"),
            ("/a?secret", "/a?[redacted]"),
            ("/a?", "/a?"),
            ("/a?x=1?y=2", "/a?x=[redacted]"),
        ] {
            assert_eq!(hide_query_values(url), hidden);
        }
    }
}
