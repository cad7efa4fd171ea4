//! Database URL in the configuration: a URL without a password, or a reference to a secret that holds the whole URL.

use crate::values::{Secret, SecretRef, register_secret};
use std::{borrow::Cow, fmt, str::FromStr};
use tokio_postgres::Config;

/// A PostgreSQL database: `postgres://…`, `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A URL without a password.
    Url(Box<str>),
    /// A reference to a secret that holds the URL.
    Secret(SecretRef),
}

impl DatabaseUrl {
    /// Returns the URL.
    ///
    /// # Errors
    /// The secret cannot be read.
    pub fn resolve(&self) -> Result<Secret, String> {
        match self {
            Self::Url(url) => Ok(Secret::new(url.clone())),
            Self::Secret(secret) => secret.load().inspect(|url| {
                // PostgreSQL also takes the password from the query.
                let config = parse_url(url.expose()).ok();
                let password = config.as_ref().and_then(Config::get_password);
                if let Some(password) = password.and_then(|password| std::str::from_utf8(password).ok()) {
                    register_secret(password);
                }
            }),
        }
    }
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return text.parse().map(Self::Secret).map_err(|_| {
                "must be postgres://…, or a reference to a secret with such a URL (env:NAME or file:PATH)".to_owned()
            });
        }
        // No message repeats the URL, because it may hold a password.
        match parse_url(text)?.get_password() {
            Some(_) => Err("holds a password (use a secret for the URL: env:NAME or file:PATH)".to_owned()),
            None => Ok(Self::Url(text.into())),
        }
    }
}

/// Parses a URL.
///
/// # Errors
/// The text is not a URL of PostgreSQL; the message does not repeat it.
pub(super) fn parse_url(url: &str) -> Result<Config, String> {
    // Certificates are always verified, so the stricter modes that other clients know are equivalent to `require` here.
    let url = ["verify-full", "verify-ca"]
        .iter()
        .fold(url.to_owned(), |text, mode| text.replace(&format!("sslmode={mode}"), "sslmode=require"));
    url.parse().map_err(|_| "is not a PostgreSQL URL (postgres://user@host:5432/database)".to_owned())
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => to.write_str(url),
            Self::Secret(secret) => secret.fmt(to),
        }
    }
}

impl<'de> serde::Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for DatabaseUrl {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl schemars::JsonSchema for DatabaseUrl {
    fn schema_name() -> Cow<'static, str> {
        "Database".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(postgres|postgresql|env|file):.+$",
            "description": "A PostgreSQL database: postgres://user@host/database, or env:NAME or file:PATH of such a \
                            URL; required if the URL holds a password.",
        })
    }
}
