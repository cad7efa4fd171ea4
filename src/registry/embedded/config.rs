//! Configuration of publishing: where documents are stored, who may publish what, and how much.

use super::publisher::Publisher;
use crate::{
    agent::{AgentEndpoint, EndpointOrigin, OriginPattern, caller_of_owner_key},
    store::{self, DatabaseUrl, StoreLocation},
    values::{ConfigDuration, ConfigPath, Glob},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Id of callers without a credential: only this literal matches it, no pattern does.
const ANONYMOUS_ID: &str = "anonymous";

/// The embedded registry; without this section nothing can be published.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Registry")]
#[serde(deny_unknown_fields, default)]
pub struct PublishConfig {
    /// SQLite file of the published documents; on a local disk, created where it is missing. Ignored with `database`.
    /// Default gatepost.db.
    #[schemars(extend("default" = "gatepost.db"))]
    pub sqlite_file: ConfigPath,
    /// PostgreSQL database that several gateways share: `postgres://user@host/database`, or `env:NAME` or `file:PATH`
    /// of such a URL. A database beyond this machine is reached over TLS only. Default: none.
    pub database: Option<DatabaseUrl>,
    /// PEM file of certificate authorities to trust besides the system's when the database is reached.
    /// Default: only the system's.
    pub database_ca: Option<ConfigPath>,
    /// Interval between two polls of the store, for changes of which no notification arrived; 500ms to 1h, default 5s.
    /// Changes are usually notified at once.
    pub poll_interval: ConfigDuration,
    /// Whether the gateway waits for the store: until the store was read once, or its last known good agents were
    /// loaded, the gateway is not ready (`/readyz`), and calls to unknown agents get 503 instead of 404. Default true.
    pub required: bool,
    /// Who may publish. Default: no caller may.
    pub publishers: Vec<PublisherRule>,
    /// Maximum number of documents of one publisher; 1 to 100000, default 10000.
    pub max_documents_per_publisher: u32,
    /// Maximum number of documents of all publishers; 1 to 200000, default 100000.
    pub max_documents: u32,
    /// How long the id of a deleted agent stays reserved for its publisher: until then only this publisher, or one with
    /// `any_owner`, may publish the id again. 0s to 365d; 0s disables it. Default 30d. As many ids are reserved as there
    /// may be documents; beyond, the one that was deleted first becomes free.
    pub deleted_id_retention: ConfigDuration,
    /// How long a change of a document stays in the document's history, with the publisher's name; 1s to 3650d, null
    /// for no bound by time. Default 365d. At most 100 changes and 8MiB of a document are kept.
    #[serde(default = "default_history_retention")]
    pub history_retention: Option<ConfigDuration>,
    /// Socket paths that published agents may name with agent+unix, because sockets are on this machine. Default: none.
    pub allowed_sockets: Vec<Glob>,
    /// Whether published agents may be reached over plain http beyond this machine; `agents` must allow this too.
    /// Default: false.
    pub allow_plaintext: bool,
}

/// Who may publish which agents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublisherRule {
    /// Callers by id, such as `key:team-a` or `oauth:*`; a pattern never matches `anonymous`.
    #[serde(default)]
    pub callers: Vec<Glob>,
    /// Callers by group.
    #[serde(default)]
    pub groups: Vec<Glob>,
    /// Ids of the agents that they may publish. Default: all.
    #[serde(default = "default_agents")]
    pub agents: Vec<Glob>,
    /// Servers that their agents may be at: `https://*.team-a.example.com`. Servers in private networks and servers of
    /// other owners' agents must be listed. Default: every public server that no agent of another owner is at.
    #[serde(default)]
    pub endpoints: Option<Vec<OriginPattern>>,
    /// Whether they may also change and remove the agents of other publishers. Default: false.
    #[serde(default)]
    pub any_owner: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional setting")]
fn default_history_retention() -> Option<ConfigDuration> {
    Some(ConfigDuration::from_secs(365 * 86_400))
}

fn default_agents() -> Vec<Glob> {
    "*".parse().into_iter().collect()
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self {
            // Parsed, so that the path is relative to the configuration file.
            sqlite_file: "gatepost.db".parse().unwrap_or_else(|_| ConfigPath::from("gatepost.db")),
            database: None,
            database_ca: None,
            poll_interval: ConfigDuration::from_secs(5),
            required: true,
            publishers: Vec::new(),
            max_documents_per_publisher: 10_000,
            max_documents: 100_000,
            deleted_id_retention: ConfigDuration::from_secs(30 * 86_400),
            history_retention: default_history_retention(),
            allowed_sockets: Vec::new(),
            allow_plaintext: false,
        }
    }
}

impl PublishConfig {
    /// Returns every value that cannot be used, by its path within this section; without I/O.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(ConfigDuration::from_millis(500)..=ConfigDuration::from_secs(3_600)).contains(&self.poll_interval) {
            problems.push(format!("poll_interval: must be 500ms to 1h, not {}", self.poll_interval));
        }
        if self.deleted_id_retention > ConfigDuration::from_secs(365 * 86_400) {
            problems.push(format!("deleted_id_retention: must be 0s to 365d, not {}", self.deleted_id_retention));
        }
        let history_bounds = ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(3_650 * 86_400);
        if let Some(retention) = self.history_retention.filter(|retention| !history_bounds.contains(retention)) {
            problems.push(format!("history_retention: must be 1s to 3650d, not {retention}"));
        }
        let mut bounded = |path: &str, value: u32, max: u32| {
            if !(1..=max).contains(&value) {
                problems.push(format!("{path}: must be 1 to {max}, not {value}"));
            }
        };
        bounded("max_documents_per_publisher", self.max_documents_per_publisher, 100_000);
        bounded("max_documents", self.max_documents, 200_000);
        for (at, rule) in self.publishers.iter().enumerate() {
            if rule.callers.is_empty() && rule.groups.is_empty() {
                problems.push(format!("publishers[{at}]: needs callers or groups ('*' matches every caller)"));
            }
            if rule.agents.is_empty() {
                problems.push(format!("publishers[{at}].agents: must not be empty (remove it to allow all agents)"));
            }
        }
        if self.database_ca.is_some() && self.database.is_none() {
            problems.push("database_ca: has no effect without database".to_owned());
        }
        problems
    }

    /// Returns [`PublishConfig::problems`] and the problems of the store that can be found without creating or
    /// connecting to it.
    pub fn check(&self) -> Vec<String> {
        let mut problems = self.problems();
        let section = self.store_key();
        problems.extend(store::check_location(&self.store_location()).err().map(|why| format!("{section}: {why}")));
        problems
    }

    /// Returns whether both configurations name the same store. The store is opened once, at startup.
    pub fn is_same_store(&self, other: &Self) -> bool {
        let location =
            |config: &Self| (config.sqlite_file.clone(), config.database.clone(), config.database_ca.clone());
        location(self) == location(other)
    }

    /// Returns the setting that names the store.
    pub(super) fn store_key(&self) -> &'static str {
        if self.database.is_some() { "database" } else { "sqlite_file" }
    }

    /// Returns where documents are stored.
    pub fn store_location(&self) -> StoreLocation {
        match &self.database {
            None => StoreLocation::File(self.sqlite_file.to_path_buf()),
            Some(address) => StoreLocation::Database {
                address: address.clone(),
                authorities: self.database_ca.as_ref().map(|path| path.to_path_buf()),
            },
        }
    }

    /// Returns whether the endpoint is a socket that published agents may name.
    pub(in crate::registry) fn allows_socket_of(&self, endpoint: &AgentEndpoint) -> bool {
        let AgentEndpoint::Unix { socket, .. } = endpoint else { return false };
        self.allowed_sockets.iter().any(|sockets| sockets.matches(&socket.to_string_lossy()))
    }

    /// Returns whether an origin is listed for the owner of a stored document: by a rule that names the caller, or, for a
    /// caller that no rule names, by a rule for groups. The groups of an owner are not stored.
    pub(in crate::registry) fn lists_endpoint_of(&self, owner: &str, origin: &EndpointOrigin) -> bool {
        let caller = caller_of_owner_key(owner);
        let lists = |rule: &PublisherRule| rule.endpoints.iter().flatten().any(|pattern| pattern.matches(origin));
        if self.publishers.iter().any(|rule| rule.names_caller(&caller)) {
            self.publishers.iter().filter(|rule| rule.names_caller(&caller)).any(lists)
        } else {
            self.publishers.iter().filter(|rule| !rule.groups.is_empty()).any(lists)
        }
    }

    /// Returns the rules that apply to `publisher`.
    pub(super) fn rules_for<'a>(&'a self, publisher: Publisher<'a>) -> impl Iterator<Item = &'a PublisherRule> {
        self.publishers.iter().filter(move |rule| rule.applies_to(publisher))
    }
}

impl PublisherRule {
    fn applies_to(&self, publisher: Publisher<'_>) -> bool {
        let in_group = || publisher.groups.iter().any(|group| self.groups.iter().any(|named| named.matches(group)));
        self.names_caller(publisher.id) || in_group()
    }

    /// Returns whether the rule names the caller by its id.
    fn names_caller(&self, id: &str) -> bool {
        self.callers.iter().any(|caller| caller.matches(id) && (id != ANONYMOUS_ID || caller.is_exact()))
    }

    /// Returns whether the rule allows this agent.
    pub(super) fn allows_id(&self, id: &str) -> bool {
        self.agents.iter().any(|ids| ids.matches(id))
    }
}
