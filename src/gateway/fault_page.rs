//! Faults as pages, for browsers that ask for a page for callers.

use super::{content_negotiation::prefers_html, gateway_state::ConfigSnapshot};
use crate::{
    directory::{FaultPage, is_caller_page_path},
    fault::Fault,
    http_server::ResponseHead,
    web_page::{HTML_MEDIA_TYPE, PAGE_HEADERS},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header, request};

/// Returns whether a browser asks for a page.
pub(super) fn is_requested(config: &ConfigSnapshot, head: &request::Parts) -> bool {
    config.directory.has_caller_pages() && is_caller_page_path(head.uri.path()) && prefers_html(&head.headers)
}

/// Makes the response with a fault one with a page, and returns the page. Status and header fields of the fault stay.
pub(super) fn replace_by_page(head: &mut ResponseHead, fault: &Fault, request_id: &str) -> Bytes {
    let body = Bytes::from(FaultPage { fault, request_id }.render());
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML_MEDIA_TYPE));
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    for (name, value) in PAGE_HEADERS {
        head.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    body
}
