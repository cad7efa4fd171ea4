//! `Retry-After`, in both of its forms (RFC 9110 §10.2.3).

use http::{HeaderMap, header};
use std::time::Duration;
use time::{OffsetDateTime, PrimitiveDateTime, format_description::FormatItem, macros::format_description};

/// An agent that asks for more is not believed beyond this.
const LONGEST: Duration = Duration::from_secs(86_400);

/// RFC 9110 §5.6.7, the form that must be sent.
const IMF_FIXDATE: &[FormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// How long the agent asks to wait.
pub(super) fn after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for a number are too long in any case.
        return Some(text.parse().map_or(LONGEST, Duration::from_secs).min(LONGEST));
    }
    let until = date(text)?;
    // The agent's own clock, where it tells it: the two need not agree with ours.
    let now =
        headers.get(header::DATE).and_then(|now| date(now.to_str().ok()?)).unwrap_or_else(OffsetDateTime::now_utc);
    Some(Duration::try_from(until - now).unwrap_or_default().min(LONGEST))
}

fn date(text: &str) -> Option<OffsetDateTime> {
    PrimitiveDateTime::parse(text, IMF_FIXDATE).ok().map(PrimitiveDateTime::assume_utc)
}
