//! Whether a request comes from a page of the console itself.

use http::{HeaderMap, header};

/// Returns whether a request that changes something may come from a page: browsers name the page's origin in `Origin`
/// (Fetch, "Origin header"), which has to be the listener's own. `url` is `admin.access.url`.
pub(super) fn is_own_origin(headers: &HeaderMap, url: Option<&str>) -> bool {
    let field = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let is_same_site = |site: &str| matches!(site, "same-origin" | "none");
    match (headers.get(header::ORIGIN), headers.get("sec-fetch-site")) {
        (Some(_), _) => field("origin").is_some_and(|origin| match url {
            Some(url) => origin == url,
            None => {
                let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
                authority.is_some() && authority == field("host")
            }
        }),
        (None, Some(_)) => field("sec-fetch-site").is_some_and(is_same_site),
        // Not a browser of the last years; the token in the form decides alone.
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_own(fields: &[(&'static str, &str)], url: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        is_own_origin(&headers, url)
    }

    #[test]
    fn a_form_comes_from_the_host_that_it_is_sent_to() {
        let host = ("host", "127.0.0.1:9901");
        for (fields, expected) in [
            (&[host, ("origin", "http://127.0.0.1:9901")][..], true),
            (&[host, ("origin", "https://127.0.0.1:9901")], true),
            (&[host, ("origin", "http://127.0.0.1:9902")], false),
            (&[host, ("origin", "http://127.0.0.1:9901.evil.example")], false),
            (&[host, ("origin", "null")], false),
            (&[host, ("origin", "")], false),
            (&[("origin", "http://")], false),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://127.0.0.1:9901")], true),
            (&[host], true),
        ] {
            assert_eq!(is_own(fields, None), expected, "{fields:?}");
        }
    }

    #[test]
    fn behind_a_proxy_the_url_of_the_configuration_counts() {
        let url = Some("https://admin.example");
        assert!(is_own(&[("host", "10.0.0.1:9901"), ("origin", "https://admin.example")], url));
        assert!(!is_own(&[("host", "10.0.0.1:9901"), ("origin", "http://10.0.0.1:9901")], url));
    }
}
