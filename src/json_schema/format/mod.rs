//! The formats of the keyword `format`, checked in time linear in the text and in constant memory.
//!
//! A format whose texts have a maximum length is checked at once. The others are read character by character by a
//! scanner, so that a check of a long text can be suspended.

mod characters;
mod email;
mod hostname;
mod json_pointer;
mod label;
mod timestamp;
mod uri;
mod uri_template;

#[cfg(test)]
mod tests;

use crate::{draft::Draft, fuel::Fuel, pattern::Pattern};
use json_pointer::{JsonPointerScanner, RelativeJsonPointerScanner};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    task::Poll,
};
use timestamp::{DateTimeScanner, DurationScanner, TimeScanner};
use uri::{UriKind, UriScanner};
use uri_template::UriTemplateScanner;

/// Bytes of a text that are checked between two looks at the fuel.
const BLOCK_BYTES: usize = 512;
/// Bytes that a scanner reads for a unit of fuel: a character of an authority takes some ten nanoseconds.
const BYTES_PER_UNIT: u64 = 1;
/// Fuel for each byte of a name that may be internationalised: it is mapped, normalised, encoded and decoded.
const NAME_FUEL_PER_BYTE: u64 = 16;
/// Fuel for each byte of a text that is parsed as a pattern.
const PATTERN_FUEL_PER_BYTE: u64 = 8;
/// Maximum length in bytes of a text of the format `regex`. Its check cannot be suspended.
const MAX_PATTERN_BYTES: usize = 16 << 10;
/// Maximum number of `\p` and `\P` in such a text. Each stands for hundreds of ranges of characters.
const MAX_PROPERTY_ESCAPES: usize = 96;
/// Fuel for each of them.
const PROPERTY_ESCAPE_FUEL: u64 = 2_000;
/// Maximum length of UTF-8 for a code point.
const MAX_CODE_POINT_BYTES: usize = 4;

/// A format of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `date`: `full-date` of RFC 3339.
    Date,
    /// `time`: `full-time` of RFC 3339.
    Time,
    /// `date-time`: `date-time` of RFC 3339.
    DateTime,
    /// `duration`: RFC 3339, appendix A.
    Duration,
    /// `email`: `Mailbox` of RFC 5321.
    Email,
    /// `idn-email`: `Mailbox` of RFC 6531.
    IdnEmail,
    /// `hostname` of drafts 4 and 6: RFC 1123.
    AsciiHostname,
    /// `hostname` from draft 7 on: RFC 1123, and RFC 5891 for A-labels.
    Hostname,
    /// `idn-hostname`: RFC 5890.
    IdnHostname,
    /// `ipv4`: RFC 2673, section 3.2.
    Ipv4,
    /// `ipv6`: RFC 4291, section 2.2.
    Ipv6,
    /// `uri`: RFC 3986.
    Uri,
    /// `uri-reference`: RFC 3986.
    UriReference,
    /// `iri`: RFC 3987.
    Iri,
    /// `iri-reference`: RFC 3987.
    IriReference,
    /// `uuid`: RFC 4122.
    Uuid,
    /// `uri-template`: RFC 6570, level 4.
    UriTemplate,
    /// `json-pointer`: RFC 6901.
    JsonPointer,
    /// `relative-json-pointer`, without index manipulation.
    RelativeJsonPointer,
    /// `regex`: the patterns of this crate.
    Regex,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 20] = [
        Self::Date,
        Self::Time,
        Self::DateTime,
        Self::Duration,
        Self::Email,
        Self::IdnEmail,
        Self::AsciiHostname,
        Self::Hostname,
        Self::IdnHostname,
        Self::Ipv4,
        Self::Ipv6,
        Self::Uri,
        Self::UriReference,
        Self::Iri,
        Self::IriReference,
        Self::Uuid,
        Self::UriTemplate,
        Self::JsonPointer,
        Self::RelativeJsonPointer,
        Self::Regex,
    ];

    /// Returns the format that has this name in this draft. Other names are annotations only.
    pub fn named(name: &str, draft: Draft) -> Option<Self> {
        Some(match name {
            "date" => Self::Date,
            "time" => Self::Time,
            "date-time" => Self::DateTime,
            "email" => Self::Email,
            "idn-email" => Self::IdnEmail,
            "hostname" if draft < Draft::Draft7 => Self::AsciiHostname,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "uri" => Self::Uri,
            "regex" => Self::Regex,
            "uri-reference" if draft >= Draft::Draft6 => Self::UriReference,
            "uri-template" if draft >= Draft::Draft6 => Self::UriTemplate,
            "json-pointer" if draft >= Draft::Draft6 => Self::JsonPointer,
            "relative-json-pointer" if draft >= Draft::Draft7 => Self::RelativeJsonPointer,
            "iri" if draft >= Draft::Draft7 => Self::Iri,
            "iri-reference" if draft >= Draft::Draft7 => Self::IriReference,
            "idn-hostname" if draft >= Draft::Draft7 => Self::IdnHostname,
            "duration" if draft >= Draft::Draft201909 => Self::Duration,
            "uuid" if draft >= Draft::Draft201909 => Self::Uuid,
            _ => return None,
        })
    }

    /// Returns the name of the format, the value of the keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::Time => "time",
            Self::DateTime => "date-time",
            Self::Duration => "duration",
            Self::Email => "email",
            Self::IdnEmail => "idn-email",
            Self::AsciiHostname | Self::Hostname => "hostname",
            Self::IdnHostname => "idn-hostname",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Uri => "uri",
            Self::UriReference => "uri-reference",
            Self::Iri => "iri",
            Self::IriReference => "iri-reference",
            Self::Uuid => "uuid",
            Self::UriTemplate => "uri-template",
            Self::JsonPointer => "json-pointer",
            Self::RelativeJsonPointer => "relative-json-pointer",
            Self::Regex => "regex",
        }
    }

    /// Returns the maximum length of a text of this format in code points, where there is one. The check of such a
    /// format is never suspended.
    pub fn max_length(self) -> Option<usize> {
        match self {
            Self::Date => Some(10),
            Self::Uuid => Some(36),
            Self::Ipv4 => Some(15),
            Self::Ipv6 => Some(45),
            Self::AsciiHostname | Self::Hostname | Self::IdnHostname => Some(hostname::MAX_LENGTH),
            Self::Email | Self::IdnEmail => Some(email::MAX_LENGTH),
            Self::Regex => Some(MAX_PATTERN_BYTES),
            _ => None,
        }
    }

    /// Returns whether `text` has this format.
    pub fn is_valid(self, text: &str) -> bool {
        let mut check = FormatCheck::new(self);
        let mut fuel = Fuel::new(u64::MAX);
        loop {
            if let Poll::Ready(is_valid) = check.resume(text, &mut fuel) {
                return is_valid;
            }
        }
    }

    /// Returns the maximum length in bytes of a text of this format, where it has a maximum length.
    fn max_bytes(self) -> Option<usize> {
        match self {
            Self::IdnHostname | Self::IdnEmail => self.max_length().map(|length| length * MAX_CODE_POINT_BYTES),
            _ => self.max_length(),
        }
    }

    /// Returns the fuel to check `text` at once.
    fn fuel_at_once(self, text: &str) -> u64 {
        let bytes = text.len() as u64;
        match self {
            Self::Hostname | Self::IdnHostname | Self::Email | Self::IdnEmail => bytes * NAME_FUEL_PER_BYTE,
            Self::Regex => bytes * PATTERN_FUEL_PER_BYTE + property_escapes(text) as u64 * PROPERTY_ESCAPE_FUEL,
            _ => bytes,
        }
    }

    /// Returns whether a text that is not too long has this format, one with a maximum length.
    fn is_valid_at_once(self, text: &str) -> bool {
        match self {
            Self::Date => timestamp::is_date(text),
            Self::Email => email::is_valid(text),
            Self::IdnEmail => email::is_valid_internationalized(text),
            Self::AsciiHostname => hostname::is_valid_ascii(text),
            Self::Hostname => hostname::is_valid(text),
            Self::IdnHostname => hostname::is_valid_internationalized(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Uuid => is_uuid(text),
            Self::Regex => Pattern::is_syntactically_valid(text),
            _ => false,
        }
    }
}

/// Returns how many escapes of character properties a pattern has.
fn property_escapes(pattern: &str) -> usize {
    pattern.matches("\\p").count() + pattern.matches("\\P").count()
}

/// Returns whether `text` is a UUID as RFC 4122, section 3, writes it.
fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(position, byte)| match position {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Reads a text character by character.
trait Scanner {
    /// Reads the next character. Returns `false` if no text that begins like this has the format.
    fn read(&mut self, character: char) -> bool;

    /// Returns whether the text that was read has the format.
    fn is_complete(&self) -> bool;
}

/// A check of a text against a format, which can be suspended.
#[derive(Clone, Debug)]
pub struct FormatCheck {
    method: Method,
    position: usize,
}

/// How a format is checked.
#[derive(Clone, Debug)]
enum Method {
    AtOnce(Format),
    Time(TimeScanner),
    DateTime(DateTimeScanner),
    Duration(DurationScanner),
    Uri(UriScanner),
    UriTemplate(UriTemplateScanner),
    JsonPointer(JsonPointerScanner),
    RelativeJsonPointer(RelativeJsonPointerScanner),
}

impl FormatCheck {
    /// Creates the check of a text that was not read yet.
    pub fn new(format: Format) -> Self {
        let method = match format {
            Format::Time => Method::Time(TimeScanner::default()),
            Format::DateTime => Method::DateTime(DateTimeScanner::default()),
            Format::Duration => Method::Duration(DurationScanner::default()),
            Format::Uri => Method::Uri(UriScanner::new(UriKind::URI)),
            Format::UriReference => Method::Uri(UriScanner::new(UriKind::URI_REFERENCE)),
            Format::Iri => Method::Uri(UriScanner::new(UriKind::IRI)),
            Format::IriReference => Method::Uri(UriScanner::new(UriKind::IRI_REFERENCE)),
            Format::UriTemplate => Method::UriTemplate(UriTemplateScanner::default()),
            Format::JsonPointer => Method::JsonPointer(JsonPointerScanner::default()),
            Format::RelativeJsonPointer => Method::RelativeJsonPointer(RelativeJsonPointerScanner::default()),
            Format::Date
            | Format::Email
            | Format::IdnEmail
            | Format::AsciiHostname
            | Format::Hostname
            | Format::IdnHostname
            | Format::Ipv4
            | Format::Ipv6
            | Format::Uuid
            | Format::Regex => Method::AtOnce(format),
        };
        Self { method, position: 0 }
    }

    /// Continues the check of `text`, which is the same text at each call. Returns whether the text has the format, or
    /// [`Poll::Pending`] if the fuel is spent before that is known.
    pub fn resume(&mut self, text: &str, fuel: &mut Fuel) -> Poll<bool> {
        match &mut self.method {
            Method::AtOnce(format) => Poll::Ready(check_at_once(*format, text, fuel)),
            Method::Time(scanner) => scan(scanner, &mut self.position, text, fuel),
            Method::DateTime(scanner) => scan(scanner, &mut self.position, text, fuel),
            Method::Duration(scanner) => scan(scanner, &mut self.position, text, fuel),
            Method::Uri(scanner) => scan(scanner, &mut self.position, text, fuel),
            Method::UriTemplate(scanner) => scan(scanner, &mut self.position, text, fuel),
            Method::JsonPointer(scanner) => scan(scanner, &mut self.position, text, fuel),
            Method::RelativeJsonPointer(scanner) => scan(scanner, &mut self.position, text, fuel),
        }
    }
}

fn check_at_once(format: Format, text: &str, fuel: &mut Fuel) -> bool {
    if format.max_bytes().is_some_and(|bytes| text.len() > bytes) {
        fuel.charge(1);
        return false;
    }
    if format == Format::Regex && property_escapes(text) > MAX_PROPERTY_ESCAPES {
        fuel.charge(text.len() as u64);
        return false;
    }
    fuel.charge(format.fuel_at_once(text).max(1));
    format.is_valid_at_once(text)
}

/// Reads blocks of `text` from `position` on. The blocks are the same for every slice of fuel.
fn scan(scanner: &mut impl Scanner, position: &mut usize, text: &str, fuel: &mut Fuel) -> Poll<bool> {
    loop {
        let end = text.ceil_char_boundary(position.saturating_add(BLOCK_BYTES));
        let block = text.get(*position..end).unwrap_or_default();
        fuel.charge_bytes(block.len().max(1), BYTES_PER_UNIT);
        if !block.chars().all(|character| scanner.read(character)) {
            return Poll::Ready(false);
        }
        *position = end;
        if end == text.len() {
            return Poll::Ready(scanner.is_complete());
        }
        if fuel.is_spent() {
            return Poll::Pending;
        }
    }
}
