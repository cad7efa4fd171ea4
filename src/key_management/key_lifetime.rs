//! How long a new key is valid.

use crate::values::ConfigDuration;
use std::str::FromStr;
use time::OffsetDateTime;

/// Lifetime of a key.
#[derive(Clone, Copy, Debug)]
pub enum KeyLifetime {
    /// The key expires after this time.
    Limited(ConfigDuration),
    /// The key never expires.
    Unlimited,
}

impl KeyLifetime {
    /// Returns when a key that is created now expires; `None` is never.
    pub fn expiry(self) -> Option<OffsetDateTime> {
        match self {
            Self::Limited(lifetime) => Some(OffsetDateTime::now_utc() + lifetime.get()),
            Self::Unlimited => None,
        }
    }
}

impl Default for KeyLifetime {
    fn default() -> Self {
        Self::Limited(ConfigDuration::from_secs(90 * 86_400))
    }
}

impl FromStr for KeyLifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Unlimited);
        }
        let lifetime: ConfigDuration = text.parse().map_err(|why| format!("{why}, or never"))?;
        if lifetime < ConfigDuration::from_secs(1) {
            return Err("must be at least 1s (gatepost key disable ends a key)".to_owned());
        }
        Ok(Self::Limited(lifetime))
    }
}
