//! Strict validation of chunked framing (RFC 9112 §7.1), byte by byte, beside Pingora's parser that extracts the
//! content. That parser reads an empty chunk size as the last chunk and accepts any bytes as an extension, which lets
//! one body become two requests behind a proxy that parses differently.

use super::is_tchar;

/// Maximum bytes of chunk extensions and trailers in one body; the gateway uses neither.
const SPARE: u32 = 8 << 10;

/// Maximum digits of a chunk size; no permitted body needs more.
const DIGITS: u8 = 15;

/// State of the framing parser: what the next byte must be part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Size { digits: u8, size: u64 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    Line,
    Name,
    Value,
    LineLf,
    EndLf,
    Done,
}

/// Validator of one chunked body; keeps its state between reads.
#[derive(Debug)]
pub struct Chunks {
    at: At,
    spare: u32,
}

/// Chunked framing is invalid; the bytes that follow cannot be trusted.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

impl Default for Chunks {
    fn default() -> Self {
        Self { at: At::Size { digits: 0, size: 0 }, spare: SPARE }
    }
}

impl Chunks {
    /// Whether the body has ended.
    pub fn done(&self) -> bool {
        self.at == At::Done
    }

    /// Validates the next bytes; ignores bytes after the end of the body.
    ///
    /// # Errors
    /// At the first invalid byte.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        loop {
            if let At::Data { left } = self.at {
                let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = bytes.get(skipped..).unwrap_or_default();
                let left = left - skipped as u64;
                self.at = if left == 0 { At::DataCr } else { At::Data { left } };
            }
            let (byte, rest) = match bytes {
                [byte, rest @ ..] if self.at != At::Done => (*byte, rest),
                _ => return Ok(()),
            };
            self.at = self.step(byte)?;
            bytes = rest;
        }
    }

    fn step(&mut self, byte: u8) -> Result<At, Broken> {
        Ok(match (self.at, byte) {
            (At::Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < DIGITS => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                At::Size { digits: digits + 1, size: size << 4 | u64::from(digit) }
            }
            (At::Size { digits: 1.., size }, b';') => At::Extension { size },
            (At::Size { digits: 1.., size } | At::Extension { size }, b'\r') => At::SizeLf { size },
            (At::Extension { size }, b'\t' | 0x20..=0x7e) => self.spend(At::Extension { size })?,
            (At::SizeLf { size: 0 }, b'\n') => At::Line,
            (At::SizeLf { size }, b'\n') => At::Data { left: size },
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size { digits: 0, size: 0 },
            (At::Line, b'\r') => At::EndLf,
            (At::Line | At::Name, _) if is_tchar(byte) => self.spend(At::Name)?,
            (At::Name, b':') => At::Value,
            (At::Value, b'\r') => At::LineLf,
            (At::Value, b'\t' | 0x20..=0x7e | 0x80..) => self.spend(At::Value)?,
            (At::LineLf, b'\n') => At::Line,
            (At::EndLf, b'\n') => At::Done,
            _ => return Err(Broken),
        })
    }

    fn spend(&mut self, next: At) -> Result<At, Broken> {
        self.spare = self.spare.checked_sub(1).ok_or(Broken)?;
        Ok(next)
    }
}
