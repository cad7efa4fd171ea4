//! Who may call which agent: grants, closed unless one opens. A grant names callers and agents; a caller may
//! call an agent when one grant names both. Both sides are computed when they become known, so that a call
//! only compares two short lists.

use crate::{agent::Agent, unit::Glob};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    cmp::Ordering,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The id of a caller without a credential. No other id is without a colon.
pub const ANONYMOUS: &str = "anonymous";

/// Who may call which agent. Nobody may call anything unless a grant says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// What a caller reads of an agent that it may not call: `not_found`, as if there were none, or
    /// `forbidden`. Default: not_found.
    pub unseen: Unseen,
    /// The grants. Each one widens what may be called. Default: none.
    pub grants: Vec<Grant>,
}

/// What a caller reads of an agent that it may not call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    /// 404, the same as for an agent that does not exist.
    #[default]
    NotFound,
    /// 403: callers may learn which agents exist.
    Forbidden,
}

/// One grant: these callers may call these agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Grant {
    /// Callers by their whole id, or patterns over it: `key:team-a`, `oauth:*`, `cert:*.example`. A name of
    /// one kind is nobody of another kind. `*` is everybody with a credential; callers without one are
    /// meant only by the word `anonymous`.
    pub callers: Vec<Glob>,
    /// Groups, or patterns over them; a caller in one of them is meant too.
    pub groups: Vec<Glob>,
    /// Agents by id, or patterns over it. `*` is every agent.
    pub agents: Vec<Glob>,
    /// Tags, or patterns over them; an agent with one of them is meant too.
    pub tags: Vec<Glob>,
    /// Capabilities, or patterns over them; an agent with one of them is meant too.
    pub capabilities: Vec<Glob>,
}

/// The grants that name a caller, or those that name an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantSet {
    /// Of the configuration that the numbers belong to; 0 belongs to none.
    epoch: u64,
    /// Ascending.
    grants: Arc<[u32]>,
}

impl GrantSet {
    /// Whether one grant is in both: the caller may call the agent. Sets of two configurations never agree,
    /// because their numbers mean different grants.
    pub fn meets(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (&*self.grants, &*other.grants);
        if self.epoch != other.epoch || self.epoch == 0 {
            return false;
        }
        while let ([our, rest_of_ours @ ..], [their, rest_of_theirs @ ..]) = (ours, theirs) {
            match our.cmp(their) {
                Ordering::Equal => return true,
                Ordering::Less => ours = rest_of_ours,
                Ordering::Greater => theirs = rest_of_theirs,
            }
        }
        false
    }

    /// Whether no grant is in it.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

/// Patterns with the grants they stand in; exact ones are found without a search.
#[derive(Debug, Default)]
struct Patterns {
    exact: HashMap<Box<str>, Vec<u32>>,
    globs: Vec<(Glob, u32)>,
}

impl Patterns {
    fn add(&mut self, patterns: &[Glob], grant: u32) {
        for pattern in patterns {
            match pattern.is_exact() {
                true => self.exact.entry(pattern.as_str().into()).or_default().push(grant),
                false => self.globs.push((pattern.clone(), grant)),
            }
        }
    }

    fn find(&self, name: &str, found: &mut Vec<u32>) {
        found.extend(self.exact.get(name).into_iter().flatten());
        found.extend(self.globs.iter().filter(|(glob, _)| glob.matches(name)).map(|(_, grant)| *grant));
    }
}

/// All grants, ready to be asked.
#[derive(Debug)]
pub(super) struct Access {
    epoch: u64,
    callers: Patterns,
    groups: Patterns,
    agents: Patterns,
    tags: Patterns,
    capabilities: Patterns,
    pub(super) unseen: Unseen,
}

impl Access {
    /// All grants, and what is wrong with them.
    pub(super) fn build(config: &AccessConfig) -> (Self, Vec<String>) {
        static EPOCH: AtomicU64 = AtomicU64::new(1);
        let (callers, groups, agents) = <(Patterns, Patterns, Patterns)>::default();
        let (tags, capabilities) = <(Patterns, Patterns)>::default();
        let epoch = EPOCH.fetch_add(1, Relaxed);
        let mut access = Self { epoch, callers, groups, agents, tags, capabilities, unseen: config.unseen };
        let mut problems = Vec::new();
        for (number, grant) in (0u32..).zip(&config.grants) {
            if grant.callers.is_empty() && grant.groups.is_empty() {
                problems.push(format!("access.grants[{number}]: names nobody (write callers or groups; callers: [\"*\"] is everybody with a credential)"));
            }
            if grant.agents.is_empty() && grant.tags.is_empty() && grant.capabilities.is_empty() {
                problems.push(format!("access.grants[{number}]: names no agent (write agents, tags or capabilities; agents: [\"*\"] is every agent)"));
            }
            problems.extend(
                grant.callers.iter().filter_map(strange).map(|why| format!("access.grants[{number}].callers: {why}")),
            );
            access.callers.add(&grant.callers, number);
            access.groups.add(&grant.groups, number);
            access.agents.add(&grant.agents, number);
            access.tags.add(&grant.tags, number);
            access.capabilities.add(&grant.capabilities, number);
        }
        (access, problems)
    }

    /// The grants that name this caller.
    pub(super) fn for_caller(&self, id: &str, groups: &[Arc<str>]) -> GrantSet {
        let mut found = Vec::new();
        if id == ANONYMOUS {
            found.extend(self.callers.exact.get(id).into_iter().flatten());
        } else {
            self.callers.find(id, &mut found);
            groups.iter().for_each(|group| self.groups.find(group, &mut found));
        }
        self.set(found)
    }

    /// The grants that name this agent.
    pub(super) fn for_agent(&self, agent: &Agent) -> GrantSet {
        let mut found = Vec::new();
        self.agents.find(agent.id.as_str(), &mut found);
        agent.tags.iter().for_each(|tag| self.tags.find(tag, &mut found));
        agent.capabilities.iter().for_each(|capability| self.capabilities.find(capability, &mut found));
        self.set(found)
    }

    /// Whether `grants` were found here, and not in the configuration before.
    pub(super) fn is_current(&self, grants: &GrantSet) -> bool {
        grants.epoch == self.epoch
    }

    fn set(&self, mut found: Vec<u32>) -> GrantSet {
        found.sort_unstable();
        found.dedup();
        GrantSet { epoch: self.epoch, grants: found.into() }
    }
}

/// A caller that no id can ever be: most likely its kind was forgotten.
fn strange(caller: &Glob) -> Option<String> {
    let text = caller.as_str();
    let kinds = ["key:", "oauth:", "cert:", "browser:"];
    let fits = text == ANONYMOUS || text.contains('*') || kinds.iter().any(|kind| text.starts_with(kind));
    (!fits).then(|| format!("'{text}' is nobody (write its kind too: key:{text}, oauth:{text} or cert:{text})"))
}
