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
