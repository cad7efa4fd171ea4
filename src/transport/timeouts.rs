//! The timeouts of calls to agents: their settings, presets and defaults, and the fault of a call that one of them ends,
//! which names the timeout and where it is set.

use crate::{
    fault::{Fault, FaultCode, NamedTimeout, TimeoutSource},
    values::ConfigDuration,
};
use std::{fmt::Display, time::Duration};

/// How long each part of a call may take. A call that exceeds a timeout ends with 504, which names the timeout.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutConfig {
    /// Values for a kind of agent: `interactive` (the defaults), `thinking` (first_byte 10m, idle 5m, total 15m) or
    /// `long_running` (first_byte 10m, idle 10m, total 1h). A timeout that is set beside the preset wins, and in a rule
    /// the preset replaces more general timeouts. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<TimeoutPreset>,
    /// Name resolution, connection and TLS handshake together. Default: 5s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<ConfigDuration>,
    /// From the request to the complete head of the reply. Default: 60s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<ConfigDuration>,
    /// Between two chunks of the reply's body. Default: 60s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<ConfigDuration>,
    /// The whole call, all attempts together. `X-Request-Timeout` may shorten it. Default: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<ConfigDuration>,
    /// Where each timeout is set. Not a setting.
    #[serde(skip)]
    pub(super) origins: TimeoutOrigins,
}

/// Timeouts for a kind of agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutPreset {
    /// Agents that begin to answer within a minute: connect 5s, first_byte 60s, idle 60s, total 5m.
    Interactive,
    /// Agents that think for minutes before their first byte: connect 5s, first_byte 10m, idle 5m, total 15m.
    Thinking,
    /// Agents that work or stream for up to an hour: connect 5s, first_byte 10m, idle 10m, total 1h.
    LongRunning,
}

impl TimeoutPreset {
    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Thinking => "thinking",
            Self::LongRunning => "long_running",
        }
    }

    /// Returns the value of a timeout.
    pub const fn timeout(self, kind: TimeoutKind) -> ConfigDuration {
        let secs = match (self, kind) {
            (_, TimeoutKind::Connect) => 5,
            (Self::Interactive, TimeoutKind::FirstByte | TimeoutKind::Idle) => 60,
            (Self::Interactive, TimeoutKind::Total) => 5 * 60,
            (Self::Thinking, TimeoutKind::FirstByte) => 10 * 60,
            (Self::Thinking, TimeoutKind::Idle) => 5 * 60,
            (Self::Thinking, TimeoutKind::Total) => 15 * 60,
            (Self::LongRunning, TimeoutKind::FirstByte | TimeoutKind::Idle) => 10 * 60,
            (Self::LongRunning, TimeoutKind::Total) => 60 * 60,
        };
        ConfigDuration::from_secs(secs)
    }
}

/// A timeout of a call to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutKind {
    /// Until there is a connection.
    Connect,
    /// Until the head of the reply.
    FirstByte,
    /// Between two chunks of the body.
    Idle,
    /// The whole call.
    Total,
}

impl TimeoutKind {
    /// Every timeout.
    pub const ALL: [Self; 4] = [Self::Connect, Self::FirstByte, Self::Idle, Self::Total];

    const fn name(self) -> &'static str {
        match self {
            Self::Connect => "timeouts.connect",
            Self::FirstByte => "timeouts.first_byte",
            Self::Idle => "timeouts.idle",
            Self::Total => "timeouts.total",
        }
    }

    /// Returns the path of the general setting.
    const fn general_setting(self) -> &'static str {
        match self {
            Self::Connect => "agents.defaults.timeouts.connect",
            Self::FirstByte => "agents.defaults.timeouts.first_byte",
            Self::Idle => "agents.defaults.timeouts.idle",
            Self::Total => "agents.defaults.timeouts.total",
        }
    }
}

/// Where a timeout that is set is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimeoutOrigin {
    place: SettingsPlace,
    preset: Option<TimeoutPreset>,
}

/// The settings that have a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SettingsPlace {
    /// `agents.defaults`.
    #[default]
    Defaults,
    /// The rule at this index.
    Rule(usize),
    /// The preset of an API, in a rule.
    ApiPreset,
}

/// Where each timeout is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TimeoutOrigins {
    connect: TimeoutOrigin,
    first_byte: TimeoutOrigin,
    idle: TimeoutOrigin,
    total: TimeoutOrigin,
}

/// A timeout that is set, and where.
type SetTimeout = (Option<ConfigDuration>, TimeoutOrigin);

impl TimeoutConfig {
    /// Returns every timeout that would end each call at once.
    pub(super) fn problems(&self) -> Vec<String> {
        let zero =
            TimeoutKind::ALL.into_iter().filter(|kind| self.get(*kind).0.is_some_and(|time| time.get().is_zero()));
        zero.map(|kind| format!("{}: 0s would end every call (leave it out for the default)", kind.name())).collect()
    }

    /// Returns the timeouts of the rule at this index, which a fault names as such.
    #[must_use]
    pub fn of_rule(&self, index: usize) -> Self {
        self.at(SettingsPlace::Rule(index))
    }

    /// Returns these timeouts, with those of a preset where none is set: agents with an API of a framework may think.
    #[must_use]
    pub fn with_api_preset(&self, preset: TimeoutPreset) -> Self {
        self.with_fallback(&Self { preset: Some(preset), ..Self::default() }.at(SettingsPlace::ApiPreset))
    }

    fn at(&self, place: SettingsPlace) -> Self {
        let mut expanded = self.expanded();
        let TimeoutOrigins { connect, first_byte, idle, total } = &mut expanded.origins;
        for origin in [connect, first_byte, idle, total] {
            origin.place = place;
        }
        expanded
    }

    /// Returns the timeouts with the values of the preset, where none is set beside it.
    fn expanded(&self) -> Self {
        let Some(preset) = self.preset else { return self.clone() };
        let of_preset = |kind| {
            let (value, origin) = self.get(kind);
            match value {
                Some(_) => (value, origin),
                None => (Some(preset.timeout(kind)), TimeoutOrigin { preset: Some(preset), ..origin }),
            }
        };
        Self::from_timeouts(of_preset)
    }

    fn from_timeouts(timeout: impl Fn(TimeoutKind) -> SetTimeout) -> Self {
        let (connect, of_connect) = timeout(TimeoutKind::Connect);
        let (first_byte, of_first_byte) = timeout(TimeoutKind::FirstByte);
        let (idle, of_idle) = timeout(TimeoutKind::Idle);
        let (total, of_total) = timeout(TimeoutKind::Total);
        let origins = TimeoutOrigins { connect: of_connect, first_byte: of_first_byte, idle: of_idle, total: of_total };
        Self { preset: None, connect, first_byte, idle, total, origins }
    }

    fn get(&self, kind: TimeoutKind) -> SetTimeout {
        match kind {
            TimeoutKind::Connect => (self.connect, self.origins.connect),
            TimeoutKind::FirstByte => (self.first_byte, self.origins.first_byte),
            TimeoutKind::Idle => (self.idle, self.origins.idle),
            TimeoutKind::Total => (self.total, self.origins.total),
        }
    }

    pub(super) fn with_fallback(&self, base: &Self) -> Self {
        let (own, base) = (self.expanded(), base.expanded());
        Self::from_timeouts(|kind| match own.get(kind) {
            (None, _) => base.get(kind),
            set => set,
        })
    }
}

/// The timeouts in force for one agent.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamTimeouts {
    /// Name resolution, connection and TLS handshake.
    pub connect: Duration,
    /// Until the head of the reply.
    pub first_byte: Duration,
    /// Between two chunks of the body.
    pub idle: Duration,
    /// The whole call.
    pub total: Duration,
    /// Where each is set; `None` for a default.
    origins: [Option<TimeoutOrigin>; 4],
}

impl From<&TimeoutConfig> for UpstreamTimeouts {
    fn from(config: &TimeoutConfig) -> Self {
        let config = config.expanded();
        let value = |kind| config.get(kind).0.unwrap_or(TimeoutPreset::Interactive.timeout(kind)).get();
        Self {
            connect: value(TimeoutKind::Connect),
            first_byte: value(TimeoutKind::FirstByte),
            idle: value(TimeoutKind::Idle),
            total: value(TimeoutKind::Total),
            origins: TimeoutKind::ALL.map(|kind| {
                let (value, origin) = config.get(kind);
                value.map(|_| origin)
            }),
        }
    }
}

impl UpstreamTimeouts {
    /// Returns a timeout as a fault names it.
    pub fn named(&self, kind: TimeoutKind) -> CallTimeout {
        let after = match kind {
            TimeoutKind::Connect => self.connect,
            TimeoutKind::FirstByte => self.first_byte,
            TimeoutKind::Idle => self.idle,
            TimeoutKind::Total => self.total,
        };
        CallTimeout { after, bound: Bound::Timeout(kind, self.origins.get(kind as usize).copied().flatten()) }
    }

    /// Returns the fault of a call that this timeout ended.
    pub(super) fn fault(&self, kind: TimeoutKind, detail: impl Display) -> Fault {
        self.name_in(timeout_fault(detail), kind)
    }

    /// Returns the fault of a call that ended at `until`: by this timeout, or by its deadline if that was first.
    pub(super) fn fault_at(&self, kind: TimeoutKind, end: CallEnd, detail: impl Display) -> Fault {
        self.attribute(timeout_fault(detail), kind, end)
    }

    /// Says in the fault of a call that took too long whether this timeout ended it, or the deadline.
    pub(super) fn attribute(&self, fault: Fault, kind: TimeoutKind, end: CallEnd) -> Fault {
        let is_known = fault.code() != FaultCode::Timeout || fault.names_timeout() || fault.is_of_deadline();
        if is_known {
            return fault;
        }
        if end.until < end.deadline { self.name_in(fault, kind) } else { fault.with_deadline() }
    }

    fn name_in(&self, fault: Fault, kind: TimeoutKind) -> Fault {
        fault.with_named_timeout(&self.named(kind).describe()).with_setting(kind.general_setting())
    }
}

/// When a part of a call ended, and when the call must end.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallEnd {
    pub(super) until: tokio::time::Instant,
    pub(super) deadline: tokio::time::Instant,
}

/// The fault of a call that took too long.
pub(super) fn timeout_fault(detail: impl Display) -> Fault {
    Fault::new(FaultCode::Timeout, "The agent did not answer in time").with_detail(detail)
}

/// The fault of a call whose time is over. The gateway knows what bounds the time, and names it.
pub(super) fn deadline_fault(detail: impl Display) -> Fault {
    timeout_fault(detail).with_deadline()
}

/// What bounds the time of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallTimeout {
    after: Duration,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    Timeout(TimeoutKind, Option<TimeoutOrigin>),
    /// The caller, in this header.
    Request(&'static str),
}

impl CallTimeout {
    /// Creates the timeout that the caller asked for in the header `name`.
    pub const fn of_request(name: &'static str, after: Duration) -> Self {
        Self { after, bound: Bound::Request(name) }
    }

    /// Says in a fault of a call whose time is over what bounded the time. Other faults stay as they are.
    #[must_use]
    pub fn name_in(&self, fault: Fault) -> Fault {
        if fault.is_of_deadline() { fault.with_named_timeout(&self.describe()) } else { fault }
    }

    fn describe(&self) -> NamedTimeout {
        let after = Some(format_duration(self.after));
        let (kind, origin) = match self.bound {
            Bound::Request(name) => return NamedTimeout { name, after, source: TimeoutSource::Request },
            Bound::Timeout(kind, origin) => (kind, origin),
        };
        let name = kind.name();
        let Some(TimeoutOrigin { place, preset }) = origin else {
            return NamedTimeout { name, after, source: TimeoutSource::Default(kind.general_setting()) };
        };
        let own = preset.map_or(name, |_| "timeouts.preset");
        let path = match place {
            SettingsPlace::Defaults => format!("agents.defaults.{own}"),
            SettingsPlace::Rule(index) => format!("agents.rules[{index}].settings.{own}"),
            SettingsPlace::ApiPreset => "agents.rules[].api.preset".to_owned(),
        };
        let source = match preset {
            Some(preset) => TimeoutSource::Preset { name: preset.name(), path },
            None => TimeoutSource::Setting(path),
        };
        NamedTimeout { name, after, source }
    }
}

/// Formats a duration as in the configuration.
fn format_duration(duration: Duration) -> String {
    ConfigDuration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_nothing_is_refused_by_name() {
        let config = TimeoutConfig { total: Some(ConfigDuration::from_secs(0)), ..TimeoutConfig::default() };
        assert_eq!(config.problems(), ["timeouts.total: 0s would end every call (leave it out for the default)"]);
        assert!(
            TimeoutConfig { preset: Some(TimeoutPreset::Thinking), ..TimeoutConfig::default() }.problems().is_empty()
        );
    }

    fn config(json: serde_json::Value) -> TimeoutConfig {
        serde_json::from_value(json).unwrap()
    }

    fn in_force(config: &TimeoutConfig) -> [u64; 4] {
        let UpstreamTimeouts { connect, first_byte, idle, total, .. } = UpstreamTimeouts::from(config);
        [connect, first_byte, idle, total].map(|timeout| timeout.as_secs())
    }

    fn message(config: &TimeoutConfig, kind: TimeoutKind) -> String {
        UpstreamTimeouts::from(config).fault(kind, "").message().to_owned()
    }

    #[test]
    fn presets_are_sets_of_values_and_the_first_is_the_default() {
        let preset = |name: &str| in_force(&config(serde_json::json!({"preset": name})));
        assert_eq!(preset("interactive"), in_force(&TimeoutConfig::default()));
        assert_eq!(preset("interactive"), [5, 60, 60, 300]);
        assert_eq!(preset("thinking"), [5, 600, 300, 900]);
        assert_eq!(preset("long_running"), [5, 600, 600, 3_600]);
        for preset in [TimeoutPreset::Interactive, TimeoutPreset::Thinking, TimeoutPreset::LongRunning] {
            assert_eq!(serde_json::to_value(preset).unwrap(), preset.name());
            assert!(preset.timeout(TimeoutKind::FirstByte) <= preset.timeout(TimeoutKind::Total));
        }
    }

    #[test]
    fn what_is_set_beside_a_preset_wins_and_a_rule_replaces_what_is_general() {
        let general = config(serde_json::json!({"first_byte": "30s", "total": "40s"}));
        let rule = config(serde_json::json!({"preset": "thinking", "idle": "7s"})).of_rule(2);
        assert_eq!(in_force(&rule.with_fallback(&general)), [5, 600, 7, 900]);
        let later = config(serde_json::json!({"total": "2h"})).of_rule(3);
        assert_eq!(in_force(&later.with_fallback(&rule.with_fallback(&general))), [5, 600, 7, 7_200]);
        // Without a preset of its own, a rule keeps that of the defaults.
        let general = config(serde_json::json!({"preset": "long_running"}));
        assert_eq!(in_force(&config(serde_json::json!({"idle": "1s"})).with_fallback(&general)), [5, 600, 1, 3_600]);
        assert_eq!(
            in_force(&config(serde_json::json!({"idle": "1s"})).with_api_preset(TimeoutPreset::Thinking)),
            [5, 600, 1, 900]
        );
    }

    #[test]
    fn a_fault_names_the_timeout_its_value_and_where_it_is_set() {
        let general = config(serde_json::json!({"idle": "30s", "preset": "thinking"}));
        let rule = config(serde_json::json!({"total": "90s"})).of_rule(1);
        let merged = rule.with_fallback(&general);
        let sentence = "The agent did not answer in time";
        assert_eq!(
            message(&merged, TimeoutKind::Total),
            format!("{sentence} (timeouts.total: 90s, set at agents.rules[1].settings.timeouts.total)")
        );
        assert_eq!(
            message(&merged, TimeoutKind::Idle),
            format!("{sentence} (timeouts.idle: 30s, set at agents.defaults.timeouts.idle)")
        );
        assert_eq!(
            message(&merged, TimeoutKind::FirstByte),
            format!(
                "{sentence} (timeouts.first_byte: 10m of the preset thinking, set at agents.defaults.timeouts.preset)"
            )
        );
        let default = TimeoutConfig::default();
        assert_eq!(
            message(&default, TimeoutKind::FirstByte),
            format!("{sentence} (timeouts.first_byte: 1m by default)")
        );
        let request = CallTimeout::of_request("X-Request-Timeout", Duration::from_millis(1_500));
        assert_eq!(request.name_in(deadline_fault("")).message(), format!("{sentence} (X-Request-Timeout: 1500ms)"));
        assert_eq!(request.name_in(timeout_fault("")).message(), sentence);
    }
}
