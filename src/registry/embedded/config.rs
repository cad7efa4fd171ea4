//! What the operator decides about publishing: where documents are kept, who may publish what, and how much.

use super::Publisher;
use crate::{
    store::{self, Address, Place},
    unit::{FilePath, Glob, Span},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whoever calls without a credential is meant by this word only, never by a pattern.
const ANONYMOUS: &str = "anonymous";

/// The registry that is built in; without this section nothing can be published here.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Registry")]
#[serde(deny_unknown_fields, default)]
pub struct PublishConfig {
    /// The SQLite file that keeps what is published; on this machine's own disk, made where it is missing. Not used
    /// with `database`. Default gatepost.db.
    #[schemars(extend("default" = "gatepost.db"))]
    pub store: FilePath,
    /// A PostgreSQL database that several gateways share: `postgres://user@host/database`, or `env:NAME` or
    /// `file:PATH` of such a URL. Beyond this machine it is reached over TLS only. Default: none.
    pub database: Option<Address>,
    /// A PEM file of certificate authorities to believe besides the system's when the database is reached.
    /// Default: only the system's.
    pub database_ca: Option<FilePath>,
    /// How often a store is looked at for changes that nobody told of; 500ms to 1h, default 5s. Changes are usually
    /// told at once.
    pub poll: Span,
    /// Who may publish. Nobody may unless it is written here.
    pub publishers: Vec<PublisherRule>,
    /// Documents that one publisher may have; 1 to 100000, default 10000.
    pub most_documents: u32,
    /// Documents of all publishers; 1 to 200000, default 100000.
    pub most_in_all: u32,
    /// Socket paths that published agents may name with agent+unix: a socket is this machine's. Default: none.
    pub allow_sockets: Vec<Glob>,
    /// Whether published agents may be reached over plain http beyond this machine; `agents` must allow it too.
    /// Default: false.
    pub insecure_plaintext: bool,
}

/// Who may publish what.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PublisherRule {
    /// Callers by id, such as `key:team-a` or `oauth:*`; a pattern never means `anonymous`.
    #[serde(default)]
    pub callers: Vec<Glob>,
    /// Or by group.
    #[serde(default)]
    pub groups: Vec<Glob>,
    /// Agents that they may publish, by id. Default: all.
    #[serde(default = "every")]
    pub ids: Vec<Glob>,
    /// Whether they may change and remove what others published. Default: false.
    #[serde(default)]
    pub any_owner: bool,
}

fn every() -> Vec<Glob> {
    "*".parse().into_iter().collect()
}

impl Default for PublishConfig {
    fn default() -> Self {
        Self {
            // Read rather than made, so that it is meant from where the configuration is.
            store: "gatepost.db".parse().unwrap_or_else(|_| FilePath::from("gatepost.db")),
            database: None,
            database_ca: None,
            poll: Span::secs(5),
            publishers: Vec::new(),
            most_documents: 10_000,
            most_in_all: 100_000,
            allow_sockets: Vec::new(),
            insecure_plaintext: false,
        }
    }
}

impl PublishConfig {
    /// Every value that cannot be used, by its path within this section; looks at nothing outside of it.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(Span::millis(500)..=Span::secs(3_600)).contains(&self.poll) {
            problems.push(format!("poll: must be 500ms to 1h, not {}", self.poll));
        }
        let mut bounded = |path: &str, value: u32, most: u32| {
            if !(1..=most).contains(&value) {
                problems.push(format!("{path}: must be 1 to {most}, not {value}"));
            }
        };
        bounded("most_documents", self.most_documents, 100_000);
        bounded("most_in_all", self.most_in_all, 200_000);
        for (at, rule) in self.publishers.iter().enumerate() {
            if rule.callers.is_empty() && rule.groups.is_empty() {
                problems.push(format!("publishers[{at}]: names nobody (write callers or groups; '*' is everybody)"));
            }
            if rule.ids.is_empty() {
                problems.push(format!("publishers[{at}].ids: must not be empty (leave it out for all)"));
            }
        }
        if self.database_ca.is_some() && self.database.is_none() {
            problems.push("database_ca: is of no use without database".to_owned());
        }
        problems
    }

    /// As [`PublishConfig::problems`], and what can be told of the store without making or reaching it: for a check
    /// that leaves everything as it is.
    pub fn check(&self) -> Vec<String> {
        let mut problems = self.problems();
        let section = self.section();
        problems.extend(store::check(&self.place()).err().map(|why| format!("{section}: {why}")));
        problems
    }

    /// Whether both name the same store, which is opened once, at the start.
    pub fn same_store(&self, other: &Self) -> bool {
        let named = |config: &Self| (config.store.clone(), config.database.clone(), config.database_ca.clone());
        named(self) == named(other)
    }

    /// The setting that names the store.
    pub(super) fn section(&self) -> &'static str {
        if self.database.is_some() { "database" } else { "store" }
    }

    /// Where documents are kept.
    pub fn place(&self) -> Place {
        match &self.database {
            None => Place::File(self.store.to_path_buf()),
            Some(address) => Place::Database {
                address: address.clone(),
                authorities: self.database_ca.as_ref().map(|path| path.to_path_buf()),
            },
        }
    }

    /// The rules that mean `by`.
    pub(super) fn rules<'a>(&'a self, by: Publisher<'a>) -> impl Iterator<Item = &'a PublisherRule> {
        self.publishers.iter().filter(move |rule| rule.means(by))
    }
}

impl PublisherRule {
    fn means(&self, by: Publisher<'_>) -> bool {
        let named = |caller: &Glob| caller.matches(by.id) && (by.id != ANONYMOUS || caller.is_exact());
        let in_group = || by.groups.iter().any(|group| self.groups.iter().any(|named| named.matches(group)));
        self.callers.iter().any(named) || in_group()
    }

    /// Whether they may publish this one.
    pub(super) fn covers(&self, id: &str) -> bool {
        self.ids.iter().any(|ids| ids.matches(id))
    }
}
