//! Address of a Redis server in the configuration: a URL without a password, or a reference to a secret with one.

use crate::values::{Secret, SecretRef, is_loopback_host, percent_decode};
use std::{borrow::Cow, fmt, str::FromStr};

const DEFAULT_PORT: u16 = 6379;

/// A Redis server: `redis://…`, `rediss://…`, `env:NAME` or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisUrl {
    /// A URL without a password.
    Url(Box<str>),
    /// A reference to a secret that holds the URL.
    Secret(SecretRef),
}

/// The parts of a URL.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct RedisAddress {
    pub(super) tls: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    /// Hosts with their ports; at least one.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) database: i64,
}

impl RedisUrl {
    /// Reads the secret, if the URL is in one, and parses the URL.
    pub(super) fn resolve(&self) -> Result<RedisAddress, String> {
        match self {
            Self::Url(url) => parse_address(url),
            Self::Secret(secret) => parse_address(secret.load()?.expose()),
        }
    }
}

impl RedisAddress {
    /// Whether every host is this machine.
    pub(super) fn is_local(&self) -> bool {
        self.hosts.iter().all(|(host, _)| is_loopback_host(host))
    }
}

/// Parses a URL. No message repeats it, because it may hold a password.
fn parse_address(url: &str) -> Result<RedisAddress, String> {
    let invalid = || "is not a Redis URL (redis://user@host:6379/0, or rediss:// for TLS)".to_owned();
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let tls = match scheme {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        _ => return Err(invalid()),
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = if path.is_empty() { 0 } else { path.parse::<u16>().map_err(|_| invalid())?.into() };
    let (credential, hosts) =
        authority.rsplit_once('@').map_or((None, authority), |(first, hosts)| (Some(first), hosts));
    let (user, password) = credential.map_or((None, None), |credential| match credential.split_once(':') {
        Some((user, password)) => (Some(user), Some(password)),
        None => (Some(credential), None),
    });
    let hosts = hosts.split(',').map(parse_host).collect::<Option<Vec<_>>>().ok_or_else(invalid)?;
    let decode = |text: &str| percent_decode(text).ok_or_else(invalid);
    let user = user.filter(|user| !user.is_empty()).map(decode).transpose()?;
    let password = password.map(decode).transpose()?.map(Secret::new);
    Ok(RedisAddress { tls, user, password, hosts, database })
}

fn parse_host(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some("6379"))?)
        }
        None => text.split_once(':').unwrap_or((text, "6379")),
    };
    let is_usable = !host.is_empty() && !host.contains(|letter: char| letter.is_whitespace() || "/?#".contains(letter));
    let port = if port == "6379" { DEFAULT_PORT } else { port.parse().ok()? };
    is_usable.then(|| (host.to_owned(), port))
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return text.parse().map(Self::Secret).map_err(|_| {
                "must be redis://… or rediss://…, or a reference to a secret with such a URL (env:NAME or file:PATH)"
                    .to_owned()
            });
        }
        match parse_address(text)?.password {
            Some(_) => {
                Err("holds a password (write it to password, or use a secret for the URL: env:NAME or file:PATH)"
                    .to_owned())
            }
            None => Ok(Self::Url(text.into())),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => to.write_str(url),
            Self::Secret(secret) => secret.fmt(to),
        }
    }
}

impl<'de> serde::Deserialize<'de> for RedisUrl {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl serde::Serialize for RedisUrl {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl schemars::JsonSchema for RedisUrl {
    fn schema_name() -> Cow<'static, str> {
        "RedisUrl".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^((redis|rediss|valkey|valkeys)://|(env|file):).+$",
            "description": "A Redis or Valkey server: redis://user@host:6379/0, rediss:// for TLS, or env:NAME or \
                            file:PATH of such a URL; required if the URL holds a password.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_hosts_a_user_and_a_database() {
        let address = parse_address("rediss://gate%40post@one,two:7000,[::1]:7001/3").unwrap();
        let hosts = [("one", 6379), ("two", 7000), ("::1", 7001)].map(|(host, port)| (host.to_owned(), port));
        assert_eq!((address.tls, address.user.as_deref(), address.database), (true, Some("gate@post"), 3));
        assert_eq!(address.hosts, hosts);
        assert!(!address.is_local());
        assert!(parse_address("redis://127.0.0.1,localhost,[::1]").unwrap().is_local());
        let with_password = parse_address("redis://:se:cret@h").unwrap();
        assert_eq!((with_password.user, with_password.password.unwrap().expose()), (None, "se:cret"));
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_never_repeated() {
        for broken in ["redis://u:hunter2@h", "redis://u:hunter2@h:port", "http://u:hunter2@h", "redis://u:hunter2@/x"]
        {
            let why = broken.parse::<RedisUrl>().unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
        for invalid in ["redis://", "redis://h/x", "redis://h,", "redis://[::1", "redis://a b", "h:6379"] {
            assert!(invalid.parse::<RedisUrl>().is_err(), "{invalid}");
        }
    }
}
