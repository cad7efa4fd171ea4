//! The configuration of operators: their roles, and the login of browsers.

use crate::values::{ConfigDuration, Glob, SecretRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may use the admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminAccessConfig {
    /// Roles of callers. A caller that several rules name has the highest of their roles; a caller that no rule names may
    /// not use the admin listener. At least one.
    #[schemars(length(min = 1))]
    pub roles: Vec<RoleRule>,
    /// Login of browsers at an OpenID provider. Default: none; operators log in with an API key.
    pub login: Option<LoginConfig>,
    /// URL under which browsers reach the admin listener, such as `https://gatepost-admin.example.com`. With https, cookies
    /// are sent over TLS only; `login` needs the URL. Default: none, the URL of the request.
    pub url: Option<String>,
    /// How long a session lasts at most; 1m to 7d. It ends earlier with its credential. Default: 8h.
    pub session_ttl: ConfigDuration,
    /// How long a session lasts without a request; 1m to 7d. Default: 30m.
    pub session_idle_timeout: ConfigDuration,
}

impl Default for AdminAccessConfig {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            login: None,
            url: None,
            session_ttl: ConfigDuration::from_secs(8 * 3_600),
            session_idle_timeout: ConfigDuration::from_secs(30 * 60),
        }
    }
}

/// A rule that gives callers a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleRule {
    /// The role.
    pub role: OperatorRole,
    /// Callers by their full id, or patterns, as in grants. `*` matches every caller with a credential, and
    /// `oauth:CLIENT|sub=USER` one user of an OAuth client.
    #[serde(default)]
    pub callers: Vec<Glob>,
    /// Groups, or patterns; matches callers in any of them as well.
    #[serde(default)]
    pub groups: Vec<Glob>,
}

/// What an operator may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRole {
    /// Read every page.
    #[default]
    Viewer,
    /// Also refresh sources, confirm agent losses, explain calls, call agents and register local runtimes.
    Operator,
    /// Also create, rotate and disable API keys.
    Admin,
}

impl OperatorRole {
    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// A login by the authorization code flow of OAuth 2.0 with PKCE (RFC 7636). The access token that the provider issues is
/// the operator's credential, and is judged like that of a call: `auth.bearer` has to accept it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginConfig {
    /// Issuer of the tokens, as in `auth.bearer`. The endpoints are taken from its discovery document.
    pub issuer: String,
    /// Client id of the gateway at the provider, for which `{admin.access.url}/console/login/callback` is a redirect URI.
    pub client_id: String,
    /// Client secret of the gateway at the provider. Default: none, a public client.
    #[serde(default)]
    pub client_secret: Option<SecretRef>,
    /// Scopes that are requested. Default: openid.
    #[serde(default = "default_scopes")]
    pub scopes: Vec<String>,
    /// The resource for which the token is requested (RFC 8707), where the provider needs one. Default: none.
    #[serde(default)]
    pub resource: Option<String>,
}

fn default_scopes() -> Vec<String> {
    vec!["openid".to_owned()]
}

impl AdminAccessConfig {
    /// Returns the problems that the values themselves show, each with its key below `admin.access`.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.roles.is_empty() {
            problems
                .push("roles: must have at least one rule (without rules nobody could use the listener)".to_owned());
        }
        for (at, rule) in self.roles.iter().enumerate() {
            if rule.callers.is_empty() && rule.groups.is_empty() {
                problems.push(format!("roles[{at}]: names nobody (set callers or groups)"));
            }
            let patterns = rule.callers.iter().enumerate();
            problems.extend(patterns.filter_map(|(index, caller)| {
                let problem = crate::auth::caller_pattern_problem(caller)?;
                Some(format!("roles[{at}].callers[{index}]: {problem}"))
            }));
        }
        let (shortest, longest) = (ConfigDuration::from_secs(60), ConfigDuration::from_secs(7 * 86_400));
        let durations = [("session_ttl", self.session_ttl), ("session_idle_timeout", self.session_idle_timeout)];
        for (key, _) in durations.iter().filter(|(_, duration)| !(shortest..=longest).contains(duration)) {
            problems.push(format!("{key}: must be between 1m and 7d"));
        }
        if let Some(url) = &self.url
            && !is_base_url(url)
        {
            problems.push("url: must be an http or https URL without path, query and user".to_owned());
        }
        if self.login.is_some() && self.url.is_none() {
            problems.push("url: is required with login (the provider sends browsers back to it)".to_owned());
        }
        problems
    }

    /// Returns whether browsers reach the listener over TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.url.as_deref().is_some_and(|url| url.starts_with("https://"))
    }
}

fn is_base_url(text: &str) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else { return false };
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_root = matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.ends_with('/');
    is_web && is_root && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(config: serde_json::Value) -> Vec<String> {
        serde_json::from_value::<AdminAccessConfig>(config).unwrap().problems()
    }

    #[test]
    fn every_problem_is_reported_with_its_key() {
        let valid = json!({"roles": [{"role": "admin", "callers": ["key:alice"]}], "url": "https://admin.example"});
        assert_eq!(problems(valid), [""; 0]);
        let broken = json!({
            "roles": [{"role": "viewer"}, {"role": "admin", "callers": ["alice"]}],
            "url": "https://admin.example/console", "session_ttl": "8d", "session_idle_timeout": "1s",
        });
        let found = problems(broken);
        for key in ["roles[0]:", "roles[1].callers[0]:", "url:", "session_ttl:", "session_idle_timeout:"] {
            assert!(found.iter().any(|problem| problem.starts_with(key)), "{key} {found:?}");
        }
        assert!(problems(json!({}))[0].starts_with("roles: must have"));
        let login = json!({"roles": [{"role": "admin", "groups": ["sre"]}], "login": {"issuer": "https://i", "client_id": "c"}});
        assert!(problems(login)[0].starts_with("url: is required"));
        for url in ["ftp://a", "admin.example", "https://u:p@admin.example", "https://a/?q", "https://a/"] {
            let config = json!({"roles": [{"role": "admin", "groups": ["x"]}], "url": url});
            assert_eq!(problems(config).len(), 1, "{url}");
        }
    }

    #[test]
    fn a_higher_role_contains_the_lower_ones() {
        assert!(OperatorRole::Viewer < OperatorRole::Operator && OperatorRole::Operator < OperatorRole::Admin);
        assert_eq!(OperatorRole::default().name(), "viewer");
    }
}
