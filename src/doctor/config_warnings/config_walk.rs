//! Walk over all settings: finds the files that settings of any section name, so that a new section needs no entry here.

use crate::config::GatewayConfig;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// The settings of one kind, wherever they are: each with its path in the configuration.
#[derive(Debug, Default)]
pub(in crate::doctor) struct ConfigWalk {
    /// Files with a secret as their text.
    pub(in crate::doctor) secrets: Vec<(String, PathBuf)>,
    /// Files with a private key.
    pub(in crate::doctor) keys: Vec<(String, PathBuf)>,
    /// Files with a certificate of the gateway.
    pub(in crate::doctor) certificates: Vec<(String, PathBuf)>,
    /// Files with certificate authorities.
    pub(in crate::doctor) authorities: Vec<(String, PathBuf)>,
    /// Credentials of the gateway that may be sent to every server.
    pub(super) unrestricted_credentials: Vec<String>,
}

impl ConfigWalk {
    pub(in crate::doctor) fn new(config: &GatewayConfig) -> Self {
        let mut walk = Self::default();
        // Without a value there is nothing to walk over; every configuration can be written as one.
        walk.visit(&serde_json::to_value(config).unwrap_or_default(), "");
        walk
    }

    fn visit(&mut self, value: &Value, path: &str) {
        match value {
            Value::Object(members) => {
                self.record_members(members, path);
                for (name, member) in members {
                    self.visit(member, &join(path, name));
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.visit(item, &format!("{path}[{at}]"));
                }
            }
            Value::String(text) => {
                let file = text.strip_prefix("file:").map(PathBuf::from);
                self.secrets.extend(file.filter(|file| file.is_absolute()).map(|file| (path.to_owned(), file)));
            }
            _ => {}
        }
    }

    fn record_members(&mut self, members: &Map<String, Value>, path: &str) {
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        if let (Some(certificate), Some(key)) = (text("certificate"), text("key")) {
            self.certificates.push((join(path, "certificate"), certificate.into()));
            self.keys.push((join(path, "key"), key.into()));
        }
        for name in ["ca", "client_ca", "database_ca", "ca_file"] {
            self.authorities.extend(text(name).map(|file| (join(path, name), file.into())));
        }
        let origins = members.get("destinations").and_then(|destinations| destinations.get("origins"));
        if origins.and_then(Value::as_array).is_some_and(|origins| origins.iter().any(|origin| origin == "*")) {
            self.unrestricted_credentials.push(join(path, "destinations"));
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
