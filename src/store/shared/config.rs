//! Configuration of the shared state.

use super::redis_url::{RedisAddress, RedisUrl};
use crate::{
    store::{DatabaseUrl, postgres},
    values::{ConfigDuration, ConfigPath, SecretRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state that several gateways share: rates, quotas, idempotency keys, paired pages, withdrawn keys and tokens, and
/// the events of tasks. Exactly one of `redis` and `database`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "State")]
#[serde(deny_unknown_fields)]
pub struct StateConfig {
    /// A Redis or Valkey server. Default: none.
    #[serde(default)]
    pub redis: Option<RedisConfig>,
    /// A PostgreSQL database: postgres://user@host/database, or env:NAME or file:PATH of such a URL. Default: none.
    #[serde(default)]
    pub database: Option<DatabaseUrl>,
    /// File of certificate authorities for the database, besides those of the system. Default: none.
    #[serde(default)]
    pub database_ca: Option<ConfigPath>,
    /// How long a call waits for the shared counts of its limits before it is decided without them (`limits.on_error`);
    /// 1ms to 1s. Default 20ms.
    #[serde(default = "default_timeout")]
    pub timeout: ConfigDuration,
}

/// A Redis or Valkey server: one, a primary that sentinels know, or a cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Redis")]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// redis://user@host:6379/0, or rediss:// for TLS; several hosts are separated by commas, for sentinels or the nodes
    /// of a cluster. A URL with a password is env:NAME or file:PATH. Required.
    pub url: RedisUrl,
    /// Password of the user. It is read again about once a second, and a changed one makes a new connection, which replaces
    /// the present one once the server accepts it. Default: none.
    #[serde(default)]
    pub password: Option<SecretRef>,
    /// The sentinels' name of the primary; the URL lists the sentinels. Default: none.
    #[serde(default)]
    pub sentinel: Option<SentinelConfig>,
    /// Whether the URL lists nodes of a cluster. Default false.
    #[serde(default)]
    pub cluster: bool,
    /// File of certificate authorities for TLS, instead of those of the system. Default: none.
    #[serde(default)]
    pub ca: Option<ConfigPath>,
    /// Whether a server beyond this machine may be reached without TLS. Default false.
    #[serde(default)]
    pub plaintext: bool,
    /// What the names of all keys begin with; 1 to 64 letters, digits and -_.: Gateways with one prefix share their
    /// state. Default gatepost.
    #[serde(default = "default_key_prefix")]
    pub key_prefix: String,
}

/// Sentinels, which know the primary.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Sentinel")]
#[serde(deny_unknown_fields)]
pub struct SentinelConfig {
    /// Name of the primary. Required.
    pub master: String,
    /// Password of the sentinels. Default: none.
    #[serde(default)]
    pub password: Option<SecretRef>,
}

impl StateConfig {
    /// Returns every problem of the section, by its path within the section. Opens no connection.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match (&self.redis, &self.database) {
            (None, None) => problems.push("redis: required, unless there is a database".to_owned()),
            (Some(_), Some(_)) => problems.push("database: cannot be used together with redis (write one)".to_owned()),
            (Some(redis), None) => problems.extend(redis.problems().into_iter().map(|why| format!("redis.{why}"))),
            (None, Some(database)) => {
                let problem = postgres::check_url(database, self.database_ca.as_deref());
                problems.extend(problem.err().map(|why| format!("database: {why}")));
            }
        }
        if !(ConfigDuration::from_millis(1)..=ConfigDuration::from_secs(1)).contains(&self.timeout) {
            problems.push(format!("timeout: must be 1ms to 1s, not {}", self.timeout));
        }
        problems
    }
}

impl RedisConfig {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let address = self.url.resolve().and_then(|address| self.check_address(&address));
        problems.extend(address.err().map(|why| format!("url: {why}")));
        let sentinel_password = self.sentinel.as_ref().and_then(|sentinel| sentinel.password.as_ref());
        for (key, secret) in [("password", self.password.as_ref()), ("sentinel.password", sentinel_password)] {
            problems.extend(secret.and_then(|secret| secret.load().err()).map(|why| format!("{key}: {why}")));
        }
        if self.cluster && self.sentinel.is_some() {
            problems.push("cluster: cannot be used together with sentinel".to_owned());
        }
        if let Some(path) = &self.ca
            && let Err(why) = std::fs::read(path)
        {
            problems.push(format!("ca: {} cannot be read ({why})", path.display()));
        }
        let is_usable = |letter: u8| letter.is_ascii_alphanumeric() || b"-_.:".contains(&letter);
        if !(1..=64).contains(&self.key_prefix.len()) || !self.key_prefix.bytes().all(is_usable) {
            problems.push("key_prefix: must be 1 to 64 letters, digits and -_.:".to_owned());
        }
        problems
    }

    /// Checks an address: of the configuration, of a file that has changed since, or of a server that sentinels name.
    ///
    /// # Errors
    /// Why the gateway must not connect to it.
    pub(super) fn check_address(&self, address: &RedisAddress) -> Result<(), String> {
        if !address.tls && !self.plaintext && !address.is_local() {
            return Err(
                "reaches a server beyond this machine without TLS (write rediss://, or plaintext: true)".to_owned()
            );
        }
        if address.hosts.len() > 1 && self.sentinel.is_none() && !self.cluster {
            return Err("has several hosts (write sentinel for sentinels, or cluster: true)".to_owned());
        }
        if address.database != 0 && self.cluster {
            return Err("a cluster has no database but 0".to_owned());
        }
        Ok(())
    }
}

fn default_timeout() -> ConfigDuration {
    ConfigDuration::from_millis(20)
}

fn default_key_prefix() -> String {
    "gatepost".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(section: serde_json::Value) -> Vec<String> {
        serde_json::from_value::<StateConfig>(section).unwrap().problems()
    }

    #[test]
    fn a_section_names_one_server_and_every_problem_has_its_path() {
        for usable in [
            json!({"redis": {"url": "redis://127.0.0.1"}}),
            json!({"redis": {"url": "rediss://u@redis.example:6380/2"}, "timeout": "50ms"}),
            json!({"redis": {"url": "redis://redis.example", "plaintext": true}}),
            json!({"redis": {"url": "rediss://a,b:6380", "cluster": true}}),
            json!({"redis": {"url": "rediss://a,b", "sentinel": {"master": "m"}}}),
            json!({"database": "postgres://u@127.0.0.1/x"}),
        ] {
            assert_eq!(problems(usable.clone()), [""; 0], "{usable}");
        }
        for (section, path) in [
            (json!({}), "redis: required"),
            (
                json!({"redis": {"url": "redis://127.0.0.1"}, "database": "postgres://u@127.0.0.1/x"}),
                "database: cannot",
            ),
            (json!({"redis": {"url": "redis://redis.example"}}), "redis.url: reaches"),
            (json!({"redis": {"url": "redis://127.0.0.1,127.0.0.2"}}), "redis.url: has several hosts"),
            (json!({"redis": {"url": "redis://127.0.0.1/1", "cluster": true}}), "redis.url: a cluster"),
            (json!({"redis": {"url": "redis://127.0.0.1", "password": "env:NO_SUCH_VARIABLE"}}), "redis.password: "),
            (json!({"redis": {"url": "redis://127.0.0.1", "ca": "/no/such/file"}}), "redis.ca: "),
            (json!({"redis": {"url": "redis://127.0.0.1", "key_prefix": "a b"}}), "redis.key_prefix: "),
            (json!({"redis": {"url": "redis://127.0.0.1"}, "timeout": "2s"}), "timeout: "),
            (json!({"database": "postgres:///x"}), "database: "),
        ] {
            let problems = problems(section.clone());
            assert!(problems.len() == 1 && problems[0].starts_with(path), "{section} {problems:?}");
        }
    }
}
