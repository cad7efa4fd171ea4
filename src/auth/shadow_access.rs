//! Grants and denials in shadow mode: they are judged beside those in force, and refuse nothing.

use super::{
    caller::Caller,
    grants::{AccessConfig, GrantIndex},
};
use crate::agent::Agent;

/// The access rules that would be in force if those in shadow mode were.
#[derive(Debug)]
pub struct ShadowAccess(GrantIndex);

impl ShadowAccess {
    /// Builds the rules of `access.shadow`, if there are any. A list that the section leaves out is the one in force.
    ///
    /// # Errors
    /// Every problem of the section, by its path.
    pub fn build(config: &AccessConfig) -> Result<Option<Self>, Vec<String>> {
        let Some(shadow) = &config.shadow else { return Ok(None) };
        let rules = AccessConfig {
            grants: shadow.grants.clone().unwrap_or_else(|| config.grants.clone()),
            denials: shadow.denials.clone().unwrap_or_else(|| config.denials.clone()),
            ..AccessConfig::default()
        };
        let (index, problems) = GrantIndex::build(&rules);
        // Those of the lists in force are reported with these lists.
        let is_own = |problem: &String| {
            shadow.grants.is_some() && problem.starts_with("access.grants[")
                || shadow.denials.is_some() && problem.starts_with("access.denials[")
        };
        let problems: Vec<String> = problems.into_iter().filter(is_own).collect();
        if !problems.is_empty() {
            let in_section = |problem: String| problem.replacen("access.", "access.shadow.", 1);
            return Err(problems.into_iter().map(in_section).collect());
        }
        Ok(Some(Self(index)))
    }

    /// Returns whether the rules allow the call. Their patterns are matched for each call, because callers and routes
    /// hold the rules in force only.
    pub fn allows_call(&self, caller: &Caller, agent: &Agent) -> bool {
        self.0.rules_for_caller(&caller.id, &caller.groups).allows_call(&self.0.rules_for_agent(agent))
    }
}
