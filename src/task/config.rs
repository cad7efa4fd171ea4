//! Configuration of tasks: their store, retention and limits, callbacks, and resumable streams.

use super::callback::CallbackConfig;
use crate::{
    store::{self, Address, Place},
    unit::{FilePath, Size, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tasks: calls that the gateway answers with a task to poll. Without this section every call is answered directly.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Tasks")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// SQLite file that stores tasks, on a local disk; created if missing. Not used with `database`. Default: the store
    /// of the section `registry`; without that section, gatepost.db beside the configuration file.
    pub store: Option<FilePath>,
    /// Default of `store`, resolved relative to the configuration file as every path is.
    #[serde(skip)]
    pub(super) usual: FilePath,
    /// PostgreSQL database that several gateways share, as in the section `registry`. Default: that section's.
    pub database: Option<Address>,
    /// PEM file of certificate authorities to trust besides the system's for the database. Default: only the system's.
    pub database_ca: Option<FilePath>,
    /// How long a task is kept after its end, unless its caller has more than `most_own`; 1s to 30d. Default: 1h.
    pub keep: Span,
    /// Poll interval that the gateway suggests to callers of a running task; 1s to 1h. Default: 2s.
    pub poll: Span,
    /// Longest time a caller may ask a call to wait before it becomes a task (`Prefer: wait`); 0s to 10m. Default: 60s.
    pub max_wait: Span,
    /// Maximum size of a task's result; 1KiB to 16MiB. A larger response fails the task. Default: 1MiB.
    pub max_result: Size,
    /// Maximum number of tasks of one caller; 1 to 100000. At the limit the oldest ended tasks are deleted; if none has
    /// ended, the call is refused. Default: 1000.
    pub most_own: u32,
    /// Maximum number of tasks of all callers; 1 to 1000000. Default: 100000.
    pub most_in_all: u32,
    /// Maximum number of running tasks in one gateway; 1 to 100000. Default: 1000.
    pub most_running: u32,
    /// Lease of a gateway that shares the database: without a heartbeat for this long, it counts as dead and its tasks
    /// as failed; 1s to 10m. Default: 15s.
    pub lease: Span,
    /// Resumable streams. Null turns them off: a call ends with its connection. Default: on.
    pub resume: Option<Resume>,
    /// Callbacks (webhooks) at the end of a task. Default: none; a call that asks for one is refused.
    pub callbacks: Option<CallbackConfig>,
}

/// Resumable event streams.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Resume")]
#[serde(deny_unknown_fields, default)]
pub struct Resume {
    /// How long an agent's stream continues after its caller disconnected, and how long events are kept after the end;
    /// 1s to 10m. Default: 30s.
    pub window: Span,
    /// Maximum size of the buffered events of one stream or task; 1KiB to 16MiB. Default: 256KiB.
    pub size: Size,
    /// Maximum number of buffered events of one stream or task; 1 to 100000. Default: 1000.
    pub events: u32,
    /// Maximum number of concurrent resumable streams; 0 to 100000. Further streams are not resumable. Default: 1000.
    pub most: u32,
}

impl Default for Resume {
    fn default() -> Self {
        Self { window: Span::secs(30), size: Size::kib(256), events: 1_000, most: 1_000 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: None,
            usual: "gatepost.db".parse().unwrap_or_else(|_| FilePath::from("gatepost.db")),
            database: None,
            database_ca: None,
            keep: Span::secs(3_600),
            poll: Span::secs(2),
            max_wait: Span::secs(60),
            max_result: Size::kib(1_024),
            most_own: 1_000,
            most_in_all: 100_000,
            most_running: 1_000,
            lease: Span::secs(15),
            resume: Some(Resume::default()),
            callbacks: None,
        }
    }
}

impl Config {
    /// Returns every unusable value, by its path within this section; checks nothing outside of it.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut span = |path: &str, value: Span, (least, most): (Span, Span)| {
            if !(least..=most).contains(&value) {
                problems.push(format!("{path}: must be {least} to {most}, not {value}"));
            }
        };
        span("keep", self.keep, (Span::secs(1), Span::secs(30 * 86_400)));
        span("poll", self.poll, (Span::secs(1), Span::secs(3_600)));
        span("max_wait", self.max_wait, (Span::secs(0), Span::secs(600)));
        span("lease", self.lease, (Span::secs(1), Span::secs(600)));
        if let Some(resume) = &self.resume {
            span("resume.window", resume.window, (Span::secs(1), Span::secs(600)));
        }
        let mut size = |path: &str, value: Size| {
            if !(Size::kib(1)..=Size::kib(16 << 10)).contains(&value) {
                problems.push(format!("{path}: must be 1KiB to 16MiB, not {value}"));
            }
        };
        size("max_result", self.max_result);
        if let Some(resume) = &self.resume {
            size("resume.size", resume.size);
        }
        let resume = self.resume.clone().unwrap_or_default();
        let mut count = |path: &str, value: u32, (least, most): (u32, u32)| {
            if !(least..=most).contains(&value) {
                problems.push(format!("{path}: must be {least} to {most}, not {value}"));
            }
        };
        count("most_own", self.most_own, (1, 100_000));
        count("most_in_all", self.most_in_all, (1, 1_000_000));
        count("most_running", self.most_running, (1, 100_000));
        count("resume.events", resume.events, (1, 100_000));
        count("resume.most", resume.most, (0, 100_000));
        if self.database_ca.is_some() && self.database.is_none() {
            problems.push("database_ca: has no effect without database (set database as well)".to_owned());
        }
        let callbacks = self.callbacks.iter().flat_map(CallbackConfig::problems);
        problems.extend(callbacks.map(|problem| format!("callbacks.{problem}")));
        problems
    }

    /// Returns the location of the task store: as configured here, else `published` (the document store), else the
    /// default file.
    pub fn place(&self, published: Option<Place>) -> Place {
        match (&self.database, &self.store) {
            (Some(address), _) => Place::Database {
                address: address.clone(),
                authorities: self.database_ca.as_ref().map(|path| path.to_path_buf()),
            },
            (None, Some(path)) => Place::File(path.to_path_buf()),
            (None, None) => published.unwrap_or_else(|| Place::File(self.usual.to_path_buf())),
        }
    }

    /// As [`TaskConfig::problems`], and the problems of the store that show without creating or reaching it.
    pub fn check(&self, published: Option<Place>) -> Vec<String> {
        let mut problems = self.problems();
        problems.extend(store::check(&self.place(published)).err().map(|why| format!("store: {why}")));
        let secret = self.callbacks.as_ref().and_then(|callbacks| callbacks.secret.load().err());
        problems.extend(secret.map(|why| format!("callbacks.secret: {why}")));
        problems
    }
}
