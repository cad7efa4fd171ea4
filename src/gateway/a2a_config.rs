//! Settings of agents that speak A2A: those whose documents have an agent card.

use crate::values::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds for calls to agents whose documents have an A2A agent card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "A2a")]
#[serde(deny_unknown_fields, default)]
pub struct A2aConfig {
    /// Maximum size of a body, whose messages may have files in Base64; 1KiB to 16GiB. A body that is validated has at most
    /// 64MiB. Default: 16MiB for a body that is validated, `agents.max_streamed_body_size` for one that passes unchecked.
    pub max_body_size: Option<ByteSize>,
}

impl A2aConfig {
    /// Returns why the setting is not valid.
    pub fn problem(&self) -> Option<String> {
        let (min, max) = (ByteSize::from_kib(1), ByteSize::from_kib(16 << 20));
        let size = self.max_body_size.filter(|size| !(min..=max).contains(size))?;
        Some(format!("max_body_size: {size} is out of bounds ({min} to {max})"))
    }
}
