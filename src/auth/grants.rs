//! Grants and denials: which caller may call which agent; denied by default. A grant or denial names callers and agents; a
//! caller may call an agent if a grant names both and no denial does. Both sides are computed in advance, so that a call
//! only compares two short lists.

use super::{
    access_rule::AccessRule,
    caller_patterns::{ANONYMOUS, caller_pattern_problem},
};
use crate::{agent::Agent, values::Glob};
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

/// Access control: which callers may call which agents. Without grants, no caller may call any agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Response for an agent that the caller may not call: `not_found`, as if the agent did not exist, or `forbidden`.
    /// Default: not_found.
    pub on_denied: UngrantedResponse,
    /// Grants; each one allows more calls. Default: none.
    pub grants: Vec<GrantConfig>,
    /// Denials; each one refuses calls that grants allow. A denial outweighs every grant. Default: none.
    pub denials: Vec<DenialConfig>,
    /// Grants and denials in shadow mode, beside those in force: a call that they would have refused passes, and is
    /// reported in the access log and in `gatepost_shadow_denials_total`. Default: none.
    pub shadow: Option<ShadowAccessConfig>,
}

/// Grants and denials in shadow mode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShadowAccessConfig {
    /// The whole list of grants to try. Default: the grants in force.
    pub grants: Option<Vec<GrantConfig>>,
    /// The whole list of denials to try. Default: the denials in force.
    pub denials: Option<Vec<DenialConfig>>,
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
    /// Callers by their full id, or patterns: `key:team-a`, `oauth:*`, `cert:dns:*.example`, `cert:spiffe://example.com/*`.
    /// A name applies to its own kind of credential only, and to its own kind of name in a certificate. A client of a
    /// token issuer, `oauth:LABEL/CLIENT`, includes its users. `*` matches every caller with a credential; callers
    /// without one are matched only by the exact word `anonymous`.
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

impl GrantConfig {
    /// Returns whether a pattern of the grant matches every agent, or every agent with a tag or capability.
    pub fn names_every_agent(&self) -> bool {
        let patterns = self.agents.iter().chain(&self.tags).chain(&self.capabilities);
        patterns.into_iter().any(|pattern| pattern.as_str().bytes().all(|byte| byte == b'*'))
    }

    /// Returns whether the grant names the agent: by its id, a tag or a capability.
    pub fn names_agent(&self, agent: &Agent) -> bool {
        RulePatterns::from(self).names_agent(agent)
    }
}

/// A denial: these callers may not call these agents, whatever grants say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DenialConfig {
    /// Callers by their full id, or patterns, as in grants. `*` matches every caller, also those without a credential.
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

impl DenialConfig {
    /// Returns whether the denial names the agent: by its id, a tag or a capability.
    pub fn names_agent(&self, agent: &Agent) -> bool {
        RulePatterns::from(self).names_agent(agent)
    }
}

/// The grants and denials that name a caller, or that name an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantSet {
    /// Identifies the configuration that numbers the rules; 0 identifies none.
    epoch: u64,
    /// Numbers of the denials and, from `FIRST_GRANT` on, of the grants, in ascending order.
    rules: Arc<[u32]>,
}

/// Number of the first grant. Denials have lower numbers, so that the first number that two sets share decides.
const FIRST_GRANT: u32 = 1 << 31;

impl GrantSet {
    /// Builds a set with these rules, for tests of modules that only compare sets.
    #[cfg(test)]
    pub(crate) fn of_rules(rules: &[u32]) -> Self {
        Self { epoch: 1, rules: rules.to_vec().into() }
    }

    /// Returns whether the sets share a grant and no denial, which allows the call. Sets of two configurations allow
    /// nothing, because their numbers identify different rules.
    pub fn allows_call(&self, other: &Self) -> bool {
        self.first_common_rule(other).is_some_and(|rule| rule >= FIRST_GRANT)
    }

    /// Returns the grant that allows the call, the denial that refuses it, or that there is neither.
    pub fn deciding_rule(&self, other: &Self) -> AccessRule {
        match self.first_common_rule(other) {
            None => AccessRule::NoGrant,
            Some(rule) => match rule.checked_sub(FIRST_GRANT) {
                Some(grant) => AccessRule::Grant(grant),
                None => AccessRule::Denial(rule),
            },
        }
    }

    /// Returns the number of the first rule that both sets have.
    fn first_common_rule(&self, other: &Self) -> Option<u32> {
        let (mut ours, mut theirs) = (&*self.rules, &*other.rules);
        if self.epoch != other.epoch || self.epoch == 0 {
            return None;
        }
        while let ([our, rest_of_ours @ ..], [their, rest_of_theirs @ ..]) = (ours, theirs) {
            match our.cmp(their) {
                Ordering::Equal => return Some(*our),
                Ordering::Less => ours = rest_of_ours,
                Ordering::Greater => theirs = rest_of_theirs,
            }
        }
        None
    }

    /// Returns whether the set has a grant.
    pub fn has_grant(&self) -> bool {
        self.rules.last().is_some_and(|rule| *rule >= FIRST_GRANT)
    }
}

/// Patterns, each with the number of its grant or denial. Patterns without a wildcard are looked up by hash.
#[derive(Debug, Default)]
struct GrantPatterns {
    exact: HashMap<Box<str>, Vec<u32>>,
    globs: Vec<(Glob, u32)>,
}

impl GrantPatterns {
    fn add(&mut self, patterns: &[Glob], rule: u32) {
        for pattern in patterns {
            if pattern.is_exact() {
                self.exact.entry(pattern.as_str().into()).or_default().push(rule);
            } else {
                self.globs.push((pattern.clone(), rule));
            }
        }
    }

    fn collect_matches(&self, name: &str, matches: &mut Vec<u32>) {
        matches.extend(self.exact.get(name).into_iter().flatten());
        matches.extend(self.globs.iter().filter(|(glob, _)| glob.matches(name)).map(|(_, rule)| *rule));
    }
}

/// The patterns of one grant or denial.
struct RulePatterns<'a> {
    callers: &'a [Glob],
    groups: &'a [Glob],
    agents: &'a [Glob],
    tags: &'a [Glob],
    capabilities: &'a [Glob],
}

impl<'a> From<&'a GrantConfig> for RulePatterns<'a> {
    fn from(grant: &'a GrantConfig) -> Self {
        let GrantConfig { callers, groups, agents, tags, capabilities } = grant;
        Self { callers, groups, agents, tags, capabilities }
    }
}

impl<'a> From<&'a DenialConfig> for RulePatterns<'a> {
    fn from(denial: &'a DenialConfig) -> Self {
        let DenialConfig { callers, groups, agents, tags, capabilities } = denial;
        Self { callers, groups, agents, tags, capabilities }
    }
}

impl RulePatterns<'_> {
    /// Returns whether the rule names the agent, as [`GrantIndex::rules_for_agent`] finds it.
    fn names_agent(&self, agent: &Agent) -> bool {
        let matches = |patterns: &[Glob], name: &str| patterns.iter().any(|pattern| pattern.matches(name));
        matches(self.agents, agent.id.as_str())
            || agent.tags.iter().any(|tag| matches(self.tags, tag))
            || agent.capabilities.iter().any(|capability| matches(self.capabilities, capability))
    }

    /// Returns the problems of the rule.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.callers.is_empty() && self.groups.is_empty() {
            problems.push(
                ": names no caller (write callers or groups; callers: [\"*\"] matches every caller with a credential)"
                    .to_owned(),
            );
        }
        if self.agents.is_empty() && self.tags.is_empty() && self.capabilities.is_empty() {
            problems.push(
                ": names no agent (write agents, tags or capabilities; agents: [\"*\"] matches every agent)".to_owned(),
            );
        }
        let unmatchable = self.callers.iter().filter_map(caller_pattern_problem);
        problems.extend(unmatchable.map(|why| format!(".callers: {why}")));
        problems
    }
}

/// All grants and denials, indexed for lookups.
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
    /// Indexes the grants and denials, and returns the index with the problems of the section.
    pub(super) fn build(config: &AccessConfig) -> (Self, Vec<String>) {
        static EPOCH: AtomicU64 = AtomicU64::new(1);
        let (callers, groups, agents) = <(GrantPatterns, GrantPatterns, GrantPatterns)>::default();
        let (tags, capabilities) = <(GrantPatterns, GrantPatterns)>::default();
        let epoch = EPOCH.fetch_add(1, Relaxed);
        let mut index =
            Self { epoch, callers, groups, agents, tags, capabilities, ungranted_response: config.on_denied };
        let mut problems = Vec::new();
        for (at, (number, grant)) in (FIRST_GRANT..).zip(&config.grants).enumerate() {
            let grant = RulePatterns::from(grant);
            problems.extend(grant.problems().into_iter().map(|why| format!("access.grants[{at}]{why}")));
            index.add(number, &grant);
        }
        for (number, denial) in (0..FIRST_GRANT).zip(&config.denials) {
            let denial = RulePatterns::from(denial);
            problems.extend(denial.problems().into_iter().map(|why| format!("access.denials[{number}]{why}")));
            index.add(number, &denial);
        }
        (index, problems)
    }

    fn add(&mut self, number: u32, rule: &RulePatterns<'_>) {
        self.callers.add(rule.callers, number);
        self.groups.add(rule.groups, number);
        self.agents.add(rule.agents, number);
        self.tags.add(rule.tags, number);
        self.capabilities.add(rule.capabilities, number);
    }

    /// Returns the grants and denials that name the caller. Of grants, only the exact word `anonymous` names callers
    /// without a credential; a denial names them by a pattern as well, because a denial of every caller means every one.
    pub(super) fn rules_for_caller(&self, id: &str, groups: &[Arc<str>]) -> GrantSet {
        let mut matches = Vec::new();
        self.callers.collect_matches(id, &mut matches);
        groups.iter().for_each(|group| self.groups.collect_matches(group, &mut matches));
        if id == ANONYMOUS {
            let exact = self.callers.exact.get(id).map(Vec::as_slice).unwrap_or_default();
            matches.retain(|rule| *rule < FIRST_GRANT || exact.contains(rule));
        }
        self.to_grant_set(matches)
    }

    /// Returns the grants and denials that name the agent.
    pub(super) fn rules_for_agent(&self, agent: &Agent) -> GrantSet {
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
        GrantSet { epoch: self.epoch, rules: matches.into() }
    }
}
