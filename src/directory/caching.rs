//! Cacheable responses and conditional requests: strong entity tags, `Last-Modified`, 304, and `Vary` over everything
//! that determines what a caller sees (R62, R149; RFC 9110 §13, RFC 9111).

use super::{Answer, Ask, Directory};
use crate::{
    fault::{Code, Fault, Result},
    unit::etag,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::{OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem, macros::format_description};

const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// The header in which an A2A client states its version.
pub(super) const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// A representation to respond with, unless the caller has it already.
#[derive(Debug)]
pub(super) struct Page {
    media: &'static str,
    body: Bytes,
    next: Option<String>,
    changed: Option<SystemTime>,
}

impl Page {
    /// Creates a representation of type `media`.
    pub(super) fn new(media: &'static str, body: impl Into<Bytes>) -> Self {
        Self { media, body: body.into(), next: None, changed: None }
    }

    /// Serializes `value` as JSON of type `media`.
    ///
    /// # Errors
    /// `Internal` if serialization fails; none of our values does.
    pub(super) fn json(media: &'static str, value: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(value);
        let body =
            body.map_err(|why| Fault::new(Code::Internal, "The response could not be serialized").detail(why))?;
        Ok(Self::new(media, body))
    }

    /// Adds a `Link` to the next page.
    pub(super) fn next(mut self, link: Option<String>) -> Self {
        self.next = link;
        self
    }

    /// Returns the body.
    pub(super) fn into_body(self) -> Bytes {
        self.body
    }

    /// Sets the time of the last change; the default is the last change of any agent.
    pub(super) fn changed(mut self, at: SystemTime) -> Self {
        self.changed = Some(at);
        self
    }
}

impl Directory {
    /// Responds to a `GET` or `HEAD` with the representation, or with 304 if the caller has it.
    pub(super) fn give(&self, call: &Ask<'_>, page: Page) -> Answer {
        let changed = known_since(page.changed.unwrap_or_else(|| call.sight.changed()), SystemTime::now());
        let tag = etag(&page.body);
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        set(header::ETAG, &tag);
        set(header::CACHE_CONTROL, &format!("private, max-age={}", self.config.max_age.get().as_secs()));
        set(header::VARY, &format!("Accept, Authorization, {}, {}", self.credentials.key_header(), A2A_VERSION));
        if let Some(date) = http_date(changed) {
            set(header::LAST_MODIFIED, &date);
        }
        if let Some(next) = &page.next {
            set(header::LINK, next);
        }
        if has_it(call.headers, &tag, changed) {
            return Answer { status: StatusCode::NOT_MODIFIED, headers, body: Bytes::new() };
        }
        set(header::CONTENT_TYPE, page.media);
        Answer { status: StatusCode::OK, headers, body: page.body }
    }
}

impl Answer {
    /// Builds an uncacheable response, as to a write.
    pub(super) fn written(status: StatusCode, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let body = body.into();
        if !body.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(super::media::JSON));
        }
        Self { status, headers, body }
    }

    /// Adds a header; an invalid value is ignored.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// Returns the second of the last modification. A date has no fractions: a resource that changed in the current second
/// may change in it again, so it is dated one second earlier, and no caller keeps the first state for good.
fn known_since(changed: SystemTime, now: SystemTime) -> u64 {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    match seconds(now) {
        now if seconds(changed) >= now => now.saturating_sub(1),
        _ => seconds(changed),
    }
}

fn http_date(seconds: u64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?.format(HTTP_DATE).ok()
}

/// Whether the caller has the representation: tags take precedence over dates (RFC 9110 §13.2.2).
fn has_it(asked: &HeaderMap, tag: &str, changed: u64) -> bool {
    let mut tags = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).peekable();
    if tags.peek().is_some() {
        return tags.flat_map(|list| list.split(',')).map(tag_of).any(|known| known == "*" || known == tag);
    }
    let since = asked.get(header::IF_MODIFIED_SINCE).and_then(|date| date.to_str().ok());
    let since = since.and_then(|date| PrimitiveDateTime::parse(date.trim(), HTTP_DATE).ok());
    since
        .is_some_and(|since| i64::try_from(changed).is_ok_and(|changed| changed <= since.assume_utc().unix_timestamp()))
}

/// Strips the weak prefix of a tag, which is irrelevant for reading (RFC 9110 §8.8.3.2).
fn tag_of(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// Whether `method` is safe.
pub(super) fn reads(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}
