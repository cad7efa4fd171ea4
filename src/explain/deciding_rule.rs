//! The rule that decided a step: a setting, a grant or a denial, a part of the agent's document, or the request itself.

use super::decision_step::DecisionStep;
use crate::{
    auth::AccessRule,
    fault::{Fault, FaultCode, FaultRule},
};
use std::{borrow::Cow, fmt};

/// The setting that refuses calls to an agent that fails.
pub(super) const CIRCUIT_BREAKER: &str = "agents.defaults.circuit_breaker";

/// The setting that ends a call after its time, unless the caller asked for less.
const TOTAL_TIMEOUT: &str = "agents.defaults.timeouts.total";

/// The setting that enforces the outputs of a document.
const OUTPUT_MODE: &str = "contract.output";

/// The share of a limit that one caller may have, and the limit of the calls to an agent.
const MAX_SHARE: &str = "limits.max_share";
const MAX_CONCURRENCY: &str = "limits.concurrency.max_per_agent";

/// What decided a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecidingRule {
    /// A setting, by its general path. A tier, or a rule for the agent, may have its own value of it.
    Setting(&'static str),
    /// A setting, and what it applies to: the limit of which it is a share, or the part of a document that it enforces.
    SettingFor(&'static str, Box<Self>),
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
    /// A header field of the request, which is valid and asks for this.
    RequestField(&'static str),
    /// The agent itself, or the network between.
    Agent,
}

/// What bounds the time of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadlineSource {
    /// The total timeout of the agent.
    #[default]
    Agent,
    /// The caller, in `X-Request-Timeout`.
    Caller,
}

/// A call that a step refused, or that failed there.
#[derive(Clone, Copy, Debug)]
pub struct RefusedCall<'a> {
    /// The step.
    pub step: DecisionStep,
    /// Why.
    pub fault: &'a Fault,
    /// What refused the caller at the agent.
    pub access: Option<AccessRule>,
    /// The index of the operation, if it is known and has a name.
    pub operation: Option<usize>,
    /// What bounds the time of the call.
    pub deadline: DeadlineSource,
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
    /// What the setting applies to.
    pub applies_to: Option<Box<Self>>,
}

/// Finds the lines of rules in one configuration.
pub trait LocateRule: fmt::Debug + Send + Sync {
    /// Finds a rule. `documents` finds those of agents, which are not in the configuration.
    fn locate(&self, rule: &DecidingRule, scope: RuleScope<'_>, documents: &dyn LocateDocument) -> LocatedRule;
}

/// Finds the documents of agents, as they are now.
pub trait LocateDocument {
    /// Finds a member of an agent's document. May read files.
    fn locate_document(&self, agent: &str, member: &str) -> Option<DocumentPlace>;

    /// Finds a document with this id that is not served. May read files.
    fn locate_rejection(&self, agent: &str) -> Option<RejectionPlace>;
}

/// Why a document is not served, and where the reason stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectionPlace {
    /// The file or other part of a source that has the document.
    pub document: String,
    /// The reasons, redacted.
    pub reason: String,
    /// File and line, for a file of the operator.
    pub line: Option<String>,
}

/// Where a document stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentPlace {
    /// File and line.
    Line(String),
    /// The source that has the document.
    Source(String),
}

/// A configuration, and the documents of the agents.
#[derive(Clone, Copy)]
pub struct RuleSearch<'a> {
    /// The rules of the configuration.
    pub rules: &'a dyn LocateRule,
    /// The documents.
    pub documents: &'a dyn LocateDocument,
}

impl RuleSearch<'_> {
    /// Finds a rule.
    pub fn locate(&self, rule: &DecidingRule, scope: RuleScope<'_>) -> LocatedRule {
        self.rules.locate(rule, scope, self.documents)
    }
}

impl LocatedRule {
    /// Returns a rule that has no line.
    pub fn without_line(rule: impl Into<String>) -> Self {
        Self { rule: rule.into(), line: None, applies_to: None }
    }
}

impl DecidingRule {
    /// Returns what refused a call.
    pub fn of_refusal(refused: &RefusedCall<'_>) -> Self {
        let RefusedCall { step, fault, access, operation, deadline } = *refused;
        let of_document = |member: &'static str| Self::Document(Cow::Borrowed(member));
        let of_operation = |member: &'static str| {
            Self::Document(operation.map_or(member.into(), |index| format!("operations[{index}].{member}").into()))
        };
        match fault.rule() {
            Some(FaultRule::Setting(OUTPUT_MODE)) => {
                return Self::SettingFor(OUTPUT_MODE, Box::new(of_operation("outputs")));
            }
            Some(FaultRule::Setting(setting)) if step == DecisionStep::Concurrency => {
                return Self::of_concurrency(setting);
            }
            Some(FaultRule::Setting(setting)) => return Self::Setting(setting),
            Some(FaultRule::Document(member)) => return Self::Document(member.into()),
            Some(FaultRule::Request) if step == DecisionStep::ResponseFormat => return Self::RequestField("Accept"),
            Some(FaultRule::Request) => return Self::Request,
            Some(FaultRule::Deadline) => {
                return match deadline {
                    DeadlineSource::Agent => Self::Setting(TOTAL_TIMEOUT),
                    DeadlineSource::Caller => Self::RequestField("X-Request-Timeout"),
                };
            }
            None => {}
        }
        match (step, access) {
            (_, Some(access)) => Self::of_access(access),
            // The document names the credential that the agent requires; a request without one needs none else.
            (DecisionStep::Authentication, None) if fault.code() == FaultCode::Unauthorized => Self::Setting("auth"),
            (DecisionStep::AgentStatus, None) => of_document("status"),
            (DecisionStep::Operation, None) => of_document("operations"),
            (DecisionStep::ResponseFormat, None) => of_operation("outputFormats"),
            (DecisionStep::RequestFields, None) if fault.code() == FaultCode::PermissionDenied => {
                Self::Setting("delegation")
            }
            (DecisionStep::Input, None) if fault.code() == FaultCode::CapabilityNotFound => of_document("operations"),
            (DecisionStep::Input, None) if !fault.violations().is_empty() => of_operation("inputs"),
            (DecisionStep::Agent, None) => Self::Agent,
            _ => Self::Request,
        }
    }

    /// Returns the rule of a setting for which a call gets no slot of its agent, or waits for one.
    pub fn of_concurrency(setting: &'static str) -> Self {
        match setting {
            MAX_SHARE => Self::SettingFor(MAX_SHARE, Box::new(Self::Setting(MAX_CONCURRENCY))),
            setting => Self::Setting(setting),
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
