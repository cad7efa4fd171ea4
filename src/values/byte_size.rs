//! Sizes in bytes: `512B`, `64KiB`, `1MiB`, `2GiB`.

use std::{fmt, str::FromStr};

/// A number of bytes, written with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// Creates a size of `count` bytes.
    pub const fn from_bytes(count: u64) -> Self {
        Self(count)
    }

    /// Creates a size of `count` kibibytes.
    pub const fn from_kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a size (write a number and a unit: 512B, 64KiB, 1MiB)");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let unit: u64 = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(invalid()),
        };
        let size = number.checked_mul(unit).filter(|size| *size <= 1 << 40);
        size.map(Self).ok_or_else(|| format!("'{text}' is too large (at most 1024GiB)"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes > 0 && bytes % (1 << 30) == 0 => write!(formatter, "{}GiB", bytes >> 30),
            bytes if bytes > 0 && bytes % (1 << 20) == 0 => write!(formatter, "{}MiB", bytes >> 20),
            bytes if bytes > 0 && bytes % (1 << 10) == 0 => write!(formatter, "{}KiB", bytes >> 10),
            bytes => write!(formatter, "{bytes}B"),
        }
    }
}

impl serde::Serialize for ByteSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    ByteSize,
    "A size in bytes: a number and a unit, such as 512B, 64KiB or 1MiB.",
    r"^\d+(B|KiB|MiB|GiB)$"
);
