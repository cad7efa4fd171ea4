//! The recent refusals, with metadata only. A caller has at most a quarter of them, so that one that sends refused
//! calls without end does not replace those of others. A refused call takes a short lock; an admitted one does nothing.

use super::{
    deciding_rule::{CIRCUIT_BREAKER, DecidingRule, LocateDocument, LocateRule, RuleScope, RuleSearch},
    decision_step::DecisionStep,
    explanation::add_rule,
};
use crate::{agent::AgentId, fault::FaultCode, values::ClientKey};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// One of this many decisions may be of one caller.
const SHARES: usize = 4;

/// The longest path that is kept, in bytes.
const MAX_PATH: usize = 256;

/// The longest method that is kept, in bytes: a method is as long as its caller likes.
const MAX_METHOD: usize = 32;

/// The longest message and the longest detail that are kept, in bytes. They may quote an agent.
const MAX_TEXT: usize = 1_024;

/// Maximum number of decisions that a look returns. Callers choose request ids, so that several calls may have one.
const MAX_FOUND: usize = 20;

/// Maximum number of configurations that are kept for the calls that began under them and are in progress.
const MAX_CONFIGURATIONS: usize = 16;

/// A refused or failed call.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The request id.
    pub id: String,
    /// When the call arrived.
    pub at: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// The method and the path; `None` if the request had no valid head.
    pub target: Option<DecisionTarget>,
    /// The agent, if the caller may know that it exists.
    pub agent: Option<AgentId>,
    /// The operation.
    pub operation: Option<Arc<str>>,
    /// The id of the caller, if it is known.
    pub caller: Option<Arc<str>>,
    /// The tier of the caller.
    pub tier: Option<Arc<str>>,
    /// The code of the fault.
    pub code: FaultCode,
    /// The status of the response.
    pub status: u16,
    /// The step that refused.
    pub step: DecisionStep,
    /// The rule that refused.
    pub rule: DecidingRule,
    /// The agent at which the caller was refused, whose document may be the rule. Its caller may not know it.
    pub refusing_agent: Option<AgentId>,
    /// The configuration under which the call began; set when the decision is recorded.
    pub rules: Option<Arc<dyn LocateRule>>,
    /// Why, as the access log says it. Not redacted.
    pub message: Cow<'static, str>,
    /// The detail of the access log. Not redacted.
    pub detail: Option<String>,
}

/// What a call asked for.
#[derive(Clone, Debug)]
pub struct DecisionTarget {
    /// The method.
    pub method: http::Method,
    /// The path, without the query.
    pub path: Box<str>,
}

/// How a decision is shown.
pub struct DecisionView<'a> {
    /// What the access log calls the caller.
    pub caller: Option<&'a str>,
    /// The configuration in force.
    pub rules_in_force: &'a Arc<dyn LocateRule>,
    /// Finds the documents of agents.
    pub documents: &'a dyn LocateDocument,
    /// Redacts a text as the access log does.
    pub redact: fn(&str) -> Cow<'_, str>,
}

/// The recent refusals of a gateway.
#[derive(Debug, Default)]
pub struct RecentDecisions {
    max: AtomicUsize,
    table: Mutex<DecisionTable>,
}

#[derive(Debug, Default)]
struct DecisionTable {
    /// The decisions of each client, the oldest first, by their numbers.
    by_client: HashMap<ClientKey, VecDeque<(u64, Decision)>>,
    /// The client of each decision, the oldest first.
    clients: BTreeMap<u64, ClientKey>,
    next_number: u64,
    /// The configurations, the oldest first; the last one is in force.
    configurations: VecDeque<DatedRules>,
}

/// The rules of a configuration, with the time from which it is in force.
#[derive(Debug)]
struct DatedRules {
    since: Instant,
    rules: Arc<dyn LocateRule>,
}

impl RecentDecisions {
    /// Sets how many decisions are kept. 0 keeps none.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Relaxed);
        let mut table = self.table.lock();
        while table.clients.len() > max {
            table.remove_oldest();
        }
    }

    /// Puts the rules of a configuration in force. Calls that began before keep those under which they began.
    pub fn set_rules(&self, rules: Arc<dyn LocateRule>) {
        let mut table = self.table.lock();
        if table.configurations.len() >= MAX_CONFIGURATIONS {
            table.configurations.pop_front();
        }
        table.configurations.push_back(DatedRules { since: Instant::now(), rules });
    }

    /// Returns the rules in force.
    pub fn rules_in_force(&self) -> Option<Arc<dyn LocateRule>> {
        self.table.lock().configurations.back().map(|dated| Arc::clone(&dated.rules))
    }

    /// Returns whether decisions are kept.
    pub fn is_enabled(&self) -> bool {
        self.max.load(Relaxed) > 0
    }

    /// Keeps a decision about a call of `client`.
    #[cold]
    pub fn record(&self, client: ClientKey, mut decision: Decision) {
        let max = self.max.load(Relaxed);
        if max == 0 {
            return;
        }
        decision.shorten();
        let arrived_at = Instant::now().checked_sub(decision.duration);
        let mut table = self.table.lock();
        decision.rules = table.rules_at(arrived_at);
        let of_client = table.by_client.get(&client).map_or(0, VecDeque::len);
        if of_client >= max.div_ceil(SHARES) {
            table.remove_oldest_of(client);
        } else if table.clients.len() >= max {
            table.remove_oldest();
        }
        let number = table.next_number;
        table.next_number += 1;
        table.clients.insert(number, client);
        table.by_client.entry(client).or_default().push_back((number, decision));
    }

    /// Returns the decisions about calls with this id, the newest first.
    pub fn find(&self, id: &str) -> Vec<Decision> {
        self.find_newest(|decision| decision.id == id)
    }

    /// Returns the decisions about calls of an agent, the newest first. Those that hide the agent from its caller have
    /// no agent.
    pub fn find_of_agent(&self, agent: &str) -> Vec<Decision> {
        self.find_newest(|decision| decision.agent.as_ref().is_some_and(|id| id.as_str() == agent))
    }

    fn find_newest(&self, is_wanted: impl Fn(&Decision) -> bool) -> Vec<Decision> {
        let table = self.table.lock();
        let all = table.by_client.values().flatten();
        let mut found: Vec<&(u64, Decision)> = all.filter(|(_, decision)| is_wanted(decision)).collect();
        found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        found.into_iter().take(MAX_FOUND).map(|(_, decision)| decision.clone()).collect()
    }
}

impl DecisionTable {
    /// Returns the rules that were in force at this time, or the oldest that are kept.
    fn rules_at(&self, time: Option<Instant>) -> Option<Arc<dyn LocateRule>> {
        let mut newest_first = self.configurations.iter().rev();
        let found = newest_first.find(|dated| time.is_some_and(|time| dated.since <= time));
        found.or(self.configurations.front()).map(|dated| Arc::clone(&dated.rules))
    }

    fn remove_oldest(&mut self) {
        if let Some((_, client)) = self.clients.first_key_value() {
            self.remove_oldest_of(*client);
        }
    }

    fn remove_oldest_of(&mut self, client: ClientKey) {
        let Some(decisions) = self.by_client.get_mut(&client) else { return };
        if let Some((number, _)) = decisions.pop_front() {
            self.clients.remove(&number);
        }
        if decisions.is_empty() {
            self.by_client.remove(&client);
        }
    }
}

impl Decision {
    /// Cuts what callers and agents make long.
    fn shorten(&mut self) {
        if let Some(DecisionTarget { method, path }) = &mut self.target {
            if path.len() > MAX_PATH {
                *path = beginning(path, MAX_PATH).into();
            }
            if method.as_str().len() > MAX_METHOD {
                *method = beginning(method.as_str(), MAX_METHOD).parse().unwrap_or_default();
            }
        }
        if self.message.len() > MAX_TEXT {
            self.message = beginning(&self.message, MAX_TEXT).to_owned().into();
        }
        if let Some(detail) = self.detail.as_mut().filter(|detail| detail.len() > MAX_TEXT) {
            *detail = beginning(detail, MAX_TEXT).to_owned();
        }
    }

    /// Whether the gateway took the call, and the agent did not answer it.
    fn is_failure_of_agent(&self) -> bool {
        self.step == DecisionStep::Agent && self.rule != DecidingRule::Setting(CIRCUIT_BREAKER)
    }

    /// Returns the decision as JSON.
    pub fn to_json(&self, view: &DecisionView<'_>) -> Value {
        let mut members = Map::new();
        members.insert("request_id".into(), self.id.as_str().into());
        let at = OffsetDateTime::from(self.at).format(&Rfc3339).unwrap_or_default();
        members.insert("time".into(), at.into());
        members.insert("verdict".into(), if self.is_failure_of_agent() { "failed" } else { "refused" }.into());
        members.insert("code".into(), self.code.row().name.into());
        members.insert("status".into(), self.status.into());
        let texts = [("message", Some(&*self.message)), ("detail", self.detail.as_deref())];
        members.extend(texts.into_iter().filter_map(|(name, text)| Some((name.into(), (view.redact)(text?).into()))));
        members.insert("step".into(), self.step.name().into());
        let agent = self.agent.as_ref().map(AgentId::as_str);
        let rules = self.rules.as_ref().unwrap_or(view.rules_in_force);
        let search = RuleSearch { rules: &**rules, documents: view.documents };
        let scope_agent = agent.or(self.refusing_agent.as_ref().map(AgentId::as_str));
        add_rule(&mut members, search.locate(&self.rule, RuleScope { agent: scope_agent, tier: self.tier.as_deref() }));
        if let Some(DecisionTarget { method, path }) = &self.target {
            members.insert("method".into(), method.as_str().into());
            members.insert("path".into(), (**path).into());
        }
        let operation = self.operation.as_deref().filter(|name| !name.is_empty());
        let names = [("agent", agent), ("operation", operation), ("caller", view.caller)];
        members.extend(names.into_iter().filter_map(|(name, text)| Some((name.into(), text?.into()))));
        members.insert("duration_ms".into(), json!(self.duration.as_millis() as u64));
        if !Arc::ptr_eq(rules, view.rules_in_force) {
            // The rule and its line are those of that time, and may be others now.
            members.insert("configuration_changed_since".into(), true.into());
        }
        Value::Object(members)
    }
}

/// Returns at most `max` bytes of the beginning of `text`.
fn beginning(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default()
}
