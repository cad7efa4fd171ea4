//! Secrets: the configuration refers to them, they are loaded into memory, and they are never printed.

use std::{fmt, path::PathBuf, str::FromStr};

/// The text of a secret. `Debug` prints `[redacted]`; there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps `text` as a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the secret.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

/// A reference to a secret: `env:NAME` or `file:PATH` (R130). The configuration never contains the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file with the secret as its whole text; a line break at the end is removed.
    File(PathBuf),
}

impl SecretRef {
    /// Loads the secret, and registers it: it is removed from every log and every answer.
    ///
    /// # Errors
    /// As [`SecretRef::load_name`].
    pub fn load(&self) -> Result<Secret, String> {
        self.load_name().inspect(|secret| super::register_secret(secret.expose()))
    }

    /// Loads a text that is no secret itself, such as the user name that belongs to a password.
    ///
    /// # Errors
    /// The variable or file is missing, empty or not text. The message never contains the secret.
    pub fn load_name(&self) -> Result<Secret, String> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))?,
            Self::File(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|why| format!("secret file {} cannot be read ({why})", path.display()))?;
                text.strip_suffix('\n').map(|text| text.trim_end_matches('\r').to_owned()).unwrap_or(text)
            }
        };
        if text.is_empty() {
            return Err(format!("the secret {self} is empty"));
        }
        Ok(Secret::new(text))
    }
}

impl FromStr for SecretRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(super::ConfigPath::resolve(path))),
            // The message does not repeat the text, which may be the secret itself.
            _ => Err("must be a reference to a secret, not the secret itself (write env:NAME or file:PATH)".to_owned()),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(formatter, "env:{name}"),
            Self::File(path) => write!(formatter, "file:{}", path.display()),
        }
    }
}

impl serde::Serialize for SecretRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

super::impl_string_deserialize_and_schema!(
    SecretRef,
    "A reference to a secret: env:NAME or file:PATH.",
    r"^(env|file):.+$"
);
