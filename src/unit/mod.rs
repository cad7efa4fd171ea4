//! Values as people write them: spans of time, sizes, rates, secrets by reference, patterns.
//! Every room's `Config` is made of these. Nothing here does I/O except [`SecretRef::load`].

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

/// Gives a type that is written as one string its serde and JSON Schema forms.
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
