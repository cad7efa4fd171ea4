//! How long an answer may be used without asking again (RFC 9111), by its own words only: nothing is guessed from
//! when it was last changed.

use http::{HeaderMap, Request, Response, header};
use http_cache_semantics::{CacheOptions, CachePolicy};
use reqwest::Url;
use std::time::{Duration, SystemTime};

/// How long the answer with these fields stays fresh; `None` where it does not say, or must be asked for each time.
pub fn lifetime(url: &Url, headers: &HeaderMap) -> Option<Duration> {
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

/// How long a server that cannot answer asks to be left alone (RFC 9110 §10.2.3).
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}
