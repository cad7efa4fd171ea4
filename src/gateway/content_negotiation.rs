//! Content negotiation: the error format, acceptable responses, and the media type of requests (R75, R90).

use crate::fault::{ErrorFormat, Fault, FaultCode, Result};
use http::{HeaderMap, header};

/// The media types that every response can have.
const OFFERED_MEDIA_TYPES: &[&str] =
    &["application/json", "application/problem+json", "text/event-stream", "application/x-ndjson"];

/// Returns the error format that `Accept` prefers, else the configured one.
pub(super) fn negotiate_error_format(headers: &HeaderMap, configured: ErrorFormat) -> ErrorFormat {
    let problem = quality(headers, "application/problem+json", true);
    let error = quality(headers, "application/json", true);
    match (problem, error) {
        (Some(problem), Some(error)) if error > problem => ErrorFormat::Error,
        (Some(problem), Some(error)) if problem > error => ErrorFormat::Problem,
        (Some(problem), None) if problem > 0 => ErrorFormat::Problem,
        (None, Some(error)) if error > 0 => ErrorFormat::Error,
        _ => configured,
    }
}

/// Refuses an `Accept` that excludes every media type of an agent with declared JSON output (R75).
pub(super) fn check_accept(headers: &HeaderMap) -> Result<()> {
    let accepted = !headers.contains_key(header::ACCEPT)
        || OFFERED_MEDIA_TYPES.iter().any(|media| quality(headers, media, false).is_some_and(|q| q > 0));
    if accepted {
        return Ok(());
    }
    Err(Fault::new(
        FaultCode::NotAcceptable,
        format!("No media type in Accept can be served (this agent answers {})", OFFERED_MEDIA_TYPES.join(", ")),
    ))
}

/// Returns the quality, in thousandths, that `Accept` gives to `media`; the most specific range decides. If `exact`,
/// ranges with `*` are ignored.
fn quality(headers: &HeaderMap, media: &str, exact: bool) -> Option<u16> {
    let (major_type, _) = media.split_once('/')?;
    let mut best: Option<(u8, u16)> = None;
    for range in headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let specificity = match name {
            name if name.eq_ignore_ascii_case(media) => 3,
            "*/*" | "*" => 1,
            name => match name.split_once('/') {
                Some((range_type, "*")) if range_type.eq_ignore_ascii_case(major_type) => 2,
                _ => continue,
            },
        };
        if exact && specificity < 3 {
            continue;
        }
        let q = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q="))).map_or(1000, parse_quality);
        if best.is_none_or(|(best_weight, _)| specificity > best_weight) {
            best = Some((specificity, q));
        }
    }
    best.map(|(_, q)| q)
}

fn parse_quality(q: &str) -> u16 {
    q.parse::<f32>().ok().filter(|q| (0.0..=1.0).contains(q)).map_or(0, |q| (q * 1000.0) as u16)
}

/// Checks that a body that will be validated is JSON in UTF-8 without a content coding.
///
/// # Errors
/// `UnsupportedMediaType`, which names the media type to send.
pub(super) fn check_json_body(headers: &HeaderMap) -> Result<()> {
    let refuse = |message| Err(Fault::new(FaultCode::UnsupportedMediaType, message));
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return refuse("The body must not be compressed (leave out Content-Encoding)");
    }
    match headers.get(header::CONTENT_TYPE).map(|media| media.to_str()) {
        None | Some(Ok("application/json")) => Ok(()),
        Some(Ok(media)) if is_json_media_type(media) => match charset(media) {
            None => Ok(()),
            Some(charset) if charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8") => Ok(()),
            Some(_) => refuse("The body must be UTF-8 (Content-Type: application/json)"),
        },
        Some(_) => refuse("The body must be JSON (Content-Type: application/json)"),
    }
}

/// Returns whether `media` is JSON: `application/json`, `text/json` or any `+json`; not a sequence of JSON texts.
pub(super) fn is_json_media_type(media: &str) -> bool {
    if media == "application/json" {
        return true;
    }
    let essence = media.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || essence.eq_ignore_ascii_case("text/json")
        || essence.len() > 5 && essence.get(essence.len() - 5..).is_some_and(|end| end.eq_ignore_ascii_case("+json"))
}

fn charset(media: &str) -> Option<&str> {
    let (_, rest) = media.split_once(';')?;
    rest.split(';').find_map(|part| part.trim().strip_prefix("charset=")).map(|value| value.trim_matches('"'))
}
