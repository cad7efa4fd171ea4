//! The explanation of a dry run, as JSON for operators. It contains no secret: the request to the agent is redacted
//! before it gets here.

use super::{
    deciding_rule::{DecidingRule, LocatedRule, RuleScope, RuleSearch},
    decision_step::DecisionStep,
};
use crate::{
    fault::{Fault, Violation},
    limit::LimitState,
};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The verdict of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepVerdict {
    /// The call passed.
    Passed,
    /// The step refused the call.
    Refused,
    /// The step was not reached, or does not apply.
    Skipped,
}

/// A step of a dry run.
#[derive(Clone, Debug)]
pub struct ExplainedStep {
    /// The step.
    pub step: DecisionStep,
    /// Its verdict.
    pub verdict: StepVerdict,
    /// What decided.
    pub rule: Option<DecidingRule>,
    /// What operators should know besides.
    pub detail: Option<String>,
}

/// The endpoint to which the call would go.
#[derive(Clone, Debug)]
pub struct ExplainedEndpoint {
    /// The endpoint's URL, redacted.
    pub address: String,
    /// The state of its circuit breaker.
    pub circuit_breaker: &'static str,
}

/// The request that the agent would receive.
#[derive(Clone, Debug)]
pub struct ExplainedRequest {
    /// The method.
    pub method: String,
    /// Path and query, redacted.
    pub path: String,
    /// The header fields, redacted.
    pub headers: Vec<(String, String)>,
    /// The length of the body, in bytes.
    pub body_length: usize,
}

/// What a dry run found out.
#[derive(Debug, Default)]
pub struct Explanation {
    /// The refusal, unless the call is admitted.
    pub refusal: Option<Fault>,
    /// The steps in their order.
    pub steps: Vec<ExplainedStep>,
    /// The rates and quotas of the call.
    pub limits: Vec<LimitState>,
    /// Violations of a contract that is not enforced.
    pub unenforced_violations: Vec<Violation>,
    /// The caller's id, once authenticated.
    pub caller: Option<String>,
    /// The caller's tier.
    pub tier: Option<String>,
    /// The agent's id, once the caller may know it.
    pub agent: Option<String>,
    /// The agent at which the caller is refused, whose document may be the rule.
    pub refusing_agent: Option<String>,
    /// The operation's name.
    pub operation: Option<String>,
    /// Where the call would go.
    pub endpoint: Option<ExplainedEndpoint>,
    /// What would be sent.
    pub request: Option<ExplainedRequest>,
}

impl Explanation {
    /// Returns the explanation as JSON; `search` finds the lines of rules, and may read files.
    pub fn to_json(&self, search: &RuleSearch<'_>) -> Value {
        let agent = self.agent.as_deref().or(self.refusing_agent.as_deref());
        let scope = RuleScope { agent, tier: self.tier.as_deref() };
        let mut members = Map::new();
        let verdict = if self.refusal.is_some() { "refused" } else { "admitted" };
        members.insert("verdict".into(), verdict.into());
        if let Some(fault) = &self.refusal {
            members.insert("code".into(), fault.code().row().name.into());
            members.insert("status".into(), fault.http_status().into());
            members.insert("message".into(), fault.message().into());
            if let Some(seconds) = fault.retry_after_secs() {
                members.insert("retry_after".into(), seconds.into());
            }
            if !fault.violations().is_empty() {
                members.insert("violations".into(), json!(fault.violations()));
            }
        }
        if !self.unenforced_violations.is_empty() {
            members.insert("unenforced_violations".into(), json!(self.unenforced_violations));
        }
        let names =
            [("caller", &self.caller), ("tier", &self.tier), ("agent", &self.agent), ("operation", &self.operation)];
        let present = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        members.extend(names.into_iter().filter_map(|(name, text)| Some((name.into(), present(text)?.into()))));
        let steps = self.steps.iter().map(|step| step.to_json(search, scope));
        members.insert("steps".into(), steps.collect());
        let limits = self.limits.iter().map(|limit| limit_to_json(limit, search, scope));
        members.insert("limits".into(), limits.collect());
        if let Some(ExplainedEndpoint { address, circuit_breaker }) = &self.endpoint {
            members.insert("endpoint".into(), json!({"address": address, "circuit_breaker": circuit_breaker}));
        }
        if let Some(ExplainedRequest { method, path, headers, body_length }) = &self.request {
            let headers: Vec<Value> = headers.iter().map(|(name, value)| json!([name, value])).collect();
            let request = json!({"method": method, "path": path, "headers": headers, "body_length": body_length});
            members.insert("request".into(), request);
        }
        Value::Object(members)
    }
}

impl ExplainedStep {
    fn to_json(&self, search: &RuleSearch<'_>, scope: RuleScope<'_>) -> Value {
        let mut members = Map::new();
        members.insert("step".into(), self.step.name().into());
        let verdict = match self.verdict {
            StepVerdict::Passed => "passed",
            StepVerdict::Refused => "refused",
            StepVerdict::Skipped => "skipped",
        };
        members.insert("verdict".into(), verdict.into());
        if let Some(rule) = &self.rule {
            add_rule(&mut members, search.locate(rule, scope));
        }
        if let Some(detail) = &self.detail {
            members.insert("detail".into(), detail.as_str().into());
        }
        Value::Object(members)
    }
}

fn limit_to_json(limit: &LimitState, search: &RuleSearch<'_>, scope: RuleScope<'_>) -> Value {
    let status = &limit.status;
    let mut members = Map::new();
    members.insert("limit".into(), limit.limit().name().into());
    add_rule(&mut members, search.locate(&DecidingRule::Setting(limit.setting()), scope));
    members.insert("verdict".into(), if limit.refuses { "refused" } else { "passed" }.into());
    members.insert("quota".into(), status.quota.into());
    members.insert("remaining".into(), status.remaining.into());
    members.insert("reset_seconds".into(), whole_seconds(status.reset).into());
    members.insert("window_seconds".into(), whole_seconds(status.window).into());
    Value::Object(members)
}

/// Returns a duration in seconds, rounded up.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Adds the rule, its line if it has one, and what it applies to.
pub(super) fn add_rule(members: &mut Map<String, Value>, located: LocatedRule) {
    members.insert("rule".into(), located.rule.into());
    if let Some(line) = located.line {
        members.insert("line".into(), line.into());
    }
    if let Some(applies_to) = located.applies_to {
        let mut inner = Map::new();
        add_rule(&mut inner, *applies_to);
        members.insert("applies_to".into(), inner.into());
    }
}
