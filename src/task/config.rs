//! Configuration of tasks: their store, retention and limits, callbacks, and resumable streams.

use super::callback::CallbackConfig;
use crate::{
    store::{self, DatabaseUrl, StoreLocation},
    values::{ByteSize, ConfigDuration, ConfigPath, MaxShare},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Tasks: calls that the gateway answers with a task to poll. Without this section every call is answered directly.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Tasks")]
#[serde(deny_unknown_fields, default)]
pub struct TaskConfig {
    /// SQLite file that stores tasks, on a local disk; created if missing. Not used with `database`. Default: the store
    /// of the section `registry`; without that section, gatepost.db beside the configuration file.
    pub sqlite_file: Option<ConfigPath>,
    /// The default of `sqlite_file`, relative to the configuration file as every path.
    #[serde(skip)]
    pub(super) default_store: ConfigPath,
    /// PostgreSQL database that several gateways share, as in the section `registry`. Default: that section's.
    pub database: Option<DatabaseUrl>,
    /// PEM file of certificate authorities to trust besides the system's for the database. Default: only the system's.
    pub database_ca: Option<ConfigPath>,
    /// How long a task is kept after its end, unless its caller has more than `max_tasks_per_caller`; 1s to 30d.
    /// Default: 1h.
    pub result_ttl: ConfigDuration,
    /// Poll interval that the gateway suggests to callers of a running task; 1s to 1h. Default: 2s.
    pub poll_interval: ConfigDuration,
    /// Longest time a caller may ask a call to wait before it becomes a task (`Prefer: wait`); 0s to 10m. Default: 60s.
    pub max_wait: ConfigDuration,
    /// Maximum size of a task's result; 1KiB to 16MiB. A larger response fails the task. Default: 1MiB.
    pub max_result_size: ByteSize,
    /// Maximum number of tasks of one caller; 1 to 100000. At the limit the oldest ended tasks are deleted; if none has
    /// ended, the call is refused. Default: 1000.
    pub max_tasks_per_caller: u32,
    /// Maximum number of tasks of all callers, of which one caller has `limits.max_share`; 1 to 1000000. Default: 100000.
    pub max_tasks: u32,
    /// Maximum size of all stored tasks, of which one caller has `limits.max_share`; 1MiB to 1024GiB. A running task
    /// counts with `max_result_size`. Default: 2GiB.
    pub max_size: ByteSize,
    /// Maximum number of running tasks in one gateway, of which one caller has `limits.max_share`; 1 to 100000. Default:
    /// 1000.
    pub max_running: u32,
    /// The share of tasks and streams that one caller may have: `limits.max_share`.
    #[serde(skip)]
    pub(super) max_share: MaxShare,
    /// Lease of a gateway that shares the database: without a heartbeat for this long, it counts as dead and its tasks
    /// as failed; 1s to 10m. Default: 15s.
    pub lease_ttl: ConfigDuration,
    /// Resumable streams. Null turns them off: a call ends with its connection. Default: on.
    pub resume: Option<StreamResumeConfig>,
    /// Callbacks (webhooks) at the end of a task. Default: none; a call that asks for one is refused.
    pub callbacks: Option<CallbackConfig>,
}

/// Resumable event streams.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Resume")]
#[serde(deny_unknown_fields, default)]
pub struct StreamResumeConfig {
    /// How long an agent's stream continues after its caller disconnected, and how long events are kept after the end;
    /// 1s to 10m. Default: 30s.
    pub window: ConfigDuration,
    /// Maximum size of the buffered events of one stream or task; 1KiB to 16MiB. Default: 256KiB.
    pub max_size: ByteSize,
    /// Maximum number of buffered events of one stream or task; 1 to 100000. Default: 1000.
    pub max_events: u32,
    /// Maximum number of concurrent resumable streams, of which one caller has `limits.max_share`; 0 to 100000. Further
    /// streams are not resumable. Default: 1000.
    pub max_streams: u32,
}

impl Default for StreamResumeConfig {
    fn default() -> Self {
        Self {
            window: ConfigDuration::from_secs(30),
            max_size: ByteSize::from_kib(256),
            max_events: 1_000,
            max_streams: 1_000,
        }
    }
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            sqlite_file: None,
            default_store: "gatepost.db".parse().unwrap_or_else(|_| ConfigPath::from("gatepost.db")),
            database: None,
            database_ca: None,
            result_ttl: ConfigDuration::from_secs(3_600),
            poll_interval: ConfigDuration::from_secs(2),
            max_wait: ConfigDuration::from_secs(60),
            max_result_size: ByteSize::from_kib(1_024),
            max_tasks_per_caller: 1_000,
            max_tasks: 100_000,
            max_size: ByteSize::from_kib(2 << 20),
            max_running: 1_000,
            max_share: MaxShare::default(),
            lease_ttl: ConfigDuration::from_secs(15),
            resume: Some(StreamResumeConfig::default()),
            callbacks: None,
        }
    }
}

impl TaskConfig {
    /// Returns this configuration with the share of one caller.
    #[must_use]
    pub fn with_max_share(mut self, max_share: MaxShare) -> Self {
        self.max_share = max_share;
        self
    }

    /// Returns every unusable value, by its path within this section; checks nothing outside of it.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let secs = ConfigDuration::from_secs;
        let mut check_duration = |path: &str, value: ConfigDuration, range: RangeInclusive<ConfigDuration>| {
            if !range.contains(&value) {
                problems.push(format!("{path}: must be {} to {}, not {value}", range.start(), range.end()));
            }
        };
        check_duration("result_ttl", self.result_ttl, secs(1)..=secs(30 * 86_400));
        check_duration("poll_interval", self.poll_interval, secs(1)..=secs(3_600));
        check_duration("max_wait", self.max_wait, secs(0)..=secs(600));
        check_duration("lease_ttl", self.lease_ttl, secs(1)..=secs(600));
        if let Some(resume) = &self.resume {
            check_duration("resume.window", resume.window, secs(1)..=secs(600));
        }
        let mut check_size = |path: &str, value: ByteSize| {
            if !(ByteSize::from_kib(1)..=ByteSize::from_kib(16 << 10)).contains(&value) {
                problems.push(format!("{path}: must be 1KiB to 16MiB, not {value}"));
            }
        };
        check_size("max_result_size", self.max_result_size);
        if let Some(resume) = &self.resume {
            check_size("resume.max_size", resume.max_size);
        }
        if self.max_size < ByteSize::from_kib(1 << 10) {
            problems.push(format!("max_size: must be 1MiB to 1024GiB, not {}", self.max_size));
        }
        let resume = self.resume.clone().unwrap_or_default();
        let mut check_count = |path: &str, value: u32, range: RangeInclusive<u32>| {
            if !range.contains(&value) {
                problems.push(format!("{path}: must be {} to {}, not {value}", range.start(), range.end()));
            }
        };
        check_count("max_tasks_per_caller", self.max_tasks_per_caller, 1..=100_000);
        check_count("max_tasks", self.max_tasks, 1..=1_000_000);
        check_count("max_running", self.max_running, 1..=100_000);
        check_count("resume.max_events", resume.max_events, 1..=100_000);
        check_count("resume.max_streams", resume.max_streams, 0..=100_000);
        if self.database_ca.is_some() && self.database.is_none() {
            problems.push("database_ca: has no effect without database (set database as well)".to_owned());
        }
        let callbacks = self.callbacks.iter().flat_map(CallbackConfig::problems);
        problems.extend(callbacks.map(|problem| format!("callbacks.{problem}")));
        problems
    }

    /// Returns the location of the task store: as configured here, else that of the documents, else the default file.
    pub fn store_location(&self, document_store: Option<StoreLocation>) -> StoreLocation {
        match (&self.database, &self.sqlite_file) {
            (Some(address), _) => StoreLocation::Database {
                address: address.clone(),
                authorities: self.database_ca.as_ref().map(|path| path.to_path_buf()),
            },
            (None, Some(path)) => StoreLocation::File(path.to_path_buf()),
            (None, None) => document_store.unwrap_or_else(|| StoreLocation::File(self.default_store.to_path_buf())),
        }
    }

    /// As [`TaskConfig::problems`], with the problems of the store that can be found without creating or reaching it.
    pub fn check(&self, document_store: Option<StoreLocation>) -> Vec<String> {
        let mut problems = self.problems();
        problems.extend(
            store::check_location(&self.store_location(document_store))
                .err()
                .map(|problem| format!("sqlite_file: {problem}")),
        );
        let secret = self.callbacks.as_ref().and_then(|callbacks| callbacks.secret.load().err());
        problems.extend(secret.map(|problem| format!("callbacks.secret: {problem}")));
        problems
    }
}
