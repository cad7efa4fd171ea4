//! The names of the fields that tell an agent who calls. A caller's own field with such a name never reaches the agent, in
//! no spelling that a server may fold into the same name.

use super::{caller_headers_config::CallerHeadersConfig, header_spelling::is_same_field};
use http::HeaderName;

/// The names, compiled with the agent's route; empty for most agents.
#[derive(Debug, Default)]
pub(in crate::transport) struct CallerHeaderNames(Box<[HeaderName]>);

impl CallerHeaderNames {
    pub(in crate::transport) fn compile(config: Option<&CallerHeadersConfig>) -> Self {
        Self(config.map(|config| config.names().collect()).unwrap_or_default())
    }

    /// Whether a caller's field could be taken for one of these.
    pub(super) fn contains(&self, name: &HeaderName) -> bool {
        self.0.iter().any(|own| is_same_field(own.as_str(), name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_name_is_found() {
        let config = serde_json::from_str(r#"{"X-User": {"value": "id"}}"#).unwrap();
        let names = CallerHeaderNames::compile(Some(&config));
        let is_found = |name: &'static str| names.contains(&name.parse().unwrap());
        assert!(["x-user", "X-USER", "x_user", "X.User", "x+user", "x~user"].into_iter().all(is_found));
        assert!(!["x-users", "user", "x-use", "xuser"].into_iter().any(is_found));
        assert!(!CallerHeaderNames::compile(None).contains(&"x-user".parse().unwrap()));
    }
}
