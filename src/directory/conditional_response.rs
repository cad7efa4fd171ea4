//! Cacheable responses and conditional requests: strong entity tags, `Last-Modified`, 304, and `Vary` over everything
//! that determines what a caller sees (R62, R149; RFC 9110 §13, RFC 9111).

use super::{
    accepted_credentials::AcceptedCredentials,
    bounded_list::to_json,
    directory_call::{DirectoryCall, DirectoryResponse},
    last_modified_table::LastModifiedTable,
    media_types::A2A_VERSION,
};
use crate::{
    fault::Result,
    values::{etag, format_http_date, parse_http_date},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A representation, which is sent unless the caller has it already.
#[derive(Clone, Debug)]
pub(super) struct Representation {
    media_type: &'static str,
    body: Bytes,
    next_link: Option<String>,
    /// The tag of the body, where it is known.
    entity_tag: Option<String>,
    last_modified: Option<SystemTime>,
}

impl Representation {
    /// Creates a representation of type `media`.
    pub(super) fn new(media: &'static str, body: impl Into<Bytes>) -> Self {
        Self { media_type: media, body: body.into(), next_link: None, entity_tag: None, last_modified: None }
    }

    /// Serializes `value` as JSON of type `media`.
    ///
    /// # Errors
    /// `Internal` if serialization fails; none of our values does.
    pub(super) fn json(media: &'static str, value: &impl Serialize) -> Result<Self> {
        Ok(Self::new(media, to_json(value)?))
    }

    /// Adds a `Link` to the next page.
    pub(super) fn with_next_link(mut self, next_link: Option<String>) -> Self {
        self.next_link = next_link;
        self
    }

    /// Returns the length of the body, in bytes.
    pub(super) fn body_length(&self) -> usize {
        self.body.len()
    }

    /// Computes the tag now, and not for each response.
    pub(super) fn with_entity_tag(mut self) -> Self {
        self.entity_tag = Some(etag(&self.body));
        self
    }

    /// Sets the time of the last change; the default is when it was first served to the caller.
    pub(super) fn with_last_modified(mut self, last_modified: SystemTime) -> Self {
        self.last_modified = Some(last_modified);
        self
    }

    /// Responds to a `GET` or `HEAD` with this representation, or with 304 if the caller has it.
    pub(super) fn into_response(
        self,
        call: &DirectoryCall<'_>,
        max_age: Duration,
        credentials: &AcceptedCredentials,
        first_served: &LastModifiedTable,
    ) -> DirectoryResponse {
        let tag = self.entity_tag.unwrap_or_else(|| etag(&self.body));
        let now = unix_seconds(SystemTime::now());
        let last_modified = match self.last_modified {
            Some(changed) => last_modified_second(unix_seconds(changed), now),
            None => first_served.date(call, &tag, now),
        };
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        set(header::ETAG, &tag);
        set(header::CACHE_CONTROL, &format!("private, max-age={}", max_age.as_secs()));
        set(header::VARY, &format!("Accept, {}, {}", credentials.header_list(), A2A_VERSION));
        if let Some(date) = format_http_date(last_modified) {
            set(header::LAST_MODIFIED, &date);
        }
        if let Some(next) = &self.next_link {
            set(header::LINK, next);
        }
        if is_not_modified(call.headers, &tag, last_modified) {
            return DirectoryResponse { status: StatusCode::NOT_MODIFIED, headers, body: Bytes::new() };
        }
        set(header::CONTENT_TYPE, self.media_type);
        DirectoryResponse { status: StatusCode::OK, headers, body: self.body }
    }
}

/// Returns the second of the last modification. A date has no fractions: a resource that changed in the current second
/// may change in it again, so it is dated one second earlier, and no caller keeps the first state for good.
fn last_modified_second(changed: i64, now: i64) -> i64 {
    changed.min(now - 1)
}

fn unix_seconds(time: SystemTime) -> i64 {
    i64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

/// Returns whether the caller has the representation: tags take precedence over dates (RFC 9110 §13.2.2).
fn is_not_modified(headers: &HeaderMap, tag: &str, changed: i64) -> bool {
    let mut tags = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).peekable();
    if tags.peek().is_some() {
        return tags
            .flat_map(|list| list.split(','))
            .map(strip_weak_prefix)
            .any(|candidate| candidate == "*" || candidate == tag);
    }
    let since = headers.get(header::IF_MODIFIED_SINCE).and_then(|date| date.to_str().ok());
    since.and_then(|date| parse_http_date(date.trim())).is_some_and(|since| changed <= since.unix_timestamp())
}

/// Strips the weak prefix of a tag, which is irrelevant for reading (RFC 9110 §8.8.3.2).
fn strip_weak_prefix(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Returns whether `method` is safe.
pub(super) fn is_read_method(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
