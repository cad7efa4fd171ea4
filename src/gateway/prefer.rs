//! The `Prefer` header (RFC 7240): whether a caller accepts an asynchronous response; and its callback URL.

use super::header_names::{CALLBACK_URL, PREFER};
use crate::{
    fault::{Fault, FaultCode, Result},
    net::Url,
};
use http::{HeaderMap, request};
use std::time::Duration;

/// The query parameter with the URL that is notified when a task ends.
pub(super) const CALLBACK_PARAMETER: &str = "callbackUrl";

/// The caller's preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Preferences {
    /// `respond-async`.
    pub(super) respond_async: bool,
    /// `wait`: how long the caller waits for the result itself.
    pub(super) wait: Option<Duration>,
}

impl Preferences {
    /// Reads `Prefer`. Unknown preferences are ignored; the first of two `wait` counts (RFC 7240 §2).
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        let mut preferences = Self::default();
        let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
        for preference in values.flat_map(|value| value.split(',')) {
            let preference = preference.split(';').next().unwrap_or_default();
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("respond-async") {
                preferences.respond_async = true;
            } else if name.eq_ignore_ascii_case("wait") && preferences.wait.is_none() {
                let is_number =
                    !value.is_empty() && value.len() <= 9 && value.bytes().all(|byte| byte.is_ascii_digit());
                preferences.wait = value.parse().ok().filter(|_| is_number).map(Duration::from_secs);
            }
        }
        preferences
    }

    /// Returns whether the response may be asynchronous.
    pub(super) fn allows_async(self) -> bool {
        self.respond_async || self.wait.is_some()
    }

    /// Returns the value of `Preference-Applied` (RFC 7240 §3).
    pub(super) fn applied_value(self) -> Option<String> {
        let wait = self.wait.map(|wait| format!("wait={}", wait.as_secs()));
        match (self.respond_async, wait) {
            (false, None) => None,
            (true, None) => Some("respond-async".to_owned()),
            (false, Some(wait)) => Some(wait),
            (true, Some(wait)) => Some(format!("respond-async, {wait}")),
        }
    }
}

/// Returns the callback URL: the header `X-Callback-Url` or the query parameter `callbackUrl`. The body belongs to the
/// agent and is not inspected.
///
/// # Errors
/// `InvalidInput` for two different URLs.
pub(super) fn callback_url(head: &request::Parts) -> Result<Option<String>> {
    let from_headers =
        head.headers.get_all(CALLBACK_URL).iter().map(|value| value.to_str().unwrap_or_default().to_owned());
    let query = head.uri.query().filter(|query| query.contains(CALLBACK_PARAMETER));
    // The scheme and host are placeholders: the parser needs a complete URL.
    let query_url = query.and_then(|query| Url::parse(&format!("http://localhost/?{query}")).ok());
    let from_query = query_url.iter().flat_map(Url::query_pairs).filter(|(name, _)| name == CALLBACK_PARAMETER);
    let mut urls: Vec<String> = from_headers.chain(from_query.map(|(_, value)| value.into_owned())).collect();
    urls.dedup();
    let url = urls.pop();
    if urls.is_empty() {
        Ok(url)
    } else {
        Err(Fault::new(FaultCode::InvalidInput, "Several callback URLs are given (give one)"))
    }
}
