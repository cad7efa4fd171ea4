//! Faults as pages, for browsers that ask for a page for callers.

use super::{content_negotiation::prefers_html, gateway_state::ConfigSnapshot};
use crate::{
    directory::{FaultPage, is_caller_page_path},
    fault::{ErrorFormat, Fault},
    http_server::ResponseHead,
    web_page::{HTML_MEDIA_TYPE, PAGE_HEADERS},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header, request};

/// How a fault is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultFormat {
    /// The format of the error object.
    pub(super) object: ErrorFormat,
    /// Whether a page takes the place of the object. A request whose head could not be read gets none.
    pub(super) is_page: bool,
    /// Whether the object is the one that OpenAI's clients read.
    pub(super) is_openai: bool,
}

impl From<ErrorFormat> for FaultFormat {
    fn from(object: ErrorFormat) -> Self {
        Self { object, is_page: false, is_openai: false }
    }
}

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
