//! Content negotiation: the error format, acceptable responses, and the media type of requests (R75, R90).

use crate::{
    agent::{DeclaredFormats, media_types},
    fault::{ErrorFormat, Fault, FaultCode, FaultRule, Result},
    values::AcceptHeader,
};
use http::{HeaderMap, header};

/// The media types that every response can have: the gateway writes errors, tasks, batches and streams in them.
const OFFERED_MEDIA_TYPES: &[&str] =
    &["application/json", "application/problem+json", "text/event-stream", "application/x-ndjson"];

/// Returns the error format that `Accept` prefers, else the configured one.
pub(super) fn negotiate_error_format(headers: &HeaderMap, configured: ErrorFormat) -> ErrorFormat {
    let accept = AcceptHeader::from_headers(headers);
    let problem = accept.exact_quality_of("application/problem+json");
    let error = accept.exact_quality_of("application/json");
    match (problem, error) {
        (Some(problem), Some(error)) if error > problem => ErrorFormat::Error,
        (Some(problem), Some(error)) if problem > error => ErrorFormat::Problem,
        (Some(problem), None) if problem > 0 => ErrorFormat::Problem,
        (None, Some(error)) if error > 0 => ErrorFormat::Error,
        _ => configured,
    }
}

/// Returns whether `Accept` prefers HTML to the formats of errors, as browsers do.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let accept = AcceptHeader::from_headers(headers);
    let quality_of = |media: &str| accept.exact_quality_of(media).unwrap_or_default();
    let html = quality_of("text/html");
    html > 0 && html >= quality_of("application/json").max(quality_of("application/problem+json"))
}

/// Refuses an `Accept` that excludes every media type of an operation with a declared output (R75): those that the
/// operation declares, and those that every response can have. The fault lists them, the declared ones first.
///
/// # Errors
/// `NotAcceptable`.
pub(super) fn check_accept(headers: &HeaderMap, formats: &DeclaredFormats) -> Result<()> {
    let accept = AcceptHeader::from_headers(headers);
    let is_acceptable = |media: &str| accept.quality_of(media).is_some_and(|quality| quality > 0);
    if accept.is_empty()
        || OFFERED_MEDIA_TYPES.iter().any(|media| is_acceptable(media))
        || media_types(&formats.outputs).any(is_acceptable)
    {
        return Ok(());
    }
    let general = OFFERED_MEDIA_TYPES.iter().copied();
    let general = general.filter(|media| !formats.outputs.iter().any(|declared| **declared == **media));
    let offered: Vec<&str> = media_types(&formats.outputs).chain(general).collect();
    let fault = Fault::new(
        FaultCode::NotAcceptable,
        format!("No media type in Accept can be served (this agent answers {})", offered.join(", ")),
    );
    // A document that names no media type is no reason.
    let is_declared = media_types(&formats.outputs).next().is_some();
    Err(if is_declared { fault } else { fault.with_rule(FaultRule::Request) })
}

/// Refuses a `GET` that accepts an event stream and no JSON: a client of MCP opens the server's stream in this way, and
/// expects 405 where the server offers none (MCP, "Listening for Messages from the Server"). It is not a call.
///
/// # Errors
/// `MethodNotAllowed`.
pub(super) fn refuse_event_stream_request(headers: &HeaderMap) -> Result<()> {
    let accept = AcceptHeader::from_headers(headers);
    let accepts_events = accept.exact_quality_of("text/event-stream").is_some_and(|quality| quality > 0);
    if !accepts_events || accept.quality_of("application/json").is_some_and(|quality| quality > 0) {
        return Ok(());
    }
    let message = "A GET for an event stream is not a call (agents stream their answers to POST)";
    Err(Fault::new(FaultCode::MethodNotAllowed, message).with_header("Allow", "POST"))
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

/// Refuses a body whose media type is none of those that an operation without an input schema declares (R70). The
/// fault lists them. A body without a media type passes: the agent decides what it is.
///
/// # Errors
/// `UnsupportedMediaType`.
pub(super) fn check_declared_input(headers: &HeaderMap, required: &[Box<str>]) -> Result<()> {
    if required.is_empty() {
        return Ok(());
    }
    let Some(media) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = media.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let is_json = is_json_media_type(essence);
    let is_declared = |format: &str| {
        format.eq_ignore_ascii_case(essence) || (is_json && matches!(format, "json" | "application/json"))
    };
    if required.iter().any(|format| is_declared(format)) {
        return Ok(());
    }
    Err(Fault::new(
        FaultCode::UnsupportedMediaType,
        format!("The operation does not take the media type of the body (it takes {})", required.join(", ")),
    )
    .with_rule(FaultRule::Document("inputFormats")))
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
