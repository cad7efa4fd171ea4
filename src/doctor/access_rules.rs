//! The rules that name callers or agents, wherever they are in the configuration, each with its path.

use crate::{
    auth::{DenialConfig, GrantConfig},
    config::GatewayConfig,
    values::Glob,
};

/// What a rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleKind {
    /// A grant or denial, also in shadow mode.
    Access,
    /// Who may publish in the built-in registry, and who may use the admin listener.
    Callers,
    /// Settings of agents, and which of them a bridge exposes.
    Agents,
}

/// A rule that names callers or agents.
#[derive(Debug)]
pub(super) struct NamingRule<'a> {
    pub(super) path: String,
    pub(super) kind: RuleKind,
    pub(super) callers: &'a [Glob],
    pub(super) groups: &'a [Glob],
    pub(super) agents: &'a [Glob],
    pub(super) tags: &'a [Glob],
    pub(super) capabilities: &'a [Glob],
}

impl<'a> NamingRule<'a> {
    fn of_grant(path: String, grant: &'a GrantConfig) -> Self {
        let GrantConfig { callers, groups, agents, tags, capabilities } = grant;
        Self { path, kind: RuleKind::Access, callers, groups, agents, tags, capabilities }
    }

    fn of_denial(path: String, denial: &'a DenialConfig) -> Self {
        let DenialConfig { callers, groups, agents, tags, capabilities } = denial;
        Self { path, kind: RuleKind::Access, callers, groups, agents, tags, capabilities }
    }

    fn of_callers(path: String, callers: &'a [Glob], groups: &'a [Glob]) -> Self {
        Self { path, kind: RuleKind::Callers, callers, groups, agents: &[], tags: &[], capabilities: &[] }
    }

    fn of_agents(path: String, agents: &'a [Glob]) -> Self {
        Self { path, kind: RuleKind::Agents, callers: &[], groups: &[], agents, tags: &[], capabilities: &[] }
    }

    /// Returns the grants of a configuration.
    pub(super) fn grants(config: &'a GatewayConfig) -> Vec<Self> {
        Self::of_grants("access.grants", &config.access.grants)
    }

    /// Returns the denials of a configuration.
    pub(super) fn denials(config: &'a GatewayConfig) -> Vec<Self> {
        Self::of_denials("access.denials", &config.access.denials)
    }

    fn of_grants(section: &str, grants: &'a [GrantConfig]) -> Vec<Self> {
        let grants = grants.iter().enumerate();
        grants.map(|(at, grant)| Self::of_grant(format!("{section}[{at}]"), grant)).collect()
    }

    fn of_denials(section: &str, denials: &'a [DenialConfig]) -> Vec<Self> {
        let denials = denials.iter().enumerate();
        denials.map(|(at, denial)| Self::of_denial(format!("{section}[{at}]"), denial)).collect()
    }

    /// Returns every rule of a configuration.
    pub(super) fn all(config: &'a GatewayConfig) -> Vec<Self> {
        let mut rules = Self::grants(config);
        rules.extend(Self::denials(config));
        if let Some(shadow) = &config.access.shadow {
            rules.extend(Self::of_grants("access.shadow.grants", shadow.grants.as_deref().unwrap_or_default()));
            rules.extend(Self::of_denials("access.shadow.denials", shadow.denials.as_deref().unwrap_or_default()));
        }
        let publishers = config.registry.iter().flat_map(|registry| registry.publishers.iter().enumerate());
        rules
            .extend(publishers.map(|(at, publisher)| {
                Self::of_callers(format!("registry.publishers[{at}]"), &publisher.callers, &[])
            }));
        let roles = config.admin.access.iter().flat_map(|access| access.roles.iter().enumerate());
        rules.extend(
            roles.map(|(at, role)| Self::of_callers(format!("admin.access.roles[{at}]"), &role.callers, &role.groups)),
        );
        let of_agents = config.agents.rules.iter().enumerate();
        rules.extend(of_agents.map(|(at, rule)| Self::of_agents(format!("agents.rules[{at}]"), &rule.agents)));
        let bridges = config.mqtt_bridge.iter().enumerate();
        rules.extend(bridges.map(|(at, bridge)| Self::of_agents(format!("mqtt_bridge[{at}]"), &bridge.agents)));
        rules
    }

    /// Returns the names of a member without a wildcard, each with its path.
    pub(super) fn exact_names(&self, member: &str) -> Vec<ExactName<'a>> {
        let patterns = match member {
            "callers" => self.callers,
            "groups" => self.groups,
            "agents" => self.agents,
            "tags" => self.tags,
            _ => self.capabilities,
        };
        let exact = patterns.iter().enumerate().filter(|(_, pattern)| pattern.is_exact());
        let path = |index: usize| format!("{}.{member}[{index}]", self.path);
        exact.map(|(index, pattern)| ExactName { path: path(index), name: pattern.as_str() }).collect()
    }

    /// Returns whether every caller and agent that `other` names exactly is named by this rule as well, and `other` has
    /// no pattern.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers = |own: &[Glob], named: &[Glob]| {
            named.iter().all(|name| name.is_exact() && own.iter().any(|pattern| pattern.matches(name.as_str())))
        };
        covers(self.callers, other.callers)
            && covers(self.groups, other.groups)
            && covers(self.agents, other.agents)
            && covers(self.tags, other.tags)
            && covers(self.capabilities, other.capabilities)
    }
}

/// A name in a rule, with its path.
#[derive(Debug)]
pub(super) struct ExactName<'a> {
    pub(super) path: String,
    pub(super) name: &'a str,
}
