//! Freshness lifetime of a response (RFC 9111), as its headers state it; no heuristic from its last modification.

use crate::values::parse_retry_after;
use http::{HeaderMap, Request, Response, header};
use http_cache_semantics::{CacheOptions, CachePolicy};
use reqwest::Url;
use std::time::{Duration, SystemTime};

/// Returns how long a response with these headers stays fresh; `None` if that is unstated or it must be revalidated.
pub fn freshness_lifetime(url: &Url, headers: &HeaderMap) -> Option<Duration> {
    let (request, _) = Request::get(url.as_str()).body(()).ok()?.into_parts();
    let (mut response, ()) = Response::new(()).into_parts();
    for name in [header::CACHE_CONTROL, header::PRAGMA, header::EXPIRES, header::DATE, header::AGE, header::VARY] {
        for value in headers.get_all(&name) {
            response.headers.append(&name, value.clone());
        }
    }
    let now = SystemTime::now();
    let options = CacheOptions { shared: false, cache_heuristic: 0.0, ..CacheOptions::default() };
    let lifetime = CachePolicy::new_options(&request, &response, now, options).time_to_live(now);
    Some(lifetime).filter(|lifetime| !lifetime.is_zero())
}

/// Parses the `Retry-After` of a response, in either form.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok();
    parse_retry_after(text(header::RETRY_AFTER)?, text(header::DATE))
}
