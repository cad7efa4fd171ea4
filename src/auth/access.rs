//! Grants: which caller may call which agent; denied by default. A grant names callers and agents; a caller may call an
//! agent if one grant names both. Both sides are computed in advance, so that a call only compares two short lists.

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

/// Id of callers without a credential. Every other id contains a colon.
pub const ANONYMOUS: &str = "anonymous";

/// Access control: which callers may call which agents. Without grants, no caller may call any agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Response for an agent that the caller may not call: `not_found`, as if the agent did not exist, or `forbidden`.
    /// Default: not_found.
    pub on_denied: Unseen,
    /// Grants; each one allows more calls. Default: none.
    pub grants: Vec<Grant>,
}

/// Response for an agent that the caller may not call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unseen {
    /// 404, as for an agent that does not exist.
    #[default]
    NotFound,
    /// 403, which reveals that the agent exists.
    Forbidden,
}

/// A grant: these callers may call these agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Grant {
    /// Callers by their full id, or patterns: `key:team-a`, `oauth:*`, `cert:*.example`. A name applies to its own kind
    /// of credential only. `*` matches every caller with a credential; callers without one are matched only by the
    /// exact word `anonymous`.
    pub callers: Vec<Glob>,
    /// Groups, or patterns; matches callers in any of them as well.
    pub groups: Vec<Glob>,
    /// Agents by id, or patterns. `*` matches every agent.
    pub agents: Vec<Glob>,
    /// Tags, or patterns; matches agents with any of them as well.
    pub tags: Vec<Glob>,
    /// Capabilities, or patterns; matches agents with any of them as well.
    pub capabilities: Vec<Glob>,
}

/// The grants that name a caller, or that name an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantSet {
    /// Identifies the configuration of the numbers; 0 identifies none.
    epoch: u64,
    /// Grant numbers, in ascending order.
    grants: Arc<[u32]>,
}

impl GrantSet {
    /// Returns whether the sets share a grant, which allows the call. Sets of two configurations never intersect,
    /// because their numbers identify different grants.
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

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }
}

/// Patterns, each with its grant; exact ones are looked up by hash.
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

/// All grants, indexed for lookups.
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
    /// Indexes the grants; returns the problems as well.
    pub(super) fn build(config: &AccessConfig) -> (Self, Vec<String>) {
        static EPOCH: AtomicU64 = AtomicU64::new(1);
        let (callers, groups, agents) = <(Patterns, Patterns, Patterns)>::default();
        let (tags, capabilities) = <(Patterns, Patterns)>::default();
        let epoch = EPOCH.fetch_add(1, Relaxed);
        let mut access = Self { epoch, callers, groups, agents, tags, capabilities, unseen: config.on_denied };
        let mut problems = Vec::new();
        for (number, grant) in (0u32..).zip(&config.grants) {
            if grant.callers.is_empty() && grant.groups.is_empty() {
                problems.push(format!("access.grants[{number}]: names no caller (write callers or groups; callers: [\"*\"] matches every caller with a credential)"));
            }
            if grant.agents.is_empty() && grant.tags.is_empty() && grant.capabilities.is_empty() {
                problems.push(format!("access.grants[{number}]: names no agent (write agents, tags or capabilities; agents: [\"*\"] matches every agent)"));
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

    /// Returns the grants that name the caller.
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

    /// Returns the grants that name the agent.
    pub(super) fn for_agent(&self, agent: &Agent) -> GrantSet {
        let mut found = Vec::new();
        self.agents.find(agent.id.as_str(), &mut found);
        agent.tags.iter().for_each(|tag| self.tags.find(tag, &mut found));
        agent.capabilities.iter().for_each(|capability| self.capabilities.find(capability, &mut found));
        self.set(found)
    }

    /// Returns whether `grants` belong to this index and not to that of a previous configuration.
    pub(super) fn is_current(&self, grants: &GrantSet) -> bool {
        grants.epoch == self.epoch
    }

    fn set(&self, mut found: Vec<u32>) -> GrantSet {
        found.sort_unstable();
        found.dedup();
        GrantSet { epoch: self.epoch, grants: found.into() }
    }
}

/// Returns the problem with a caller pattern that no id can match, most likely because the kind is missing.
fn strange(caller: &Glob) -> Option<String> {
    let text = caller.as_str();
    let kinds = ["key:", "oauth:", "cert:", "browser:"];
    let fits = text == ANONYMOUS || text.contains('*') || kinds.iter().any(|kind| text.starts_with(kind));
    (!fits).then(|| format!("'{text}' matches no caller (write the kind: key:{text}, oauth:{text} or cert:{text})"))
}
