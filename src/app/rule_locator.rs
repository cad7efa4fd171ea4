//! Finds the rule that decided a call in the configuration in force: the path of its setting, and the line.

use crate::{
    config::{LoadedConfig, SettingLocations},
    explain::{DecidingRule, DocumentPlace, LocateDocument, LocateRule, LocatedRule, RejectionPlace, RuleScope},
    values::Glob,
};

/// The settings that a rule of `agents.rules` may have for its agents, each with the general setting.
const AGENT_SETTINGS: &[(&str, &str)] = &[
    ("limits.per_agent", "rate_limit"),
    ("limits.concurrency.max_per_agent", "max_concurrency"),
    ("limits.concurrency.shared_max_per_agent", "shared_max_concurrency"),
    ("limits.concurrency.adaptive", "adaptive_concurrency"),
    ("agents.a2a.max_body_size", "a2a.max_body_size"),
];

/// The settings that a tier may have, each with the general setting.
const TIER_SETTINGS: &[(&str, &str)] = &[
    ("limits.per_caller", "per_caller"),
    ("limits.per_caller_agent", "per_caller_agent"),
    ("limits.quota.per_day", "quota.per_day"),
    ("limits.quota.per_month", "quota.per_month"),
    ("limits.max_scheduling_delay", "priority"),
];

/// Settings of `agents.rules` without a general setting begin with this.
const RULE_PREFIX: &str = "agents.rules[].";

/// Settings that a rule has below `settings` begin with this.
const DEFAULTS_PREFIX: &str = "agents.defaults.";

/// The general timeouts of calls to agents, which a preset may set.
const TIMEOUTS: &str = "agents.defaults.timeouts.";

/// The rules of one configuration.
#[derive(Debug, Default)]
pub(super) struct RuleLocator {
    locations: SettingLocations,
    /// The patterns of each rule of `agents.rules`.
    agent_rules: Vec<Vec<Glob>>,
}

impl RuleLocator {
    pub(super) fn new(loaded: &LoadedConfig) -> Self {
        let rules = loaded.config.agents.rules.iter();
        Self { locations: loaded.setting_locations(), agent_rules: rules.map(|rule| rule.agents.clone()).collect() }
    }

    /// Returns the path of a setting that decides for this agent and tier: that of the last rule that names the agent
    /// and has the setting, or of the tier, or the general one.
    fn deciding_path(&self, setting: &str, scope: RuleScope<'_>) -> String {
        let specific =
            |table: &[(&str, &'static str)]| table.iter().find(|(general, _)| *general == setting).map(|(_, own)| *own);
        let of_rule = specific(AGENT_SETTINGS).or_else(|| setting.strip_prefix(RULE_PREFIX)).map(str::to_owned);
        let of_rule = of_rule.or_else(|| Some(format!("settings.{}", setting.strip_prefix(DEFAULTS_PREFIX)?)));
        if let (Some(agent), Some(member)) = (scope.agent, &of_rule) {
            let matching = self.agent_rules.iter().enumerate().rev();
            let matching = matching.filter(|(_, globs)| globs.iter().any(|glob| glob.matches(agent)));
            let paths = matching.map(|(at, _)| format!("agents.rules[{at}].{member}"));
            if let Some(path) = paths.into_iter().find_map(|path| self.setting_or_preset(path)) {
                return path;
            }
        }
        if let Some(path) = self.setting_or_preset(setting.to_owned()).filter(|_| setting.starts_with(TIMEOUTS)) {
            return path;
        }
        if let (Some(tier), Some(member)) = (scope.tier, specific(TIER_SETTINGS)) {
            let path = format!("limits.tiers.{tier}.{member}");
            if self.locations.locate(&path).is_some() {
                return path;
            }
        }
        setting.to_owned()
    }
}

impl RuleLocator {
    /// Returns a path that the configuration has: this one, or for a timeout that of the preset beside it.
    fn setting_or_preset(&self, path: String) -> Option<String> {
        if self.locations.locate(&path).is_some() {
            return Some(path);
        }
        let (section, _) = path.rsplit_once('.').filter(|(section, _)| section.ends_with(".timeouts"))?;
        let preset = format!("{section}.preset");
        self.locations.locate(&preset).is_some().then_some(preset)
    }
}

impl LocateRule for RuleLocator {
    fn locate(&self, rule: &DecidingRule, scope: RuleScope<'_>, documents: &dyn LocateDocument) -> LocatedRule {
        let of_path = |path: String| LocatedRule { line: self.locations.locate(&path), rule: path, applies_to: None };
        match rule {
            DecidingRule::Setting(setting) => {
                let located = of_path(self.deciding_path(setting, scope));
                // The rate of an agent that no setting limits is that of its document.
                if *setting == "limits.per_agent" && located.line.is_none() {
                    return document_rule(scope.agent, "rate_limits", documents);
                }
                located
            }
            DecidingRule::SettingFor(setting, applies_to) => LocatedRule {
                applies_to: Some(Box::new(self.locate(applies_to, scope, documents))),
                ..of_path(self.deciding_path(setting, scope))
            },
            DecidingRule::Grant(index) => of_path(format!("access.grants[{index}]")),
            DecidingRule::Denial(index) => of_path(format!("access.denials[{index}]")),
            DecidingRule::NoGrant => LocatedRule {
                rule: "access.grants (none names both the caller and the agent)".to_owned(),
                line: self.locations.locate("access.grants"),
                applies_to: None,
            },
            DecidingRule::NoAgent => match scope.agent.and_then(|agent| documents.locate_rejection(agent)) {
                Some(RejectionPlace { document, reason, line }) => LocatedRule {
                    rule: format!("agents.sources (the document {document} was rejected: {reason})"),
                    line,
                    applies_to: None,
                },
                None => LocatedRule {
                    rule: "agents.sources (none has the agent)".to_owned(),
                    line: self.locations.locate("agents.sources"),
                    applies_to: None,
                },
            },
            DecidingRule::Document(member) => document_rule(scope.agent, member, documents),
            DecidingRule::Request => LocatedRule::without_line("the request"),
            DecidingRule::RequestField(name) => LocatedRule::without_line(format!("the request: {name}")),
            DecidingRule::Agent => LocatedRule::without_line("the agent"),
        }
    }
}

fn document_rule(agent: Option<&str>, member: &str, documents: &dyn LocateDocument) -> LocatedRule {
    let Some(agent) = agent else { return LocatedRule::without_line(format!("document: {member}")) };
    let rule = format!("document of {agent}: {member}");
    match documents.locate_document(agent, member) {
        Some(DocumentPlace::Line(line)) => LocatedRule { line: Some(line), ..LocatedRule::without_line(rule) },
        Some(DocumentPlace::Source(source)) => LocatedRule::without_line(format!("{rule} (from {source})")),
        None => LocatedRule::without_line(rule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "listeners: [{address: 127.0.0.1:0}]
access:
  grants:
    - {callers: ['*'], agents: ['*']}
limits:
  per_caller: 5/s
  tiers:
    gold: {per_caller: 9/s}
agents:
  sources: [agents]
  rules:
    - {agents: ['a*'], rate_limit: 3/s}
    - {agents: ['*'], get: false}
    - {agents: [abc], rate_limit: 1/s}
";

    /// Documents of which `remote` comes from a source, and all others stand in files.
    struct Documents;

    impl LocateDocument for Documents {
        fn locate_document(&self, agent: &str, member: &str) -> Option<DocumentPlace> {
            Some(match agent {
                "remote" => DocumentPlace::Source("the source 'partner'".to_owned()),
                _ => DocumentPlace::Line(format!("{agent}.yaml:{}", member.len())),
            })
        }

        fn locate_rejection(&self, agent: &str) -> Option<RejectionPlace> {
            (agent == "rejected").then(|| RejectionPlace {
                document: "agents/rejected.yaml".to_owned(),
                reason: "endpoint: has no scheme".to_owned(),
                line: Some("agents/rejected.yaml:3".to_owned()),
            })
        }
    }

    fn locate(rule: &DecidingRule, agent: &str, tier: &str) -> (String, Option<String>) {
        let LocatedRule { rule, line, .. } = located(rule, agent, tier);
        (rule, line)
    }

    fn located(rule: &DecidingRule, agent: &str, tier: &str) -> LocatedRule {
        let environment = [("GATEPOST__LIMITS__PER_CALLER_AGENT".to_owned(), "1/s".to_owned())];
        let loaded = LoadedConfig::parse(CONFIG, std::path::Path::new("/"), environment.into_iter()).unwrap();
        let locator = RuleLocator::new(&loaded);
        locator.locate(rule, RuleScope { agent: Some(agent), tier: Some(tier) }, &Documents)
    }

    #[test]
    fn a_rule_is_found_where_the_tier_or_the_last_rule_for_the_agent_sets_it() {
        let setting = |path: &'static str, agent: &str, tier: &str| locate(&DecidingRule::Setting(path), agent, tier);
        let at = |path: &str, line: u64| (path.to_owned(), Some(format!(":{line}")));
        assert_eq!(setting("limits.per_caller", "abc", "silver"), at("limits.per_caller", 6));
        assert_eq!(setting("limits.per_caller", "abc", "gold"), at("limits.tiers.gold.per_caller", 8));
        assert_eq!(setting("limits.per_agent", "abc", ""), at("agents.rules[2].rate_limit", 14));
        assert_eq!(setting("limits.per_agent", "abd", ""), at("agents.rules[0].rate_limit", 12));
        let declared = ("document of x: rate_limits".to_owned(), Some("x.yaml:11".to_owned()));
        assert_eq!(setting("limits.per_agent", "x", ""), declared);
        assert_eq!(setting("agents.rules[].get", "x", ""), at("agents.rules[1].get", 13));
        assert_eq!(setting("limits.max_share", "x", ""), ("limits.max_share".to_owned(), None));
        assert_eq!(locate(&DecidingRule::Grant(0), "x", ""), at("access.grants[0]", 4));
        let (_, variable) = setting("limits.per_caller_agent", "x", "");
        assert_eq!(variable.as_deref(), Some("environment variable GATEPOST__LIMITS__PER_CALLER_AGENT"));
        assert_eq!(locate(&DecidingRule::NoAgent, "x", "").0, "agents.sources (none has the agent)");
        let rejected = "agents.sources (the document agents/rejected.yaml was rejected: endpoint: has no scheme)";
        let place = Some("agents/rejected.yaml:3".to_owned());
        assert_eq!(locate(&DecidingRule::NoAgent, "rejected", ""), (rejected.to_owned(), place));
        let remote = locate(&DecidingRule::Document("inputs".into()), "remote", "");
        assert_eq!(remote, ("document of remote: inputs (from the source 'partner')".to_owned(), None));
    }

    #[test]
    fn a_setting_names_what_it_applies_to() {
        let share = DecidingRule::SettingFor("limits.max_share", Box::new(DecidingRule::Setting("limits.per_agent")));
        let located = located(&share, "abc", "");
        assert_eq!((&*located.rule, located.line), ("limits.max_share", None));
        let applies_to = located.applies_to.unwrap();
        assert_eq!((&*applies_to.rule, applies_to.line.as_deref()), ("agents.rules[2].rate_limit", Some(":14")));
    }
}
