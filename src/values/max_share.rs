//! The share of a shared maximum that one client may take.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The share of each shared maximum that one client, or one address without a credential, may take.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(transparent)]
pub struct MaxShare(f64);

impl MaxShare {
    /// Every client may take the whole maximum.
    pub const UNLIMITED: Self = Self(1.0);

    /// Returns whether the share is more than 0 and at most 1.
    pub fn is_valid(self) -> bool {
        self.0 > 0.0 && self.0 <= 1.0
    }

    /// Returns whether one client may take everything.
    pub fn is_unlimited(self) -> bool {
        self.0 >= 1.0
    }

    /// Returns how much of `max` one client may take: at least one, if there is one.
    pub fn of(self, max: usize) -> usize {
        if self.is_unlimited() {
            return max;
        }
        ((max as f64 * self.0) as usize).max(1).min(max)
    }

    /// Returns [`MaxShare::of`] for a count.
    pub fn of_count(self, max: u32) -> u32 {
        u32::try_from(self.of(max as usize)).unwrap_or(max)
    }
}

impl Default for MaxShare {
    fn default() -> Self {
        Self(0.5)
    }
}

impl JsonSchema for MaxShare {
    fn schema_name() -> Cow<'static, str> {
        "MaxShare".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "description": "A share, more than 0 and at most 1.",
        })
    }
}
