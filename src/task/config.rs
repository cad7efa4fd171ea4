//! What the operator decides about tasks: where they are kept, how long, how many, and whether streams can be resumed.

use super::callback::Callbacks;
use crate::{
    store::{self, Address, Place},
    unit::{FilePath, Size, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls that are answered later; without this section every call is answered at once.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Tasks")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The SQLite file that keeps tasks; on this machine's own disk, made where it is missing. Not used with
    /// `database`. Default: the store of the section `registry`, and without that section gatepost.db beside the configuration.
    pub store: Option<FilePath>,
    /// Where tasks are kept if nothing else is said; settled while the file is read, as every path is.
    #[serde(skip)]
    pub(super) usual: FilePath,
    /// A PostgreSQL database that several gateways share, as in the section `registry`. Default: that section's.
    pub database: Option<Address>,
    /// A PEM file of certificate authorities to believe besides the system's when the database is reached.
    /// Default: only the system's.
    pub database_ca: Option<FilePath>,
    /// How long a task is kept after its end, where its caller has no more than `most_own`; 1s to 30d, default 1h.
    pub keep: Span,
    /// How often callers are asked to look at a task that runs; 1s to 1h, default 2s.
    pub poll: Span,
    /// The longest that a caller may have a call wait until it becomes a task (`Prefer: wait`); 0s to 10m, default 60s.
    pub max_wait: Span,
    /// The largest answer that is kept; 1KiB to 16MiB, default 1MiB. A larger one fails its task.
    pub max_result: Size,
    /// Tasks of one caller; 1 to 100000, default 1000. Beyond it those that ended first are forgotten, and where none has
    /// ended a call is refused.
    pub most_own: u32,
    /// Tasks of all callers; 1 to 1000000, default 100000.
    pub most_in_all: u32,
    /// Tasks that run at once in one gateway; 1 to 100000, default 1000.
    pub most_running: u32,
    /// After which silence a gateway that shares the database counts as dead, and its tasks as failed; 1s to 10m,
    /// default 15s.
    pub lease: Span,
    /// How streams can be taken up again; null for not at all, so that a call ends with its connection.
    pub resume: Option<Resume>,
    /// Telling of a task's end by a webhook. Default: none, so that asking for one is refused.
    pub callbacks: Option<Callbacks>,
}

/// How a stream of events can be taken up again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Resume")]
#[serde(deny_unknown_fields, default)]
pub struct Resume {
    /// How long an agent is listened to after its caller left, and events are kept after its end; 1s to 10m,
    /// default 30s.
    pub window: Span,
    /// Bytes of events that are kept of one stream or task; 1KiB to 16MiB, default 256KiB.
    pub size: Size,
    /// Events that are kept of one stream or task; 1 to 100000, default 1000.
    pub events: u32,
    /// Streams for which events are kept at once; those beyond cannot be resumed. 0 to 100000, default 1000.
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
    /// Every value that cannot be used, by its path within this section; looks at nothing outside of it.
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
            problems.push("database_ca: is of no use without database".to_owned());
        }
        let callbacks = self.callbacks.iter().flat_map(Callbacks::problems);
        problems.extend(callbacks.map(|problem| format!("callbacks.{problem}")));
        problems
    }

    /// Where tasks are kept: where this section says, else where `published` documents are, else in a file of its
    /// own name.
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

    /// As [`Config::problems`], and what can be told of the store without making or reaching it.
    pub fn check(&self, published: Option<Place>) -> Vec<String> {
        let mut problems = self.problems();
        problems.extend(store::check(&self.place(published)).err().map(|why| format!("store: {why}")));
        let secret = self.callbacks.as_ref().and_then(|callbacks| callbacks.secret.load().err());
        problems.extend(secret.map(|why| format!("callbacks.secret: {why}")));
        problems
    }
}
