//! The recent refusals, with metadata only. A caller has at most a quarter of them, so that one that sends refused
//! calls without end does not replace those of others. A refused call takes a short lock; an admitted one does nothing.

use super::{
    deciding_rule::{DecidingRule, LocateRule, RuleScope},
    decision_step::DecisionStep,
    explanation::add_rule,
};
use crate::{agent::AgentId, fault::FaultCode, values::ClientKey};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// One of this many decisions may be of one caller.
const SHARES: usize = 4;

/// The longest path that is kept, in bytes.
const MAX_PATH: usize = 256;

/// The longest method that is kept, in bytes: a method is as long as its caller likes.
const MAX_METHOD: usize = 32;

/// Maximum number of decisions that a look returns. Callers choose request ids, so that several calls may have one.
const MAX_FOUND: usize = 20;

/// A refused or failed call.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The request id.
    pub id: String,
    /// When the call arrived.
    pub at: SystemTime,
    /// How long it took.
    pub duration: Duration,
    /// The method.
    pub method: http::Method,
    /// The path, without the query.
    pub path: Box<str>,
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
        if decision.path.len() > MAX_PATH {
            let end = (0..=MAX_PATH).rev().find(|end| decision.path.is_char_boundary(*end)).unwrap_or_default();
            decision.path = decision.path.get(..end).unwrap_or_default().into();
        }
        if decision.method.as_str().len() > MAX_METHOD {
            let beginning = decision.method.as_str().get(..MAX_METHOD).unwrap_or_default();
            decision.method = beginning.parse().unwrap_or_default();
        }
        let mut table = self.table.lock();
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
        let table = self.table.lock();
        let all = table.by_client.values().flatten();
        let mut found: Vec<&(u64, Decision)> = all.filter(|(_, decision)| decision.id == id).collect();
        found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
        found.into_iter().take(MAX_FOUND).map(|(_, decision)| decision.clone()).collect()
    }
}

impl DecisionTable {
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
    /// Returns the decision as JSON. `caller` is what the access log calls the caller; `locator` finds the line of the
    /// rule in the configuration in force, which was put in force at `loaded_at`.
    pub fn to_json(&self, caller: Option<&str>, locator: &dyn LocateRule, loaded_at: SystemTime) -> Value {
        let mut members = Map::new();
        members.insert("request_id".into(), self.id.as_str().into());
        let at = OffsetDateTime::from(self.at).format(&Rfc3339).unwrap_or_default();
        members.insert("time".into(), at.into());
        members.insert("verdict".into(), "refused".into());
        members.insert("code".into(), self.code.row().name.into());
        members.insert("status".into(), self.status.into());
        members.insert("step".into(), self.step.name().into());
        let agent = self.agent.as_ref().map(AgentId::as_str);
        add_rule(&mut members, locator.locate(&self.rule, RuleScope { agent, tier: self.tier.as_deref() }));
        members.insert("method".into(), self.method.as_str().into());
        members.insert("path".into(), (*self.path).into());
        let names = [("agent", agent), ("operation", self.operation.as_deref()), ("caller", caller)];
        members.extend(names.into_iter().filter_map(|(name, text)| Some((name.into(), text?.into()))));
        members.insert("duration_ms".into(), json!(self.duration.as_millis() as u64));
        if self.at < loaded_at {
            // The indices of grants and the lines may be others now.
            members.insert("configuration_changed_since".into(), true.into());
        }
        Value::Object(members)
    }
}
