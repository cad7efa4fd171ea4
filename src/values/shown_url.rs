//! URLs as logs and operators may see them: user information, queries and fragments may be secrets, such as signatures of a
//! storage service or codes of a function.

use super::redact_known_secrets;
use std::borrow::Cow;

const HIDDEN: &str = "[redacted]";

/// Returns a URL, or a path with a query, without user information, the values of its query, its fragment and secrets of
/// this process. The names of the query stay, which tell URLs apart.
pub fn shown_url(url: &str) -> Cow<'_, str> {
    if !url.contains(['@', '?', '#']) {
        return redact_known_secrets(url);
    }
    let (url, fragment) = url.split_once('#').map_or((url, ""), |(url, _)| (url, "#[redacted]"));
    let (path, query) = url.split_once('?').map_or((url, String::new()), |(path, query)| (path, hidden_query(query)));
    let shown = format!("{}{query}{fragment}", hide_user_information(path));
    redact_known_secrets(&shown).into_owned().into()
}

/// Returns the query, with its question mark.
fn hidden_query(query: &str) -> String {
    let fields = query.split('&').map(|field| match field.split_once('=') {
        Some((name, value)) if !value.is_empty() => format!("{name}={HIDDEN}"),
        // A field without a name may be a value.
        None if !field.is_empty() => HIDDEN.to_owned(),
        _ => field.to_owned(),
    });
    format!("?{}", fields.collect::<Vec<_>>().join("&"))
}

fn hide_user_information(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("//") else { return url.into() };
    let authority = rest.split('/').next().unwrap_or_default();
    if let Some((user, _)) = authority.rsplit_once('@') {
        return format!("{scheme}//{HIDDEN}{}", rest.strip_prefix(user).unwrap_or_default()).into();
    }
    // A port that is none is the beginning of a password with a slash, a question mark or a number sign.
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    if authority.starts_with('[') || port.bytes().all(|byte| byte.is_ascii_digit()) {
        return url.into();
    }
    let host = rest.rsplit_once('@').map_or(String::new(), |(_, host)| format!("@{host}"));
    format!("{scheme}//{HIDDEN}{host}").into()
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
            ("https://x:8443/@a", "https://x:8443/@a"),
            ("https://[2001:db8::1]/@a", "https://[2001:db8::1]/@a"),
            ("https://u:p/w@x/a", "https://[redacted]@x/a"),
            ("https://u:p#w@x/a", "https://[redacted]#[redacted]"),
            ("https://u:p?w@x/a", "https://[redacted]?[redacted]"),
            ("/a//b@c", "/a//[redacted]@c"),
            ("/a?secret", "/a?[redacted]"),
            ("/a?", "/a?"),
            ("/a?x=1?y=2", "/a?x=[redacted]"),
        ] {
            assert_eq!(shown_url(url), hidden);
        }
    }
}
