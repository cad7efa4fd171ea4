//! Configuration of the access log: the target of the entries.

use crate::values::ConfigPath;
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
    /// Where the access log goes: stdout, stderr, off, or the path of a file, to which the gateway appends and which
    /// SIGHUP opens again. Default stdout.
    #[schemars(with = "String")]
    pub output: AccessLogTarget,
}

/// The target of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum AccessLogTarget {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// No access log.
    Off,
    /// A file.
    File(ConfigPath),
}

impl FromStr for AccessLogTarget {
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

impl TryFrom<String> for AccessLogTarget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AccessLogTarget> for String {
    fn from(target: AccessLogTarget) -> Self {
        match target {
            AccessLogTarget::Stdout => "stdout".to_owned(),
            AccessLogTarget::Stderr => "stderr".to_owned(),
            AccessLogTarget::Off => "off".to_owned(),
            AccessLogTarget::File(path) => path.display().to_string(),
        }
    }
}

impl AccessLogTarget {
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
