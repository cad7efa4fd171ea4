//! Configuration of the access log's target.

use crate::unit::FilePath;
use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    str::FromStr,
};

/// Configuration of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogConfig {
    /// Target: `stdout`, `stderr`, `off` or the path of a file, which is appended to and reopened on SIGHUP.
    /// Default `stdout`.
    #[schemars(with = "String")]
    pub to: Target,
}

/// The target of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// No access log.
    Off,
    /// A file.
    File(FilePath),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("must name a target (stdout, stderr, off or a path)".to_owned()),
            "stdout" => Ok(Self::Stdout),
            "stderr" => Ok(Self::Stderr),
            "off" => Ok(Self::Off),
            path => path.parse().map(Self::File),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        match target {
            Target::Stdout => "stdout".to_owned(),
            Target::Stderr => "stderr".to_owned(),
            Target::Off => "off".to_owned(),
            Target::File(path) => path.display().to_string(),
        }
    }
}

impl Target {
    pub(super) fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Stdout => Box::new(io::stdout()),
            Self::Stderr => Box::new(io::stderr()),
            Self::Off => Box::new(io::sink()),
            // Not world-readable: entries contain paths and callers' names.
            Self::File(path) => Box::new(OpenOptions::new().create(true).append(true).mode(0o640).open(path)?),
        })
    }
}
