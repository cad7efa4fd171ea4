//! Media types: negotiation by `Accept` (R75, R147), and checks of a body's `Content-Type`.

use crate::fault::{Fault, FaultCode, Result};
use http::{HeaderMap, header};

/// Plain JSON.
pub(super) const JSON: &str = "application/json";
/// Documents of Agent Framework.
pub(super) const AGENT_METADATA: &str = "application/agent-metadata+json;version=1";
/// Merge patches of a document (RFC 7396).
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";

/// Returns the type of `offered` that `Accept` prefers; the earlier one of equals.
///
/// # Errors
/// `NotAcceptable` that lists the offered types.
pub(super) fn negotiate(headers: &HeaderMap, offered: &[&'static str]) -> Result<&'static str> {
    let ranges: Vec<MediaRange<'_>> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter(|range| !range.trim().is_empty())
        .map(MediaRange::parse)
        .collect();
    let mut best: Option<(&'static str, u16)> = None;
    for media in offered {
        let quality = if ranges.is_empty() { 1_000 } else { quality_of(&ranges, media) };
        if quality > 0 && best.is_none_or(|(_, best_quality)| quality > best_quality) {
            best = Some((media, quality));
        }
    }
    best.map(|(media, _)| media).ok_or_else(|| {
        Fault::new(
            FaultCode::NotAcceptable,
            format!("Accept allows none of the available formats ({})", offered.join(", ")),
        )
    })
}

/// A media range of `Accept`.
struct MediaRange<'a> {
    media_type: &'a str,
    version: Option<&'a str>,
    quality: u16,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self { media_type: parts.next().unwrap_or_default(), version: None, quality: 1_000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                name if name.eq_ignore_ascii_case("q") => range.quality = parse_quality(value.trim()),
                name if name.eq_ignore_ascii_case("version") => range.version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        range
    }

    /// Returns how specifically the range matches `media`; 0 if it does not match.
    fn specificity(&self, media: &str) -> u8 {
        let (essence, parameters) = media.split_once(';').unwrap_or((media, ""));
        let version = parameters.strip_prefix("version=");
        let (major, _) = essence.split_once('/').unwrap_or((essence, ""));
        match self.media_type {
            range_type if range_type.eq_ignore_ascii_case(essence) => match (self.version, version) {
                (Some(requested), Some(offered)) if requested != offered => 0,
                (Some(_), Some(_)) => 4,
                _ => 3,
            },
            "*/*" | "*" => 1,
            range_type => match range_type.split_once('/') {
                Some((requested, "*")) if requested.eq_ignore_ascii_case(major) => 2,
                _ => 0,
            },
        }
    }
}

/// Returns the quality of `media` by the most specific range.
fn quality_of(ranges: &[MediaRange<'_>], media: &str) -> u16 {
    let matching = ranges
        .iter()
        .map(|range| (range.specificity(media), range.quality))
        .filter(|(specificity, _)| *specificity > 0);
    matching.max_by_key(|(specificity, _)| *specificity).map_or(0, |(_, quality)| quality)
}

fn parse_quality(text: &str) -> u16 {
    let quality = text.parse::<f32>().ok().filter(|quality| (0.0..=1.0).contains(quality));
    quality.map_or(0, |quality| (quality * 1_000.0).round() as u16)
}

/// Refuses a body with a media type not in `media_types`, a content coding or another charset than UTF-8. A body
/// without a media type passes: it is parsed as JSON, and refused there.
///
/// # Errors
/// `UnsupportedMediaType` that lists the supported types.
pub(super) fn check_content_type(headers: &HeaderMap, media_types: &[&'static str]) -> Result<()> {
    let unsupported = |why: String| Err(Fault::new(FaultCode::UnsupportedMediaType, why));
    let coding = headers.get(header::CONTENT_ENCODING).map(|coding| coding.as_bytes());
    if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
        return unsupported("The body must not be compressed (leave out Content-Encoding)".to_owned());
    }
    let Some(media) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let mut parts = media.to_str().unwrap_or_default().split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    if !media_types.iter().any(|media| essence.eq_ignore_ascii_case(media)) {
        return unsupported(format!("The body must be JSON (Content-Type: {})", media_types.join(" or ")));
    }
    let charset = parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.eq_ignore_ascii_case("charset"));
    match charset.map(|(_, charset)| charset.trim_matches('"')) {
        Some(charset) if !charset.eq_ignore_ascii_case("utf-8") => unsupported("The body must be UTF-8".to_owned()),
        _ => Ok(()),
    }
}
