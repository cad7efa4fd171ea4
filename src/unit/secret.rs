//! Secrets: named in the configuration, held here, printed nowhere.

use std::{fmt, path::PathBuf, str::FromStr};

/// A secret's text. Its `Debug` form is `[redacted]`, and it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Holds `text` as a secret.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that uses it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("[redacted]")
    }
}

/// Where a secret is: `env:NAME` or `file:PATH` (R130). A configuration never holds one itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file, read whole; one line feed at its end is left out.
    File(PathBuf),
}

impl SecretRef {
    /// Reads the secret.
    ///
    /// # Errors
    /// Says which variable or file is missing, empty or not a text; never what it holds.
    pub fn load(&self) -> Result<Secret, String> {
        let text = match self {
            Self::Env(name) => std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))?,
            Self::File(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|why| format!("secret file {} cannot be read ({why})", path.display()))?;
                text.strip_suffix('\n').map(|text| text.trim_end_matches('\r').to_owned()).unwrap_or(text)
            }
        };
        if text.is_empty() {
            return Err(format!("the secret at {self} is empty"));
        }
        Ok(Secret::new(text))
    }
}

impl FromStr for SecretRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(super::FilePath::based(path))),
            // The text is not repeated: it may be the secret itself.
            _ => Err("a secret is named, not written (env:NAME or file:PATH)".to_owned()),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(to, "env:{name}"),
            Self::File(path) => write!(to, "file:{}", path.display()),
        }
    }
}

impl serde::Serialize for SecretRef {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

super::written_as_string!(SecretRef, "Where a secret is: env:NAME or file:PATH.", r"^(env|file):.+$");
