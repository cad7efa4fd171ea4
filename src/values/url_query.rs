//! The queries of URLs, whose values may be secrets: signatures of a storage service, codes of a function.

use super::redact_known_secrets;
use std::borrow::Cow;

const HIDDEN: &str = "[redacted]";

/// Returns a URL, or a path with a query, as logs and operators may see it: without user information, the values of its
/// query, its fragment and secrets of this process. The names of the query stay, which tell URLs apart.
pub fn shown_url(url: &str) -> Cow<'_, str> {
    let (whole, url) = (url, hide_user_information(url));
    let (url, fragment) = url.split_once('#').map_or((&*url, ""), |(url, _)| (url, "#[redacted]"));
    let (path, query) = url.split_once('?').map_or((url, None), |(path, query)| (path, Some(query)));
    let fields = query.unwrap_or_default().split('&').map(|field| match field.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}={HIDDEN}"),
        // A field without a name may be a value.
        None if !field.is_empty() => HIDDEN.to_owned(),
        _ => field.to_owned(),
    });
    let query = query.map(|_| format!("?{}", fields.collect::<Vec<_>>().join("&"))).unwrap_or_default();
    match redact_known_secrets(path) {
        Cow::Borrowed(path) if path == whole => whole.into(),
        path => format!("{path}{query}{fragment}").into(),
    }
}

fn hide_user_information(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("//") else { return url.into() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@').and_then(|(user, _)| rest.strip_prefix(user)) {
        Some(rest) => format!("{scheme}//{HIDDEN}{rest}").into(),
        None => url.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_and_values_user_information_and_fragments_go() {
        for (url, hidden) in [
            ("https://x/a", "https://x/a"),
            ("https://x/a?sig=s%2F1&sv=2&e=", "https://x/a?sig=[redacted]&sv=[redacted]&e="),
            ("/a?code=c=d#f", "/a?code=[redacted]#[redacted]"),
            ("https://x/a#secret", "https://x/a#[redacted]"),
            ("https://u:p@x:8/a?", "https://[redacted]@x:8/a?"),
            ("https://u:p@q@x", "https://[redacted]@x"),
            ("https://x/@a?b@c", "https://x/@a?[redacted]"),
            ("/a//b@c", "/a//[redacted]@c"),
            ("/a?secret", "/a?[redacted]"),
            ("/a?", "/a?"),
            ("/a?x=1?y=2", "/a?x=[redacted]"),
        ] {
            assert_eq!(shown_url(url), hidden);
        }
    }
}
