//! Where an OpenAPI document is: a file, or a URL.

use crate::values::{ConfigPath, impl_string_deserialize_and_schema, shown_url};
use std::{fmt, str::FromStr};

/// Where an OpenAPI document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenApiLocation {
    /// A file of the operator, in JSON or YAML.
    File(ConfigPath),
    /// An http or https URL.
    Url(String),
}

impl FromStr for OpenApiLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            Some("http" | "https") => Ok(Self::Url(text.to_owned())),
            Some(scheme) => Err(format!("'{scheme}' is not a scheme of documents (write a file, or an https URL)")),
            None => text.parse().map(Self::File),
        }
    }
}

/// As logs may show it.
impl fmt::Display for OpenApiLocation {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(to, "{}", path.display()),
            Self::Url(url) => to.write_str(&shown_url(url)),
        }
    }
}

impl serde::Serialize for OpenApiLocation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => serializer.collect_str(&path.display()),
            Self::Url(url) => serializer.serialize_str(url),
        }
    }
}

impl_string_deserialize_and_schema!(
    OpenApiLocation,
    "A file, or an https URL; a relative path is resolved against the folder of the configuration file.",
    r"^.+$"
);
