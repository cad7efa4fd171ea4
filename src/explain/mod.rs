//! Why a call is admitted or refused: the steps that decide, the rules behind them, the explanation that operators
//! read, and the recent refusals. Pure data: `gateway` fills it, `app` finds the lines of rules in the configuration.

mod config;
mod deciding_rule;
mod decision_step;
mod explanation;
mod recent_decisions;

pub use config::ExplainConfig;
pub use deciding_rule::{
    DeadlineSource, DecidingRule, DocumentPlace, LocateDocument, LocateRule, LocatedRule, RefusedCall, RejectionPlace,
    RuleScope, RuleSearch,
};
pub use decision_step::DecisionStep;
pub use explanation::{ExplainedEndpoint, ExplainedRequest, ExplainedStep, Explanation, StepVerdict};
pub use recent_decisions::{Decision, DecisionTarget, DecisionView, RecentDecisions};

#[cfg(test)]
mod tests;
