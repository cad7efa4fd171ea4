//! Dates of HTTP headers, in the format that senders must use (RFC 9110 §5.6.7). The two obsolete formats are not read:
//! no sender of the last decades writes them, and every reader of a date here has a default.

use time::{OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem, macros::format_description};

const IMF_FIXDATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// Formats a time in seconds since 1970; `None` beyond the year 9999.
pub fn format_http_date(unix_seconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(unix_seconds).ok()?.format(IMF_FIXDATE).ok()
}

/// Parses a date; `None` if it has another format.
pub fn parse_http_date(text: &str) -> Option<OffsetDateTime> {
    PrimitiveDateTime::parse(text, IMF_FIXDATE).ok().map(PrimitiveDateTime::assume_utc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formatted_date_is_parsed_to_itself() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(format_http_date(seconds).as_deref(), Some(text));
            assert_eq!(parse_http_date(text).map(OffsetDateTime::unix_timestamp), Some(seconds));
        }
    }

    #[test]
    fn a_time_beyond_the_year_9999_has_no_date() {
        assert_eq!(format_http_date(253_402_300_800), None);
        assert_eq!(format_http_date(i64::MAX), None);
    }

    #[test]
    fn other_formats_are_not_dates() {
        for text in ["", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "1994-11-06T08:49:37Z"] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }
}
