//! What a configuration changes: its settings that differ from the defaults, each with its default and the place where it
//! is written. Nothing here shows a secret: hashes of keys, users and queries of URLs, and texts that look like secrets
//! are replaced; references to secrets are shown.

use crate::{
    config::{GatewayConfig, SettingLocations},
    telemetry::redact,
    values::redact_known_secrets,
};
use serde_json::{Map, Value, json};

const REDACTED: &str = "[redacted]";

/// Names of settings whose values are shown only if they are references to secrets, and the ends of such names.
const SECRET_NAMES: &[&str] =
    &["hash", "password", "passphrase", "secret", "token", "pepper", "apikey", "api_key", "credential"];

/// A setting that differs from its default.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChangedSetting {
    /// The path, such as `limits.per_caller`.
    pub(super) path: String,
    /// The value in force, redacted.
    pub(super) value: Value,
    /// The default; `None` where the setting belongs to a list, a map or a section that is absent by default.
    pub(super) default: Option<Value>,
    /// Where the setting is written.
    pub(super) location: Option<String>,
}

/// Returns the settings as JSON, redacted.
pub(super) fn redacted_settings(config: &GatewayConfig) -> Value {
    let mut settings = serde_json::to_value(config).unwrap_or_default();
    redact_values(&mut settings, "");
    settings
}

/// Returns the settings that differ from those of a configuration that sets nothing.
pub(super) fn changed_settings(config: &GatewayConfig, locations: &SettingLocations) -> Vec<ChangedSetting> {
    let defaults = serde_json::from_value::<GatewayConfig>(json!({"listeners": []}));
    let defaults = defaults.map(|defaults| redacted_settings(&defaults)).unwrap_or_default();
    let mut comparison = Comparison { locations, changed: Vec::new() };
    comparison.compare(String::new(), &redacted_settings(config), Some(&defaults));
    comparison.changed
}

struct Comparison<'a> {
    locations: &'a SettingLocations,
    changed: Vec<ChangedSetting>,
}

impl Comparison<'_> {
    fn compare(&mut self, path: String, value: &Value, default: Option<&Value>) {
        if default == Some(value) {
            return;
        }
        let known = default.filter(|default| !default.is_null());
        match value {
            Value::Object(members) if !members.is_empty() => {
                self.compare_members(&path, members, known.and_then(Value::as_object));
                if known.is_none() {
                    self.add_unless_listed(path, value, default);
                }
            }
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                let defaults = known.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                for (at, item) in items.iter().enumerate() {
                    let path = format!("{path}[{at}]");
                    self.compare(path.clone(), item, defaults.get(at));
                    if defaults.get(at) != Some(item) {
                        self.add_unless_listed(path, item, None);
                    }
                }
                if items.len() < defaults.len() {
                    self.add(path, value, default);
                }
            }
            _ if self.is_changed(&path, value, default) => self.add(path, value, default),
            _ => {}
        }
    }

    fn compare_members(&mut self, path: &str, members: &Map<String, Value>, defaults: Option<&Map<String, Value>>) {
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, member) in members {
            self.compare(join(name), member, defaults.and_then(|defaults| defaults.get(name)));
        }
        for (name, default) in defaults.into_iter().flatten().filter(|(name, _)| !members.contains_key(*name)) {
            self.add(join(name), &Value::Null, Some(default));
        }
    }

    /// Returns whether a single value is one that somebody set.
    fn is_changed(&self, path: &str, value: &Value, default: Option<&Value>) -> bool {
        let is_written = self.locations.locate(path).is_some();
        match (value, default) {
            // A setting of a list, a map or an optional section: what is not written there has its own default.
            (Value::Null, None) => is_written,
            (_, None) => is_written || self.is_set_by_environment(path),
            // The default of a path is relative to the folder of the file, which only the value in force knows.
            (Value::String(value), Some(Value::String(default))) => {
                is_written || !value.strip_suffix(default.as_str()).is_some_and(|folder| folder.ends_with('/'))
            }
            _ => true,
        }
    }

    /// Adds a whole section or item that is written, unless a setting in it is listed.
    fn add_unless_listed(&mut self, path: String, value: &Value, default: Option<&Value>) {
        let is_within = |listed: &str| {
            listed.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let is_listed = self.changed.last().is_some_and(|last| is_within(&last.path));
        if !is_listed && self.locations.locate(&path).is_some() {
            self.add(path, value, default);
        }
    }

    fn add(&mut self, path: String, value: &Value, default: Option<&Value>) {
        let location = self.nearest_location(&path);
        self.changed.push(ChangedSetting { path, value: value.clone(), default: default.cloned(), location });
    }

    fn is_set_by_environment(&self, path: &str) -> bool {
        self.nearest_location(path).is_some_and(|location| location.starts_with("environment variable"))
    }

    /// Returns where the setting is written, or what it is a part of.
    fn nearest_location(&self, path: &str) -> Option<String> {
        let mut ancestor = path;
        loop {
            if let Some(location) = self.locations.locate(ancestor) {
                return Some(location);
            }
            ancestor = ancestor.get(..ancestor.rfind(['.', '['])?)?;
        }
    }
}

/// Replaces what looks like a secret in the strings below a setting `name`.
fn redact_values(value: &mut Value, name: &str) {
    match value {
        Value::Object(members) => members.iter_mut().for_each(|(name, member)| redact_values(member, name)),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_values(item, name)),
        Value::String(text) if is_reference(text) => {}
        Value::String(text) if is_secret_name(name) => *text = REDACTED.to_owned(),
        Value::String(text) => *text = redact(&redact_known_secrets(text)).into_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let is_end = |secret: &str| name.strip_suffix(secret).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
    SECRET_NAMES.iter().any(|secret| is_end(secret))
}

/// Returns whether a text only says where a secret is: `env:NAME`, or `file:PATH`.
fn is_reference(text: &str) -> bool {
    let is_plain = |text: &str, others: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
    };
    match text.split_once(':') {
        Some(("env", name)) => is_plain(name, b"_"),
        Some(("file", path)) => is_plain(path, b"_-./") && !path.starts_with("//"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LoadedConfig;
    use std::path::Path;

    fn changes(text: &str, environment: &[(&str, &str)]) -> Vec<ChangedSetting> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let loaded = LoadedConfig::parse(text, Path::new("/etc/gatepost"), environment).unwrap();
        changed_settings(&loaded.config, &loaded.setting_locations())
    }

    fn find<'a>(changes: &'a [ChangedSetting], path: &str) -> &'a ChangedSetting {
        changes.iter().find(|change| change.path == path).unwrap_or_else(|| panic!("{path}: {changes:#?}"))
    }

    fn paths(changes: &[ChangedSetting]) -> Vec<&str> {
        changes.iter().map(|change| change.path.as_str()).collect()
    }

    const MINIMAL: &str = "listeners:\n  - address: 127.0.0.1:0\n";

    #[test]
    fn a_configuration_that_sets_only_what_is_required_changes_only_that() {
        let changes = changes(MINIMAL, &[]);
        assert_eq!(paths(&changes), ["listeners[0].address"], "{changes:#?}");
        assert_eq!(changes[0].location.as_deref(), Some(":2"), "a text has no file name");
        assert_eq!(changes[0].default, None);
    }

    #[test]
    fn a_changed_setting_has_its_value_its_default_and_its_line() {
        let text = format!("{MINIMAL}explain:\n  recent_decisions: 7\nagents:\n  poll_interval: 500ms\n");
        let changes = changes(&text, &[]);
        let changed = find(&changes, "explain.recent_decisions");
        assert_eq!((&changed.value, &changed.default), (&json!(7), &Some(json!(1_000))));
        assert_eq!(changed.location.as_deref(), Some(":4"));
        assert!(!paths(&changes).contains(&"agents.poll_interval"), "it is written, and is the default");
        assert!(!paths(&changes).contains(&"agents.last_known_good"), "its folder is that of the file");
    }

    #[test]
    fn a_path_that_is_set_to_null_or_to_another_path_is_changed() {
        let of = |value: &str| changes(&format!("{MINIMAL}agents:\n  last_known_good: {value}\n"), &[]);
        let none = of("null");
        let changed = find(&none, "agents.last_known_good");
        assert_eq!((&changed.value, &changed.default), (&Value::Null, &Some(json!("gatepost.state"))));
        assert_eq!(find(&of("other"), "agents.last_known_good").value, json!("/etc/gatepost/other"));
        assert_eq!(find(&of("/var/gatepost.state"), "agents.last_known_good").location.as_deref(), Some(":4"));
    }

    #[test]
    fn of_lists_maps_and_optional_sections_only_what_is_written_is_listed() {
        let text = format!(
            "{MINIMAL}limits:\n  tiers:\n    gold: {{per_caller: 7/s}}\n    gold.plus: {{}}\naccess:\n  grants:\n    - callers: ['*']\n      agents: [a, b]\nregistry: {{}}\nagents:\n  sources: [agents.json, {{kind: aidip, url: 'https://a.example/agents'}}]\n  rules:\n    - agents: ['x-*']\n      get: false\n"
        );
        let changes = changes(&text, &[]);
        assert_eq!(find(&changes, "limits.tiers.gold.per_caller").default, None);
        assert!(changes.iter().any(|change| change.path == "limits.tiers.gold.plus"), "{changes:#?}");
        assert_eq!(find(&changes, "access.grants[0].agents").value, json!(["a", "b"]));
        assert_eq!(find(&changes, "agents.sources[0]").value, json!("/etc/gatepost/agents.json"));
        assert_eq!(find(&changes, "agents.sources[1].kind").value, json!("aidip"));
        assert_eq!(find(&changes, "agents.rules[0].get").value, json!(false));
        assert_eq!(find(&changes, "registry").default, Some(Value::Null), "the section is on, with its defaults");
        let unwritten = ["agents.rules[0].settings", "limits.tiers.gold.quota", "agents.sources[1].required"];
        let listed = |path: &&str| paths(&changes).iter().any(|listed| listed.starts_with(*path));
        assert!(!unwritten.iter().any(listed), "{changes:#?}");
    }

    #[test]
    fn a_setting_of_the_environment_names_its_variable() {
        let environment = [
            ("GATEPOST__EXPLAIN__RECENT_DECISIONS", "5"),
            ("GATEPOST__ACCESS__GRANTS", r#"[{"callers": ["*"], "agents": ["a"]}]"#),
        ];
        let changes = changes(MINIMAL, &environment);
        let location = |path: &str| find(&changes, path).location.clone().unwrap();
        assert_eq!(location("explain.recent_decisions"), "environment variable GATEPOST__EXPLAIN__RECENT_DECISIONS");
        assert!(location("access.grants[0].agents").contains("GATEPOST__ACCESS__GRANTS"));
    }

    #[test]
    fn hashes_of_keys_and_secrets_are_not_shown_and_references_and_names_are() {
        let hash = "0123456789abcdef".repeat(4);
        let text = format!(
            "{MINIMAL}auth:\n  api_keys:\n    pepper: env:PEPPER_TOKEN\n    keys:\n      - {{prefix: 0123456789ab, hash: '{hash}', caller: team-b}}\nagents:\n  sources:\n    - {{kind: aidip, url: 'https://user:hunter2@a.example/agents?key=hunter3', credential: {{bearer: 'file:secrets/token'}}}}\n"
        );
        let loaded = LoadedConfig::parse(&text, Path::new("/etc/gatepost"), std::iter::empty()).unwrap();
        let all = redacted_settings(&loaded.config).to_string();
        let changes = changed_settings(&loaded.config, &loaded.setting_locations());
        let listed = format!("{changes:?}");
        for text in [&all, &listed] {
            for secret in [&*hash, "hunter2", "hunter3"] {
                assert!(!text.contains(secret), "{text}");
            }
            for shown in ["team-b", "env:PEPPER_TOKEN", "file:/etc/gatepost/secrets/token", "a.example/agents"] {
                assert!(text.contains(shown), "{shown}: {text}");
            }
        }
        assert_eq!(find(&changes, "auth.api_keys.keys[0].hash").value, json!(REDACTED));
    }

    #[test]
    fn only_plain_references_are_shown_as_they_are() {
        for text in ["env:NAME", "file:/run/secrets/key.pem", "file:a"] {
            assert!(is_reference(text), "{text}");
        }
        for text in ["env:", "file://user:pw@host/x", "env:A B", "file:a?token=b", "hash:1", "https://a.example", ""] {
            assert!(!is_reference(text), "{text}");
        }
        for name in ["hash", "client_secret", "Api-Key", "x-api-key", "password"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["prefix", "token_cache_ttl", "rehash", "url", ""] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
