//! `Accept` (RFC 9110 §12.5.1): which media types a client wants, and how much.

use http::{HeaderMap, header};

/// Specificity of a range that names the media type itself. Lower values are those of ranges with `*`.
const EXACT: u8 = 3;

/// The media ranges of all `Accept` headers of a request. They are parsed each time they are asked for; a value that is
/// not ASCII is ignored.
#[derive(Clone, Copy, Debug)]
pub struct AcceptHeader<'a>(&'a HeaderMap);

impl<'a> AcceptHeader<'a> {
    /// Reads the media ranges from the headers of a request.
    pub fn from_headers(headers: &'a HeaderMap) -> Self {
        Self(headers)
    }

    /// Returns whether the client states no media range: it takes any media type.
    pub fn is_empty(&self) -> bool {
        self.ranges().next().is_none()
    }

    /// Returns the quality of `media_type` in thousandths, 0 if the client refuses it; `None` if no range matches. The
    /// most specific range decides, and of equally specific ones the one with the highest quality.
    ///
    /// `media_type` may have one parameter, `version`. It matches ranges without a version or with the same version.
    pub fn quality_of(&self, media_type: &str) -> Option<u16> {
        self.matching_ranges(media_type).max().map(|(_, quality)| quality)
    }

    /// Returns the quality of `media_type` like [`Self::quality_of`], but only by ranges that name it without a `*`.
    pub fn exact_quality_of(&self, media_type: &str) -> Option<u16> {
        let exact = self.matching_ranges(media_type).filter(|(specificity, _)| *specificity >= EXACT);
        exact.max().map(|(_, quality)| quality)
    }

    /// Returns whether the client names server-sent events, and gives JSON no or less weight.
    pub fn prefers_event_stream(&self) -> bool {
        let quality = |media| self.exact_quality_of(media).unwrap_or_default();
        quality("text/event-stream") > quality("application/json")
    }

    /// Returns specificity and quality of each range that matches `media_type`.
    fn matching_ranges(self, media_type: &str) -> impl Iterator<Item = (u8, u16)> {
        self.ranges().filter_map(move |range| {
            let range = MediaRange::parse(range);
            Some((range.specificity(media_type)?, range.quality))
        })
    }

    fn ranges(self) -> impl Iterator<Item = &'a str> {
        let values = self.0.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).filter(|range| !range.is_empty())
    }
}

/// One media range.
struct MediaRange<'a> {
    media_type: &'a str,
    version: Option<&'a str>,
    /// In thousandths.
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

    /// Returns how specifically the range matches `media_type`; `None` if it does not match.
    fn specificity(&self, media_type: &str) -> Option<u8> {
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
        if self.media_type.eq_ignore_ascii_case(essence) {
            return match (self.version, parameters.strip_prefix("version=")) {
                (Some(requested), Some(offered)) if requested != offered => None,
                (Some(_), Some(_)) => Some(EXACT + 1),
                _ => Some(EXACT),
            };
        }
        let (major, _) = essence.split_once('/').unwrap_or((essence, ""));
        match self.media_type.split_once('/') {
            Some(("*", "*")) => Some(1),
            Some((requested, "*")) if requested.eq_ignore_ascii_case(major) => Some(2),
            // Java's URLConnection sends a lone `*`.
            None if self.media_type == "*" => Some(1),
            _ => None,
        }
    }
}

/// Parses a weight (RFC 9110 §12.4.2); one that is malformed or out of bounds refuses the media type.
fn parse_quality(text: &str) -> u16 {
    let quality = text.parse::<f32>().ok().filter(|quality| (0.0..=1.0).contains(quality));
    quality.map_or(0, |quality| (quality * 1_000.0).round() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let values = values.iter().map(|value| (header::ACCEPT, HeaderValue::from_static(value)));
        HeaderMap::from_iter(values.collect::<Vec<_>>())
    }

    fn quality_of(accept: &'static str, media_type: &str) -> Option<u16> {
        AcceptHeader::from_headers(&headers(&[accept])).quality_of(media_type)
    }

    #[test]
    fn the_most_specific_range_decides_in_any_order() {
        for accept in ["*/*;q=0.1, text/*;q=0.2, text/html;q=0.3", "text/html;q=0.3, text/*;q=0.2, */*;q=0.1"] {
            assert_eq!(quality_of(accept, "text/html"), Some(300));
            assert_eq!(quality_of(accept, "text/plain"), Some(200));
            assert_eq!(quality_of(accept, "image/png"), Some(100));
        }
        assert_eq!(quality_of("text/html;q=0, */*", "text/html"), Some(0), "a specific refusal wins");
        assert_eq!(quality_of("text/html;q=0.2, TEXT/HTML ;Q= 0.7, text/html;q=0.5", "text/html"), Some(700));
    }

    #[test]
    fn all_headers_of_a_request_count() {
        let headers = headers(&["image/png", "text/html;q=0.4", ""]);
        let accept = AcceptHeader::from_headers(&headers);
        assert_eq!((accept.quality_of("image/png"), accept.quality_of("text/html")), (Some(1_000), Some(400)));
        assert_eq!(accept.quality_of("application/json"), None);
        assert!(!accept.is_empty());
    }

    #[test]
    fn an_absent_header_and_an_empty_list_have_no_range() {
        for values in [&[][..], &[""], &[" , ,"]] {
            let headers = headers(values);
            assert!(AcceptHeader::from_headers(&headers).is_empty(), "{values:?}");
            assert_eq!(AcceptHeader::from_headers(&headers).quality_of("text/html"), None);
        }
    }

    #[test]
    fn only_ranges_without_a_wildcard_are_exact() {
        let headers = headers(&["*/*, text/*, application/json;q=0.5"]);
        let accept = AcceptHeader::from_headers(&headers);
        assert_eq!(accept.exact_quality_of("text/html"), None);
        assert_eq!(accept.exact_quality_of("application/json"), Some(500));
    }

    #[test]
    fn an_event_stream_is_preferred_where_it_is_named_with_more_weight_than_json() {
        for (accept, is_preferred) in [
            ("text/event-stream", true),
            ("text/event-stream, application/json;q=0.9", true),
            ("application/json, text/event-stream", false),
            ("*/*", false),
            ("", false),
        ] {
            let headers = headers(&[accept]);
            assert_eq!(AcceptHeader::from_headers(&headers).prefers_event_stream(), is_preferred, "{accept}");
        }
    }

    #[test]
    fn weights_have_three_digits_and_invalid_ones_refuse() {
        for (weight, quality) in [
            ("1", 1_000),
            ("1.000", 1_000),
            ("0.29", 290),
            ("0.001", 1),
            ("0", 0),
            ("2", 0),
            ("-1", 0),
            ("x", 0),
            ("", 0),
        ] {
            let value = HeaderValue::try_from(format!("text/html; q={weight}")).unwrap();
            let headers = HeaderMap::from_iter([(header::ACCEPT, value)]);
            assert_eq!(AcceptHeader::from_headers(&headers).quality_of("text/html"), Some(quality), "{weight}");
        }
    }

    #[test]
    fn a_version_must_be_the_offered_one() {
        let offered = "application/x+json;version=1";
        assert_eq!(quality_of("application/x+json;version=\"1\"", offered), Some(1_000));
        assert_eq!(quality_of("application/x+json", offered), Some(1_000));
        assert_eq!(quality_of("application/x+json;version=2", offered), None);
        assert_eq!(quality_of("application/x+json;version=2;q=0.1, application/*;q=0.2", offered), Some(200));
        assert_eq!(quality_of("application/x+json;q=0.1, application/x+json;version=1;q=0.2", offered), Some(200));
        assert_eq!(quality_of("application/json;version=7;charset=utf-8", "application/json"), Some(1_000));
    }
}
