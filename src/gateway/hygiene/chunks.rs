//! The framing of a chunked body (RFC 9112 §7.1), judged as its bytes pass. The parser behind takes an empty
//! line for the last chunk and lets anything stand in an extension, bare line feeds included: whoever sends
//! through another server to this one could hide a request there. This keeps no byte of the body.

use super::{is_tchar, refuse};
use crate::fault::Fault;

/// Hexadecimal digits of a size.
const DIGITS: u8 = 16;

/// Bytes of one extension, and of all trailers together; nobody reads either.
const EXTENSION: u32 = 256;
const TRAILERS: u32 = 8 << 10;

/// Where in the framing the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Size,
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEnded,
    /// At the beginning of a trailer line, or of the empty line that ends the body.
    Line,
    Name,
    Value,
    ValueEnd,
    LastEnd,
    Done,
}

/// The state between two reads.
#[derive(Debug)]
pub struct Chunks {
    place: Place,
    /// Bytes of data to come.
    left: u64,
    /// Digits, or bytes of an extension or trailers, so far.
    count: u32,
}

impl Chunks {
    /// Before the first byte of the body.
    pub fn begin() -> Self {
        Self { place: Place::Size, left: 0, count: 0 }
    }

    /// Judges the bytes that follow; those behind the end of the body are not looked at.
    ///
    /// # Errors
    /// The framing is broken: what follows cannot be told from the next request.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Done => return Ok(()),
                Place::Data => {
                    let skipped = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                    self.left -= skipped as u64;
                    if self.left == 0 {
                        self.place = Place::DataEnd;
                    }
                    bytes = bytes.get(skipped..).unwrap_or_default();
                }
                place => {
                    self.place = self.next(place, byte).ok_or_else(broken)?;
                    bytes = rest;
                }
            }
        }
        Ok(())
    }

    /// The place after `byte`, which is none of the data; `None` where it may not stand here.
    fn next(&mut self, place: Place, byte: u8) -> Option<Place> {
        match (place, byte) {
            (Place::Size, _) => self.size(byte),
            (Place::Extension, b'\r') => Some(Place::SizeEnd),
            (Place::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.counted(EXTENSION, Place::Extension),
            (Place::SizeEnd, b'\n') => {
                self.count = 0;
                Some(if self.left > 0 { Place::Data } else { Place::Line })
            }
            (Place::DataEnd, b'\r') => Some(Place::DataEnded),
            (Place::DataEnded, b'\n') => {
                self.count = 0;
                Some(Place::Size)
            }
            (Place::Line, b'\r') => Some(Place::LastEnd),
            (Place::Name, b':') => self.counted(TRAILERS, Place::Value),
            (Place::Line | Place::Name, byte) if is_tchar(byte) => self.counted(TRAILERS, Place::Name),
            (Place::Value, b'\r') => Some(Place::ValueEnd),
            (Place::Value, b'\t' | b' '..=b'~' | 0x80..) => self.counted(TRAILERS, Place::Value),
            (Place::ValueEnd, b'\n') => Some(Place::Line),
            (Place::LastEnd, b'\n') => Some(Place::Done),
            _ => None,
        }
    }

    fn size(&mut self, byte: u8) -> Option<Place> {
        let Some(digit) = char::from(byte).to_digit(16) else {
            let after = match byte {
                b'\r' => Place::SizeEnd,
                b';' => Place::Extension,
                _ => return None,
            };
            return (std::mem::take(&mut self.count) > 0).then_some(after);
        };
        // More would not fit; a size beyond this is no body that anyone sends.
        self.left = self.left.checked_mul(16)?.checked_add(digit.into())?;
        self.counted(DIGITS.into(), Place::Size)
    }

    fn counted(&mut self, most: u32, place: Place) -> Option<Place> {
        self.count += 1;
        (self.count <= most).then_some(place)
    }
}

#[cold]
fn broken() -> Fault {
    refuse("The request's body is not framed correctly (chunks are a size in hexadecimal, CR LF, data, CR LF).")
}
