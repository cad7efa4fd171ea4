//! URIs (RFC 3986) and IRIs (RFC 3987), and references to them.

use super::{
    Scanner,
    characters::{is_iprivate, is_sub_delimiter, is_ucschar, is_unreserved},
};
use std::net::Ipv6Addr;

/// Maximum length of an IPv6 address as text.
const MAX_IPV6_BYTES: usize = 45;

/// What a scanner accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct UriKind {
    /// A reference needs no scheme.
    is_reference: bool,
    /// An IRI has characters of other scripts.
    is_iri: bool,
}

impl UriKind {
    pub(super) const URI: Self = Self { is_reference: false, is_iri: false };
    pub(super) const URI_REFERENCE: Self = Self { is_reference: true, is_iri: false };
    pub(super) const IRI: Self = Self { is_reference: false, is_iri: true };
    pub(super) const IRI_REFERENCE: Self = Self { is_reference: true, is_iri: true };

    /// Returns whether the character may be in a registered name and in user information, except `:`.
    fn is_name_character(self, character: char) -> bool {
        is_unreserved(character)
            || is_sub_delimiter(character)
            || character == '%'
            || (self.is_iri && !character.is_ascii() && is_ucschar(character))
    }

    /// Returns whether the character is, or begins, a `pchar`.
    fn is_path_character(self, character: char) -> bool {
        matches!(character, ':' | '@') || self.is_name_character(character)
    }
}

/// A scanner of URIs, IRIs and references.
#[derive(Clone, Debug)]
pub(super) struct UriScanner {
    kind: UriKind,
    part: Part,
    /// Hexadecimal digits that a percent sign still requires.
    hex_digits_left: u8,
}

#[derive(Clone, Debug)]
enum Part {
    Start,
    /// What may become a scheme, or the first segment of a relative path.
    SchemeOrSegment,
    /// The first segment of a relative path, which has no colon.
    FirstSegment,
    AfterScheme,
    /// After a slash that may be the first of two.
    FirstSlash,
    Authority(Authority),
    /// Within brackets, with the text after the opening one.
    IpLiteral(Ipv6Text),
    /// Within brackets after `v`.
    FutureAddress(FuturePart),
    AfterIpLiteral,
    Port,
    Path,
    Query,
    Fragment,
}

/// User information, or a registered name with its port: which of them shows at the end.
#[derive(Clone, Copy, Debug)]
struct Authority {
    has_user: bool,
    is_empty: bool,
    has_colon: bool,
    /// Whether only digits follow the only colon.
    is_port: bool,
}

impl Authority {
    fn new(has_user: bool) -> Self {
        Self { has_user, is_empty: true, has_colon: false, is_port: true }
    }

    fn is_host_and_port(self) -> bool {
        !self.has_colon || self.is_port
    }
}

/// Text that may become an IPv6 address.
#[derive(Clone, Debug)]
struct Ipv6Text {
    bytes: [u8; MAX_IPV6_BYTES],
    length: usize,
}

impl Ipv6Text {
    fn append(&mut self, character: char) -> bool {
        let (Ok(byte), Some(place)) = (u8::try_from(character), self.bytes.get_mut(self.length)) else {
            return false;
        };
        *place = byte;
        self.length += 1;
        true
    }

    fn is_valid(&self) -> bool {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        str::from_utf8(bytes).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
    }
}

/// Where in `IPvFuture` the scanner is.
#[derive(Clone, Copy, Debug)]
enum FuturePart {
    BeforeVersion,
    Version,
    BeforeAddress,
    Address,
}

impl UriScanner {
    pub(super) fn new(kind: UriKind) -> Self {
        Self { kind, part: Part::Start, hex_digits_left: 0 }
    }

    /// Reads a character of the parts before the authority or the path.
    fn read_start(&mut self, character: char) -> Option<Part> {
        let is_reference = self.kind.is_reference;
        Some(match (&self.part, character) {
            (Part::Start, _) if character.is_ascii_alphabetic() => Part::SchemeOrSegment,
            (Part::SchemeOrSegment, ':') => Part::AfterScheme,
            (Part::SchemeOrSegment, '+' | '-' | '.') => Part::SchemeOrSegment,
            (Part::SchemeOrSegment, _) if character.is_ascii_alphanumeric() => Part::SchemeOrSegment,
            (Part::Start | Part::SchemeOrSegment, _) if !is_reference => return None,
            (Part::Start | Part::AfterScheme, '/') => Part::FirstSlash,
            (Part::FirstSlash, '/') => Part::Authority(Authority::new(false)),
            (Part::Start | Part::FirstSegment, ':') => return None,
            (Part::Start | Part::SchemeOrSegment | Part::FirstSegment, _) if self.kind.is_path_character(character) => {
                Part::FirstSegment
            }
            _ => return self.read_path(character),
        })
    }

    /// Reads a character of a path, or the one that ends the path.
    fn read_path(&self, character: char) -> Option<Part> {
        match character {
            '?' => Some(Part::Query),
            '#' => Some(Part::Fragment),
            '/' => Some(Part::Path),
            _ => self.kind.is_path_character(character).then_some(Part::Path),
        }
    }

    /// Reads the character after a host or a port.
    fn end_authority(character: char) -> Option<Part> {
        match character {
            '/' => Some(Part::Path),
            '?' => Some(Part::Query),
            '#' => Some(Part::Fragment),
            _ => None,
        }
    }

    fn read_authority(&self, mut authority: Authority, character: char) -> Option<Part> {
        match character {
            '@' => return (!authority.has_user).then(|| Part::Authority(Authority::new(true))),
            '[' => {
                let text = Ipv6Text { bytes: [0; MAX_IPV6_BYTES], length: 0 };
                return authority.is_empty.then_some(Part::IpLiteral(text));
            }
            '/' | '?' | '#' => return Self::end_authority(character).filter(|_| authority.is_host_and_port()),
            ':' => {
                authority.is_port = !authority.has_colon;
                authority.has_colon = true;
            }
            _ if self.kind.is_name_character(character) => {
                authority.is_port &= !authority.has_colon || character.is_ascii_digit();
            }
            _ => return None,
        }
        authority.is_empty = false;
        (!authority.has_user || authority.is_host_and_port()).then_some(Part::Authority(authority))
    }

    fn read_future_address(part: FuturePart, character: char) -> Option<Part> {
        let is_address = is_unreserved(character) || is_sub_delimiter(character) || character == ':';
        Some(Part::FutureAddress(match part {
            FuturePart::BeforeVersion | FuturePart::Version if character.is_ascii_hexdigit() => FuturePart::Version,
            FuturePart::Version if character == '.' => FuturePart::BeforeAddress,
            FuturePart::BeforeAddress | FuturePart::Address if is_address => FuturePart::Address,
            FuturePart::Address if character == ']' => return Some(Part::AfterIpLiteral),
            _ => return None,
        }))
    }

    /// Reads a character within the part that the text is in. Returns the next part, if it is another one.
    fn next_part(&mut self, character: char) -> Result<Option<Part>, ()> {
        let is_query = |character| matches!(character, '/' | '?') || self.kind.is_path_character(character);
        let next = match &mut self.part {
            Part::Path if self.kind.is_path_character(character) || character == '/' => return Ok(None),
            Part::Query if is_query(character) || (self.kind.is_iri && is_iprivate(character)) => return Ok(None),
            Part::Query if character == '#' => Some(Part::Fragment),
            Part::Fragment if is_query(character) => return Ok(None),
            Part::Query | Part::Fragment => None,
            Part::Path => self.read_path(character),
            Part::IpLiteral(text) if character == ']' => text.is_valid().then_some(Part::AfterIpLiteral),
            Part::IpLiteral(text) if text.length == 0 && matches!(character, 'v' | 'V') => {
                Some(Part::FutureAddress(FuturePart::BeforeVersion))
            }
            Part::IpLiteral(text) => return text.append(character).then_some(None).ok_or(()),
            Part::FutureAddress(part) => Self::read_future_address(*part, character),
            Part::AfterIpLiteral if character == ':' => Some(Part::Port),
            Part::Port if character.is_ascii_digit() => return Ok(None),
            Part::AfterIpLiteral | Part::Port => Self::end_authority(character),
            Part::Authority(authority) => {
                let authority = *authority;
                self.read_authority(authority, character)
            }
            _ => self.read_start(character),
        };
        next.map(Some).ok_or(())
    }
}

impl Scanner for UriScanner {
    fn read(&mut self, character: char) -> bool {
        if self.hex_digits_left > 0 {
            self.hex_digits_left -= 1;
            return character.is_ascii_hexdigit();
        }
        match self.next_part(character) {
            Ok(Some(part)) => self.part = part,
            Ok(None) => {}
            Err(()) => return false,
        }
        if character == '%' {
            self.hex_digits_left = 2;
        }
        true
    }

    fn is_complete(&self) -> bool {
        let is_part_complete = match &self.part {
            Part::Start | Part::SchemeOrSegment | Part::FirstSegment => self.kind.is_reference,
            Part::Authority(authority) => authority.is_host_and_port(),
            Part::IpLiteral(_) | Part::FutureAddress(_) => false,
            _ => true,
        };
        is_part_complete && self.hex_digits_left == 0
    }
}
