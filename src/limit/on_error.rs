//! What a limit does while the shared state cannot be reached.

use crate::telemetry::LimitKind;

/// What a limit does while the shared state cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Each gateway counts for itself, with the limit divided by the number of gateways that were alive last.
    #[default]
    Local,
    /// Calls pass uncounted.
    Open,
    /// Calls are refused with 503.
    Closed,
}

/// What the limits do while the shared state cannot be reached: `local` (each gateway counts for itself, with the limit
/// divided by the number of gateways that were alive last), `open` (calls pass uncounted) or `closed` (503).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "OnErrorPolicies")]
#[serde(deny_unknown_fields, default)]
pub struct OnErrorConfig {
    /// Every limit that is not listed. Default: local.
    pub default: OnError,
    /// `limits.per_address`. Default: `default`.
    pub per_address: Option<OnError>,
    /// `limits.per_caller`. Default: `default`.
    pub per_caller: Option<OnError>,
    /// `limits.per_caller_agent`. Default: `default`.
    pub per_caller_agent: Option<OnError>,
    /// `limits.per_caller_search`. Default: `default`.
    pub per_caller_search: Option<OnError>,
    /// `limits.per_agent`, and the rates of agents' documents. Default: `default`.
    pub per_agent: Option<OnError>,
    /// `limits.quota`. Default: `default`.
    pub quota: Option<OnError>,
    /// `limits.concurrency.shared_max_per_agent`, and that of rules. Default: `default`.
    pub concurrency: Option<OnError>,
}

impl OnErrorConfig {
    /// Returns what a limit does.
    pub fn of(&self, limit: LimitKind) -> OnError {
        let own = match limit {
            LimitKind::Address => self.per_address,
            LimitKind::Caller => self.per_caller,
            LimitKind::CallerAgent => self.per_caller_agent,
            LimitKind::Search => self.per_caller_search,
            LimitKind::Agent => self.per_agent,
            LimitKind::DailyQuota | LimitKind::MonthlyQuota => self.quota,
            LimitKind::SharedConcurrency => self.concurrency,
            _ => None,
        };
        own.unwrap_or(self.default)
    }
}
