//! Statuses of the agents that are called over one connection. An agent's last will says that the calls in flight get no
//! reply: the broker publishes it when the agent's connection breaks (R119).

use crate::mqtt_client::MAX_MESSAGE_BYTES;
use std::collections::HashMap;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The maximum number of agents in one request for statuses.
const MAX_REQUESTED_AGENTS: usize = 50;

/// The watched agents.
#[derive(Debug, Default)]
pub(super) struct AgentStatuses {
    watched: HashMap<String, WatchedAgent>,
    /// The watched agents whose statuses are not requested yet.
    unrequested: Vec<String>,
    /// Whether the broker has answered a request for statuses.
    has_answers: bool,
}

#[derive(Debug, Default)]
struct WatchedAgent {
    /// Whether the broker has answered the request for the agent's status.
    is_answered: bool,
    /// When the agent last said that it is available.
    available_at: Option<OffsetDateTime>,
}

/// The members of a status that matter here (R113); others are ignored (R114).
#[derive(serde::Deserialize)]
struct AgentStatus<'a> {
    agent_id: &'a str,
    status: &'a str,
    #[serde(default, borrow)]
    timestamp: Option<&'a str>,
}

impl AgentStatuses {
    /// Watches an agent; returns whether the broker has already answered the request for its status.
    pub(super) fn watch(&mut self, agent: &str) -> bool {
        if let Some(watched) = self.watched.get(agent) {
            return watched.is_answered;
        }
        self.watched.insert(agent.to_owned(), WatchedAgent::default());
        self.unrequested.push(agent.to_owned());
        false
    }

    /// Takes agents whose statuses are to be requested, a bounded number.
    pub(super) fn take_unrequested(&mut self) -> Vec<String> {
        let start = self.unrequested.len().saturating_sub(MAX_REQUESTED_AGENTS);
        self.unrequested.split_off(start)
    }

    /// Records that the broker has answered the request for the statuses of these agents.
    pub(super) fn record_answer(&mut self, agents: &[String]) {
        self.has_answers = true;
        for agent in agents {
            if let Some(watched) = self.watched.get_mut(agent) {
                watched.is_answered = true;
            }
        }
    }

    /// Whether the broker has answered a request for statuses on this connection.
    pub(super) fn has_answers(&self) -> bool {
        self.has_answers
    }

    /// Records a status, and returns whether it is the last will of a watched agent.
    ///
    /// A last will was written before the agent said that it is available. An agent that is about to leave says so
    /// later, and may still reply. A retained status describes the time before the subscription.
    pub(super) fn record_status(&mut self, agent: &str, payload: &[u8], retained: bool) -> bool {
        let Some(WatchedAgent { available_at, .. }) = self.watched.get_mut(agent) else { return false };
        let payload = if payload.len() > MAX_MESSAGE_BYTES { &[] } else { payload };
        let Ok(status) = serde_json::from_slice::<AgentStatus<'_>>(payload) else { return false };
        let timestamp = status.timestamp.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
        match status.status {
            _ if status.agent_id != agent => false,
            "available" => {
                *available_at = timestamp;
                false
            }
            "unavailable" => !retained && available_at.is_none_or(|since| timestamp.is_none_or(|at| at <= since)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(agent: &str, status: &str, timestamp: &str) -> Vec<u8> {
        json!({"agent_id": agent, "status": status, "timestamp": timestamp}).to_string().into_bytes()
    }

    #[test]
    fn r119_a_last_will_is_older_than_the_agents_last_word() {
        let mut statuses = AgentStatuses::default();
        let (connected, available, leaving) = ("2026-11-22T03:00:00Z", "2026-11-22T03:00:01Z", "2026-11-22T04:00:00Z");
        assert!(!statuses.record_status("a", &status("a", "unavailable", connected), false), "it is not watched");
        assert!(!statuses.watch("a") && !statuses.watch("a"));
        assert!(statuses.record_status("a", &status("a", "unavailable", connected), false));
        assert!(!statuses.record_status("a", &status("a", "available", available), true));
        for timestamp in [connected, available, "", "yesterday"] {
            assert!(statuses.record_status("a", &status("a", "unavailable", timestamp), false), "{timestamp}");
        }
        assert!(!statuses.record_status("a", &status("a", "unavailable", leaving), false), "it may still reply");
        assert!(!statuses.record_status("a", &status("a", "unavailable", connected), true), "it is from before");
        assert!(!statuses.record_status("a", &status("b", "unavailable", connected), false), "it names another agent");
        let unreadable = [&b""[..], b"{", b"[]", b"{\"agent_id\":\"a\"}", &[b' '; MAX_MESSAGE_BYTES + 1]];
        assert!(unreadable.iter().all(|payload| !statuses.record_status("a", payload, false)));
    }

    #[test]
    fn r119_the_statuses_of_many_agents_take_few_requests() {
        let mut statuses = AgentStatuses::default();
        let agents: Vec<String> = (0..=MAX_REQUESTED_AGENTS).map(|n| n.to_string()).collect();
        for agent in agents.iter().chain(&agents) {
            assert!(!statuses.watch(agent));
        }
        let requests = [statuses.take_unrequested(), statuses.take_unrequested()];
        assert_eq!(requests.each_ref().map(Vec::len), [MAX_REQUESTED_AGENTS, 1]);
        assert!(statuses.take_unrequested().is_empty(), "each agent is requested once");
        statuses.record_answer(&requests[1]);
        assert!(statuses.watch(&requests[1][0]) && !statuses.watch(&requests[0][0]));
    }
}
