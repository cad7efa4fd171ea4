//! Rates of bytes: `1KiB/s`.

use super::byte_size::ByteSize;
use std::{fmt, str::FromStr};

/// A number of bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRate(ByteSize);

impl ByteRate {
    /// Creates a rate of this size per second.
    pub const fn per_second(size: ByteSize) -> Self {
        Self(size)
    }

    /// Returns the bytes per second.
    pub const fn get(self) -> usize {
        self.0.get()
    }
}

impl FromStr for ByteRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = text.strip_suffix("/s").and_then(|size| size.parse().ok());
        size.map(Self).ok_or_else(|| format!("'{text}' is not a rate of bytes (write a size per second: 1KiB/s)"))
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/s", self.0)
    }
}

impl serde::Serialize for ByteRate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    ByteRate,
    "Bytes per second: a size and /s, such as 512B/s or 1KiB/s.",
    r"^\d+(B|KiB|MiB|GiB)/s$"
);
