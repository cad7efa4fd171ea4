//! The recorder of a dry run: it collects the steps that admission passes and the rules that decide them, and has the
//! limits asked instead of charged.

use crate::{
    auth::{AccessRule, Caller},
    explain::{DeadlineSource, DecidingRule, DecisionStep, ExplainedStep, Explanation, RefusedCall, StepVerdict},
    fault::{Fault, Result, Violation},
    gateway::{
        admission::{AdmissionRecorder, deciding_rule},
        call_id::request_id_from,
        gateway_state::ConfigSnapshot,
        route::Route,
    },
    limit::{LimitInspection, RateLimitStatus},
    telemetry::redact,
    values::redact_known_secrets,
};
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Instant,
};

/// A call that is only explained.
pub struct DryRun<'a> {
    config: &'a ConfigSnapshot,
    id: String,
    arrived_at: Instant,
    buffered_input: OnceLock<Bytes>,
    /// The step that decides now.
    step: DecisionStep,
    /// The steps that the call passed.
    passed: Vec<DecisionStep>,
    access_refusal: Option<AccessRule>,
    caller: Option<Arc<Caller>>,
    operation: Option<usize>,
    route: Option<Arc<Route>>,
    notes: BTreeMap<DecisionStep, StepNote>,
    unenforced_violations: Mutex<Vec<Violation>>,
    pub(super) explanation: Explanation,
}

/// What is known of a step besides its verdict.
#[derive(Default)]
struct StepNote {
    rule: Option<DecidingRule>,
    detail: Option<String>,
    is_skipped: bool,
}

impl<'a> DryRun<'a> {
    pub(super) fn new(config: &'a ConfigSnapshot, headers: &HeaderMap) -> Self {
        Self {
            config,
            id: request_id_from(headers),
            arrived_at: Instant::now(),
            buffered_input: OnceLock::new(),
            step: DecisionStep::RequestHead,
            passed: Vec::new(),
            access_refusal: None,
            caller: None,
            operation: None,
            route: None,
            notes: BTreeMap::new(),
            unenforced_violations: Mutex::default(),
            explanation: Explanation::default(),
        }
    }

    /// Adds what operators should know of a step.
    pub(super) fn add_detail(&mut self, step: DecisionStep, detail: impl Into<String>) {
        self.notes.entry(step).or_default().detail = Some(detail.into());
    }

    /// Names the rule of a step.
    pub(super) fn set_rule(&mut self, step: DecisionStep, rule: DecidingRule) {
        self.notes.entry(step).or_default().rule = Some(rule);
    }

    /// Says that a step does not apply to the call, or that a dry run leaves it out.
    pub(super) fn skip(&mut self, step: DecisionStep, detail: impl Into<String>) {
        let note = self.notes.entry(step).or_default();
        (note.is_skipped, note.detail) = (true, Some(detail.into()));
    }

    /// Ends the dry run with its verdict.
    pub(super) fn finish(mut self, verdict: Result<()>) -> Explanation {
        let mut explanation = std::mem::take(&mut self.explanation);
        explanation.unenforced_violations = std::mem::take(&mut *self.unenforced_violations.lock());
        explanation.operation = self.operation_name();
        let mut refused_step = None;
        match verdict {
            Ok(()) => self.passed.push(self.step),
            Err(fault) => {
                refused_step = Some(self.access_refusal.map_or(self.step, DecisionStep::of_access));
                explanation.refusal = Some(fault);
            }
        }
        let is_authenticated = self.passed.contains(&DecisionStep::Authentication);
        let steps = DecisionStep::ALL.iter().copied().filter(|step| *step != DecisionStep::OwnResource);
        explanation.steps = steps
            .map(|step| {
                let is_passed = match refused_step {
                    Some(refused) if step >= refused => false,
                    // Found out together with the authentication.
                    Some(_) if step == DecisionStep::AgentLookup => self.access_refusal.is_some() || is_authenticated,
                    Some(_) if step == DecisionStep::Authentication => {
                        self.access_refusal.is_some() || is_authenticated
                    }
                    _ if matches!(step, DecisionStep::AgentLookup | DecisionStep::Authorization) => is_authenticated,
                    _ => self.passed.contains(&step),
                };
                let refusal = explanation.refusal.as_ref().filter(|_| refused_step == Some(step));
                self.explain_step(step, is_passed, refusal)
            })
            .collect();
        explanation
    }

    fn explain_step(&mut self, step: DecisionStep, is_passed: bool, refusal: Option<&Fault>) -> ExplainedStep {
        let StepNote { rule, detail, is_skipped } = self.notes.remove(&step).unwrap_or_default();
        match refusal {
            Some(fault) => ExplainedStep {
                step,
                verdict: StepVerdict::Refused,
                rule: Some(DecidingRule::of_refusal(&RefusedCall {
                    step: self.step,
                    fault,
                    access: self.access_refusal,
                    operation: self.refusing_operation(),
                    deadline: DeadlineSource::Agent,
                })),
                detail: Some(redact(&redact_known_secrets(fault.detail().unwrap_or(fault.log_message()))).into_owned()),
            },
            None if is_passed && !is_skipped => ExplainedStep { step, verdict: StepVerdict::Passed, rule, detail },
            None => {
                let detail = detail.filter(|_| is_skipped);
                ExplainedStep { step, verdict: StepVerdict::Skipped, rule: None, detail }
            }
        }
    }

    fn operation_name(&self) -> Option<String> {
        let operation = self.route.as_ref()?.operations.get(self.named_operation()?)?;
        Some(operation.name.to_string())
    }

    /// Returns the index of the operation whose contract refuses the input, if it has a name.
    fn refusing_operation(&self) -> Option<usize> {
        self.route.as_ref()?.refusing_operation(self.operation)
    }

    /// Returns the index of the operation, if it has a name.
    fn named_operation(&self) -> Option<usize> {
        self.operation.filter(|index| self.route.as_ref().is_some_and(|route| route.has_named_operation(*index)))
    }
}

impl AdmissionRecorder for DryRun<'_> {
    fn call_id(&self) -> &str {
        &self.id
    }

    fn arrived_at(&self) -> Instant {
        self.arrived_at
    }

    fn is_exempt_from_shedding(&self) -> bool {
        false
    }

    fn buffered_input(&self) -> &OnceLock<Bytes> {
        &self.buffered_input
    }

    fn record_caller(&mut self, caller: &Arc<Caller>) {
        self.explanation.caller = Some(caller.id.to_string());
        self.explanation.tier = caller.tier.as_deref().map(str::to_owned);
        let detail = format!("{} ({})", caller.id, caller.method.label());
        self.add_detail(DecisionStep::Authentication, detail);
        self.caller = Some(Arc::clone(caller));
    }

    fn record_route(&mut self, route: &Arc<Route>) {
        self.explanation.agent = Some(route.agent.id.to_string());
        if let Some(caller) = &self.caller {
            let rule = DecidingRule::of_access(deciding_rule(&self.config.auth, caller, route));
            self.set_rule(DecisionStep::Authorization, rule);
        }
        self.route = Some(Arc::clone(route));
    }

    fn record_operation(&mut self, operation: usize) {
        self.operation = Some(operation);
    }

    fn begin_step(&mut self, step: DecisionStep) {
        self.passed.push(self.step);
        self.step = step;
    }

    fn record_access_refusal(&mut self, rule: AccessRule, agent: &str) {
        self.access_refusal = Some(rule);
        self.explanation.refusing_agent = Some(agent.to_owned());
    }

    fn is_dry_run(&self) -> bool {
        true
    }

    fn record_limits(&mut self, inspection: LimitInspection) -> Result<Option<RateLimitStatus>> {
        self.explanation.limits.extend(inspection.limits);
        inspection.result
    }

    fn record_shed_share(&mut self, share: Result<f64>) -> Result<()> {
        let share = share?;
        if share > 0.0 {
            let detail = format!("the gateway sheds {:.0} % of the calls of this tier now", share * 100.0);
            self.add_detail(DecisionStep::LoadShedding, detail);
        }
        Ok(())
    }

    fn unenforced_violations(&self) -> Option<&Mutex<Vec<Violation>>> {
        Some(&self.unenforced_violations)
    }
}
