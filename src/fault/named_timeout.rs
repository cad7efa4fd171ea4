//! Which timeout ended a call: its name, its value and where it is set, for the caller and the log.

use serde_json::{Map, Value};

/// The member of the error object.
pub(super) const MEMBER: &str = "timeout";

/// A timeout that ended a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTimeout {
    /// The name of the setting, such as `timeouts.first_byte`, or of the header that asked for it.
    pub name: &'static str,
    /// The value, such as `60s`, where it is known.
    pub after: Option<String>,
    /// What sets it.
    pub source: TimeoutSource,
}

/// What sets a timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeoutSource {
    /// Nothing: it is the default of this setting.
    Default(&'static str),
    /// The setting at this path.
    Setting(String),
    /// A preset, at this path.
    Preset {
        /// The preset.
        name: &'static str,
        /// Where it is set.
        path: String,
    },
    /// The request itself.
    Request,
}

impl NamedTimeout {
    /// Returns what follows the message: ` (timeouts.first_byte: 60s by default)`.
    pub(super) fn phrase(&self) -> String {
        let value = self.after.as_ref().map(|after| format!(": {after}")).unwrap_or_default();
        let name = self.name;
        match &self.source {
            TimeoutSource::Default(_) => format!(" ({name}{value} by default)"),
            TimeoutSource::Setting(path) if path == name => format!(" ({name}{value})"),
            TimeoutSource::Setting(path) => format!(" ({name}{value}, set at {path})"),
            TimeoutSource::Preset { name: preset, path } => {
                format!(" ({name}{value} of the preset {preset}, set at {path})")
            }
            TimeoutSource::Request => format!(" ({name}{value})"),
        }
    }

    pub(super) fn to_member(&self) -> Value {
        let (source, setting, preset) = match &self.source {
            TimeoutSource::Default(setting) => ("default", Some((*setting).to_owned()), None),
            TimeoutSource::Setting(path) => ("setting", Some(path.clone()), None),
            TimeoutSource::Preset { name, path } => ("preset", Some(path.clone()), Some((*name).to_owned())),
            TimeoutSource::Request => ("request", None, None),
        };
        let members = [
            ("name", Some(self.name.to_owned())),
            ("after", self.after.clone()),
            ("source", Some(source.to_owned())),
            ("setting", setting),
            ("preset", preset),
        ];
        let members = members.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?))));
        Value::Object(members.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, FaultCode};
    use serde_json::json;

    fn named(source: TimeoutSource) -> Fault {
        let timeout = NamedTimeout { name: "timeouts.idle", after: Some("60s".to_owned()), source };
        Fault::new(FaultCode::Timeout, "Too slow").with_named_timeout(&timeout)
    }

    #[test]
    fn message_and_member_say_which_timeout_it_was() {
        let fault = named(TimeoutSource::Default("agents.defaults.timeouts.idle"));
        assert_eq!(fault.message(), "Too slow (timeouts.idle: 60s by default)");
        let expected = json!({"name": "timeouts.idle", "after": "60s", "source": "default", "setting": "agents.defaults.timeouts.idle"});
        assert_eq!(fault.to_error_object("id")["error"]["timeout"], expected);
        let path = "agents.rules[1].settings.timeouts.preset".to_owned();
        let fault = named(TimeoutSource::Preset { name: "thinking", path: path.clone() });
        assert_eq!(fault.message(), format!("Too slow (timeouts.idle: 60s of the preset thinking, set at {path})"));
        assert_eq!(fault.to_error_object("id")["error"]["timeout"]["preset"], "thinking");
        assert_eq!(named(TimeoutSource::Request).message(), "Too slow (timeouts.idle: 60s)");
    }

    #[test]
    fn the_first_timeout_that_is_named_stays() {
        let other = NamedTimeout { name: "timeouts.total", after: None, source: TimeoutSource::Request };
        let fault = named(TimeoutSource::Request).with_named_timeout(&other);
        assert_eq!(fault.message(), "Too slow (timeouts.idle: 60s)");
        assert_eq!(fault.extra_members().count(), 1);
    }
}
