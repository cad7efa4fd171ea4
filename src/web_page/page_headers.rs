//! The header fields of every page.

/// The media type of a page.
pub const HTML_MEDIA_TYPE: &str = "text/html; charset=utf-8";

/// The header fields of every page. A page loads style and scripts of the gateway only, runs no script that stands in the
/// page itself, sends forms to the gateway only, and cannot be shown in a frame.
pub const PAGE_HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];
