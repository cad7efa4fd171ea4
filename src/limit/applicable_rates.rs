//! The rates and quotas that apply to the calls of one caller to one agent, for the pages that tell callers.

use super::config::QuotaConfig;
use crate::values::Rate;

/// The rates and quotas of one caller's calls to one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ApplicableRates {
    /// Requests from one address.
    pub per_address: Option<Rate>,
    /// Calls of the caller to all agents.
    pub per_caller: Option<Rate>,
    /// Calls of the caller to the agent.
    pub per_caller_agent: Option<Rate>,
    /// Calls of all callers to the agent; each rate applies.
    pub per_agent: Vec<Rate>,
    /// Calls of the caller per day and month.
    pub quota: QuotaConfig,
}
