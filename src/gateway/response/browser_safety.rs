//! What a browser may do with a response: it does not guess another media type, runs no scripts of an agent with the
//! rights of the gateway's origin, and leaves the answers of authenticated callers out of shared caches.

use http::{HeaderMap, HeaderValue, header};

/// Forbids guessing the media type, and sandboxes documents that could run scripts: in a sandbox without
/// `allow-same-origin` they have an origin of their own. A policy of the agent stays, because policies only restrict.
pub(in crate::gateway) fn restrict_documents(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let mut media_types = headers.get_all(header::CONTENT_TYPE).iter();
    // Nearly every response is plain JSON.
    if media_types.any(|media_type| media_type != "application/json" && is_scriptable(media_type.as_bytes())) {
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    }
}

/// Makes a response private to its caller. Shared caches may store a response to a request with an API key or a client
/// certificate, because they only know `Authorization` (RFC 9111 §3.5).
pub(in crate::gateway) fn forbid_shared_caching(headers: &mut HeaderMap) {
    const PRIVATE: HeaderValue = HeaderValue::from_static("private");
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, PRIVATE);
        return;
    }
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let values: Option<Vec<&str>> = values.map(|value| value.to_str().ok()).collect();
    let Some(text) = values.map(|values| values.join(", ")) else {
        headers.insert(header::CACHE_CONTROL, PRIVATE);
        return;
    };
    let directives = || text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    if directives().any(|directive| ["private", "no-store"].iter().any(|name| directive.eq_ignore_ascii_case(name))) {
        return;
    }
    let name = |directive: &str| directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
    let kept = directives().filter(|directive| !matches!(name(directive).as_str(), "public" | "s-maxage" | "private"));
    let private = std::iter::once("private").chain(kept).collect::<Vec<_>>().join(", ");
    headers.insert(header::CACHE_CONTROL, HeaderValue::try_from(private).unwrap_or(PRIVATE));
}

/// Whether browsers may show a value of `Content-Type` as a document that can run scripts: HTML, XML in every form, and
/// containers of other documents. Browsers take the last valid media type of a list ("extract a MIME type" of Fetch), so
/// the whole value counts. A response without a media type is shown as text or saved, because guessing is forbidden.
fn is_scriptable(value: &[u8]) -> bool {
    const MARKS: [&[u8]; 6] = [b"html", b"xml", b"svg", b"xsl", b"multipart/", b"message/"];
    let starts_with_mark = |text: &[u8]| {
        MARKS.iter().any(|mark| text.get(..mark.len()).is_some_and(|head| head.eq_ignore_ascii_case(mark)))
    };
    let may_begin_mark = |byte: &u8| matches!(byte | 0x20, b'h' | b'x' | b's' | b'm');
    value.iter().enumerate().any(|(at, byte)| may_begin_mark(byte) && value.get(at..).is_some_and(starts_with_mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: header::HeaderName, values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn documents_that_can_run_scripts_are_sandboxed() {
        for (media, is_sandboxed) in [
            ("text/html", true),
            ("Text/HTML; charset=utf-8", true),
            ("application/xhtml+xml", true),
            ("image/svg+xml", true),
            ("text/xml", true),
            ("application/xml", true),
            ("application/rss+xml", true),
            ("text/xsl", true),
            ("multipart/x-mixed-replace; boundary=x", true),
            ("multipart/related", true),
            ("message/rfc822", true),
            ("text/plain; a=b, text/html", true),
            ("application/json, Multipart/mixed; boundary=x", true),
            ("application/json; charset=utf-8", false),
            ("application/json", false),
            ("application/problem+json", false),
            ("text/event-stream", false),
            ("text/plain", false),
            ("image/png", false),
            ("application/pdf", false),
            ("", false),
        ] {
            let mut headers = with(header::CONTENT_TYPE, &[media]);
            restrict_documents(&mut headers);
            assert_eq!(headers.contains_key(header::CONTENT_SECURITY_POLICY), is_sandboxed, "{media}");
            assert_eq!(headers["x-content-type-options"], "nosniff", "{media}");
        }
    }

    #[test]
    fn each_field_of_a_media_type_counts() {
        for (media, is_sandboxed) in [
            (["application/json", "text/html"], true),
            (["text/html", "application/json"], true),
            (["application/json", "application/json"], false),
        ] {
            let mut headers = with(header::CONTENT_TYPE, &media);
            restrict_documents(&mut headers);
            assert_eq!(headers.contains_key(header::CONTENT_SECURITY_POLICY), is_sandboxed, "{media:?}");
        }
    }

    #[test]
    fn a_policy_of_the_agent_is_no_way_out_of_the_sandbox() {
        let mut headers = with(header::CONTENT_SECURITY_POLICY, &["sandbox allow-scripts allow-same-origin"]);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("none"));
        restrict_documents(&mut headers);
        let policies: Vec<_> = headers.get_all(header::CONTENT_SECURITY_POLICY).iter().collect();
        assert_eq!(policies, ["sandbox allow-scripts allow-same-origin", "sandbox"]);
        assert_eq!(headers["x-content-type-options"], "nosniff");
    }

    #[test]
    fn shared_caches_are_excluded_whatever_the_agent_says() {
        for (values, expected) in [
            (&[][..], "private"),
            (&["public, max-age=60"], "private, max-age=60"),
            (&["Public", "S-MaxAge = 60", "max-age=1"], "private, max-age=1"),
            (&["private=\"set-cookie\", max-age=1"], "private, max-age=1"),
            (&["max-age=1, private"], "max-age=1, private"),
            (&["No-Store"], "No-Store"),
            (&["no-cache"], "private, no-cache"),
            (&[""], "private"),
        ] {
            let mut headers = with(header::CACHE_CONTROL, values);
            forbid_shared_caching(&mut headers);
            assert_eq!(headers[header::CACHE_CONTROL], expected, "{values:?}");
            assert_eq!(headers.get_all(header::CACHE_CONTROL).iter().count(), 1, "{values:?}");
        }
    }
}
