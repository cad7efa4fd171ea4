//! The rule that decided a step: a setting, a grant or a denial, a part of the agent's document, or the request itself.

use super::decision_step::DecisionStep;
use crate::{
    auth::AccessRule,
    fault::{Fault, FaultCode, FaultRule},
};
use std::borrow::Cow;

/// The setting that refuses calls to an agent that fails.
pub(super) const CIRCUIT_BREAKER: &str = "agents.defaults.circuit_breaker";

/// What decided a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecidingRule {
    /// A setting, by its general path. A tier, or a rule for the agent, may have its own value of it.
    Setting(&'static str),
    /// The grant at this index.
    Grant(u32),
    /// The denial at this index.
    Denial(u32),
    /// No grant names the caller and the agent.
    NoGrant,
    /// No source has the agent.
    NoAgent,
    /// A member of the agent's document.
    Document(Cow<'static, str>),
    /// The request is not valid, whatever the configuration says.
    Request,
    /// The agent itself, or the network between.
    Agent,
}

/// For which agent and tier a rule decided.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleScope<'a> {
    /// The agent, if it is known.
    pub agent: Option<&'a str>,
    /// The tier of the caller.
    pub tier: Option<&'a str>,
}

/// A rule as operators find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedRule {
    /// The path in the configuration, such as `access.grants[0]`, or what else decided.
    pub rule: String,
    /// File and line, or the environment variable; `None` for a default, and for what is not in the configuration.
    pub line: Option<String>,
}

/// Finds the lines of rules in the configuration in force.
pub trait LocateRule {
    /// Finds a rule.
    fn locate(&self, rule: &DecidingRule, scope: RuleScope<'_>) -> LocatedRule;
}

impl DecidingRule {
    /// Returns what refused a call with `fault` at `step`. `access` is what refused the caller at the agent, and
    /// `operation` is the index of the operation, if it is known and has a name.
    pub fn of_refusal(step: DecisionStep, fault: &Fault, access: Option<AccessRule>, operation: Option<usize>) -> Self {
        match fault.rule() {
            Some(FaultRule::Setting(setting)) => return Self::Setting(setting),
            Some(FaultRule::Document(member)) => return Self::Document(member.into()),
            Some(FaultRule::Request) => return Self::Request,
            None => {}
        }
        let of_document = |member: &'static str| Self::Document(Cow::Borrowed(member));
        match (step, access) {
            (_, Some(access)) => Self::of_access(access),
            // The document names the credential that the agent requires; a request without one needs none else.
            (DecisionStep::Authentication, None) if fault.code() == FaultCode::Unauthorized => Self::Setting("auth"),
            (DecisionStep::AgentStatus, None) => of_document("status"),
            (DecisionStep::Operation, None) => of_document("operations"),
            (DecisionStep::Version, None) if fault.code() == FaultCode::NotAcceptable => {
                of_document("supportedVersions")
            }
            (DecisionStep::ResponseFormat, None) => of_document("operations[].outputs"),
            (DecisionStep::RequestFields, None) if fault.code() == FaultCode::PermissionDenied => {
                Self::Setting("delegation")
            }
            (DecisionStep::Input, None) if fault.code() == FaultCode::CapabilityNotFound => of_document("operations"),
            (DecisionStep::Input, None) if !fault.violations().is_empty() => {
                Self::Document(operation.map_or("inputs".into(), |index| format!("operations[{index}].inputs").into()))
            }
            (DecisionStep::Agent, None) => Self::Agent,
            _ => Self::Request,
        }
    }

    /// Returns the rule of what decided about the caller's access.
    pub const fn of_access(access: AccessRule) -> Self {
        match access {
            AccessRule::Credential => Self::Setting("auth"),
            AccessRule::CredentialKind => Self::Document(Cow::Borrowed("authentication")),
            AccessRule::NoAgent => Self::NoAgent,
            AccessRule::NoGrant => Self::NoGrant,
            AccessRule::Grant(index) => Self::Grant(index),
            AccessRule::Denial(index) => Self::Denial(index),
            AccessRule::Scopes => Self::Document(Cow::Borrowed("authentication.scopes")),
        }
    }
}
