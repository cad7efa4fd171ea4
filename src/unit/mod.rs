//! Value types of the configuration: durations, sizes, rates, globs, paths and secrets by reference; entity tags and
//! strict JSON. Every module's configuration uses them. Only [`SecretRef::load`] does I/O.

mod etag;
mod glob;
pub mod json;
mod path;
mod rate;
mod secret;
mod size;
mod span;

pub use etag::etag;
pub use glob::Glob;
pub use path::FilePath;
pub use rate::Rate;
pub use secret::{Secret, SecretRef};
pub use size::Size;
pub use span::Span;

/// Implements `Deserialize` and `JsonSchema` for a type that is written as one string.
macro_rules! written_as_string {
    ($type:ident, $expects:literal, $pattern:literal) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "pattern": $pattern,
                    "description": $expects,
                })
            }
        }
    };
}
use written_as_string;

#[cfg(test)]
mod tests;
