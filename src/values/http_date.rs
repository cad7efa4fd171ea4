//! Dates of HTTP headers (RFC 9110 §5.6.7): written in the format that senders must use, and read in the two obsolete
//! formats as well, which recipients must accept.

use std::time::Duration;
use time::{OffsetDateTime, PrimitiveDateTime, format_description::BorrowedFormatItem, macros::format_description};

const IMF_FIXDATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
/// The format of RFC 850, without its weekday and with the year in full.
const RFC_850_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[day]-[month repr:short]-[year] [hour]:[minute]:[second]");
/// The format of `asctime()`, in which the day has a space where others have a zero.
const ASCTIME_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short] [month repr:short] [day padding:space] [hour]:[minute]:[second] [year]");

/// The longest delay of a `Retry-After`, so that every clock can add it.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(365 * 86_400);

/// Formats a time in seconds since 1970; `None` beyond the year 9999.
pub fn format_http_date(unix_seconds: i64) -> Option<String> {
    OffsetDateTime::from_unix_timestamp(unix_seconds).ok()?.format(IMF_FIXDATE).ok()
}

/// Parses a date; `None` if it has another format.
pub fn parse_http_date(text: &str) -> Option<OffsetDateTime> {
    let date = PrimitiveDateTime::parse(text, IMF_FIXDATE).or_else(|_| PrimitiveDateTime::parse(text, ASCTIME_DATE));
    date.map(PrimitiveDateTime::assume_utc).ok().or_else(|| parse_rfc_850_date(text, OffsetDateTime::now_utc().year()))
}

/// Parses `Sunday, 06-Nov-94 08:49:37 GMT`. A year more than 50 years ahead is the last one with these digits.
fn parse_rfc_850_date(text: &str, this_year: i32) -> Option<OffsetDateTime> {
    let (weekday, rest) = text.split_once(", ")?;
    let is_weekday = weekday.len() >= "Monday".len() && weekday.ends_with("day");
    let (date, clock) = rest.strip_suffix(" GMT")?.split_once(' ')?;
    let (day_and_month, digits) = date.rsplit_once('-')?;
    if !is_weekday || digits.len() != 2 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let year = this_year - this_year % 100 + digits.parse::<i32>().ok()?;
    let year = if year > this_year + 50 { year - 100 } else { year };
    let text = format!("{day_and_month}-{year} {clock}");
    PrimitiveDateTime::parse(&text, RFC_850_DATE).ok().map(PrimitiveDateTime::assume_utc)
}

/// Parses a `Retry-After` (RFC 9110 §10.2.3): seconds, or a date. `date` is the `Date` of the same response, because the
/// sender's clock may differ from this one.
pub fn parse_retry_after(text: &str, date: Option<&str>) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs).min(MAX_RETRY_AFTER));
    }
    let retry_at = parse_http_date(text)?;
    let now = date.and_then(parse_http_date).unwrap_or_else(OffsetDateTime::now_utc);
    Some(Duration::try_from(retry_at - now).unwrap_or_default().min(MAX_RETRY_AFTER))
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
    fn obsolete_formats_are_read() {
        for text in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(parse_http_date(text).map(OffsetDateTime::unix_timestamp), Some(784_111_777), "{text}");
        }
        let year = |text: &str| parse_rfc_850_date(text, 2026).map(OffsetDateTime::year);
        assert_eq!(year("Friday, 06-Nov-76 08:49:37 GMT"), Some(2076));
        assert_eq!(year("Friday, 06-Nov-77 08:49:37 GMT"), Some(1977));
    }

    #[test]
    fn other_formats_are_not_dates() {
        for text in [
            "",
            "1994-11-06T08:49:37Z",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-+4 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37",
            "Sunday, 99-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37",
        ] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }

    #[test]
    fn a_retry_after_is_a_number_of_seconds_or_a_date() {
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        for (text, expected) in [
            ("0", Some(Duration::ZERO)),
            (" 120 ", Some(Duration::from_secs(120))),
            ("99999999999999999999", Some(MAX_RETRY_AFTER)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(MAX_RETRY_AFTER)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(Duration::from_secs(60))),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(Duration::from_secs(60))),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(Duration::ZERO)),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(parse_retry_after(text, date), expected, "{text}");
        }
    }
}
