//! Grants: which caller may call which agent; denied by default. A grant names callers and agents; a caller may call an
//! agent if one grant names both. Both sides are computed in advance, so that a call only compares two short lists.

use crate::{
    agent::{Agent, AuthenticationMethod, BROWSER_ID_PREFIX},
    values::Glob,
};
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
    pub on_denied: UngrantedResponse,
    /// Grants; each one allows more calls. Default: none.
    pub grants: Vec<GrantConfig>,
}

/// Response for an agent that the caller may not call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UngrantedResponse {
    /// 404, as for an agent that does not exist.
    #[default]
    NotFound,
    /// 403, which reveals that the agent exists.
    Forbidden,
}

/// A grant: these callers may call these agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GrantConfig {
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
    /// Identifies the configuration that numbers the grants; 0 identifies none.
    epoch: u64,
    /// Numbers of the grants, in ascending order.
    grants: Arc<[u32]>,
}

impl GrantSet {
    /// Returns whether the sets share a grant, which allows the call. Sets of two configurations never intersect,
    /// because their numbers identify different grants.
    pub fn intersects(&self, other: &Self) -> bool {
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

/// Patterns, each with the number of its grant. Patterns without a wildcard are looked up by hash.
#[derive(Debug, Default)]
struct GrantPatterns {
    exact: HashMap<Box<str>, Vec<u32>>,
    globs: Vec<(Glob, u32)>,
}

impl GrantPatterns {
    fn add(&mut self, patterns: &[Glob], grant: u32) {
        for pattern in patterns {
            if pattern.is_exact() {
                self.exact.entry(pattern.as_str().into()).or_default().push(grant);
            } else {
                self.globs.push((pattern.clone(), grant));
            }
        }
    }

    fn collect_matches(&self, name: &str, matches: &mut Vec<u32>) {
        matches.extend(self.exact.get(name).into_iter().flatten());
        matches.extend(self.globs.iter().filter(|(glob, _)| glob.matches(name)).map(|(_, grant)| *grant));
    }
}

/// All grants, indexed for lookups.
#[derive(Debug)]
pub(super) struct GrantIndex {
    epoch: u64,
    callers: GrantPatterns,
    groups: GrantPatterns,
    agents: GrantPatterns,
    tags: GrantPatterns,
    capabilities: GrantPatterns,
    pub(super) ungranted_response: UngrantedResponse,
}

impl GrantIndex {
    /// Indexes the grants, and returns the index with the problems of the section.
    pub(super) fn build(config: &AccessConfig) -> (Self, Vec<String>) {
        static EPOCH: AtomicU64 = AtomicU64::new(1);
        let (callers, groups, agents) = <(GrantPatterns, GrantPatterns, GrantPatterns)>::default();
        let (tags, capabilities) = <(GrantPatterns, GrantPatterns)>::default();
        let epoch = EPOCH.fetch_add(1, Relaxed);
        let mut index =
            Self { epoch, callers, groups, agents, tags, capabilities, ungranted_response: config.on_denied };
        let mut problems = Vec::new();
        for (number, grant) in (0u32..).zip(&config.grants) {
            if grant.callers.is_empty() && grant.groups.is_empty() {
                problems.push(format!("access.grants[{number}]: names no caller (write callers or groups; callers: [\"*\"] matches every caller with a credential)"));
            }
            if grant.agents.is_empty() && grant.tags.is_empty() && grant.capabilities.is_empty() {
                problems.push(format!("access.grants[{number}]: names no agent (write agents, tags or capabilities; agents: [\"*\"] matches every agent)"));
            }
            problems.extend(
                grant
                    .callers
                    .iter()
                    .filter_map(unmatchable_caller_problem)
                    .map(|why| format!("access.grants[{number}].callers: {why}")),
            );
            index.callers.add(&grant.callers, number);
            index.groups.add(&grant.groups, number);
            index.agents.add(&grant.agents, number);
            index.tags.add(&grant.tags, number);
            index.capabilities.add(&grant.capabilities, number);
        }
        (index, problems)
    }

    /// Returns the grants that name the caller.
    pub(super) fn grants_for_caller(&self, id: &str, groups: &[Arc<str>]) -> GrantSet {
        let mut matches = Vec::new();
        if id == ANONYMOUS {
            matches.extend(self.callers.exact.get(id).into_iter().flatten());
        } else {
            self.callers.collect_matches(id, &mut matches);
            groups.iter().for_each(|group| self.groups.collect_matches(group, &mut matches));
        }
        self.to_grant_set(matches)
    }

    /// Returns the grants that name the agent.
    pub(super) fn grants_for_agent(&self, agent: &Agent) -> GrantSet {
        let mut matches = Vec::new();
        self.agents.collect_matches(agent.id.as_str(), &mut matches);
        agent.tags.iter().for_each(|tag| self.tags.collect_matches(tag, &mut matches));
        agent.capabilities.iter().for_each(|capability| self.capabilities.collect_matches(capability, &mut matches));
        self.to_grant_set(matches)
    }

    /// Returns whether `grants` belong to this index and not to that of a previous configuration.
    pub(super) fn is_current(&self, grants: &GrantSet) -> bool {
        grants.epoch == self.epoch
    }

    fn to_grant_set(&self, mut matches: Vec<u32>) -> GrantSet {
        matches.sort_unstable();
        matches.dedup();
        GrantSet { epoch: self.epoch, grants: matches.into() }
    }
}

/// Returns the problem with a caller pattern that no id can match, most likely because the prefix of the method is
/// missing.
fn unmatchable_caller_problem(caller: &Glob) -> Option<String> {
    let text = caller.as_str();
    let prefixes = AuthenticationMethod::ALL.map(AuthenticationMethod::caller_id_prefix);
    let prefixes = || prefixes.into_iter().filter(|prefix| !prefix.is_empty());
    let has_prefix = prefixes().chain([BROWSER_ID_PREFIX]).any(|prefix| text.starts_with(prefix));
    if has_prefix || text == ANONYMOUS || text.contains('*') {
        return None;
    }
    let examples: Vec<String> = prefixes().map(|prefix| format!("{prefix}{text}")).collect();
    let (last, others) = examples.split_last()?;
    Some(format!("'{text}' matches no caller (write the kind: {} or {last})", others.join(", ")))
}
