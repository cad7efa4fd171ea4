//! Strict validation of chunked framing (RFC 9112 §7.1), byte by byte, beside Pingora's parser that extracts the
//! content. That parser reads an empty chunk size as the last chunk and accepts any bytes as an extension, which lets
//! one body become two requests behind a proxy that parses differently.

use super::header_field::is_tchar;

/// Maximum bytes of chunk extensions and trailers in one body; the gateway uses neither.
const MAX_EXTENSION_BYTES: u32 = 8 << 10;

/// Maximum digits of a chunk size; no permitted body needs more.
const MAX_SIZE_DIGITS: u8 = 15;

/// State of the framing parser: what the next byte must be part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size { digits: u8, size: u64 },
    Extension { size: u64 },
    SizeLf { size: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    FinalLf,
    Done,
}

/// Validator of one chunked body; keeps its state between reads.
#[derive(Debug)]
pub struct ChunkedFramingValidator {
    state: ChunkState,
    extension_budget: u32,
}

/// Chunked framing is invalid; the bytes that follow cannot be trusted.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidChunkedFraming;

impl Default for ChunkedFramingValidator {
    fn default() -> Self {
        Self { state: ChunkState::Size { digits: 0, size: 0 }, extension_budget: MAX_EXTENSION_BYTES }
    }
}

impl ChunkedFramingValidator {
    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Validates the next bytes; ignores bytes after the end of the body.
    ///
    /// # Errors
    /// At the first invalid byte.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), InvalidChunkedFraming> {
        loop {
            if let ChunkState::Data { left } = self.state {
                let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = bytes.get(skipped..).unwrap_or_default();
                let left = left - skipped as u64;
                self.state = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
            }
            let (byte, rest) = match bytes {
                [byte, rest @ ..] if self.state != ChunkState::Done => (*byte, rest),
                _ => return Ok(()),
            };
            self.state = self.next_state(byte)?;
            bytes = rest;
        }
    }

    fn next_state(&mut self, byte: u8) -> Result<ChunkState, InvalidChunkedFraming> {
        Ok(match (self.state, byte) {
            (ChunkState::Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if digits < MAX_SIZE_DIGITS =>
            {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                ChunkState::Size { digits: digits + 1, size: size << 4 | u64::from(digit) }
            }
            (ChunkState::Size { digits: 1.., size }, b';') => ChunkState::Extension { size },
            (ChunkState::Size { digits: 1.., size } | ChunkState::Extension { size }, b'\r') => {
                ChunkState::SizeLf { size }
            }
            (ChunkState::Extension { size }, b'\t' | 0x20..=0x7e) => {
                self.spend_extension_byte(ChunkState::Extension { size })?
            }
            (ChunkState::SizeLf { size: 0 }, b'\n') => ChunkState::TrailerStart,
            (ChunkState::SizeLf { size }, b'\n') => ChunkState::Data { left: size },
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size { digits: 0, size: 0 },
            (ChunkState::TrailerStart, b'\r') => ChunkState::FinalLf,
            (ChunkState::TrailerStart | ChunkState::TrailerName, _) if is_tchar(byte) => {
                self.spend_extension_byte(ChunkState::TrailerName)?
            }
            (ChunkState::TrailerName, b':') => ChunkState::TrailerValue,
            (ChunkState::TrailerValue, b'\r') => ChunkState::TrailerLf,
            (ChunkState::TrailerValue, b'\t' | 0x20..=0x7e | 0x80..) => {
                self.spend_extension_byte(ChunkState::TrailerValue)?
            }
            (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerStart,
            (ChunkState::FinalLf, b'\n') => ChunkState::Done,
            _ => return Err(InvalidChunkedFraming),
        })
    }

    fn spend_extension_byte(&mut self, next: ChunkState) -> Result<ChunkState, InvalidChunkedFraming> {
        self.extension_budget = self.extension_budget.checked_sub(1).ok_or(InvalidChunkedFraming)?;
        Ok(next)
    }
}
