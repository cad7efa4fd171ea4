//! Statuses of the agents that are called over one connection. An agent's last will says that the calls in flight get no
//! reply: the broker publishes it when the agent's connection breaks (R119).

use crate::mqtt_client::MAX_MESSAGE_BYTES;
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The maximum number of agents in one request for statuses.
const MAX_REQUESTED_AGENTS: usize = 50;
/// An agent without a call for this long is no longer watched.
const WATCHED_FOR: Duration = Duration::from_secs(600);
/// The shortest interval between two searches for such agents.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// The watched agents.
#[derive(Debug, Default)]
pub(super) struct AgentStatuses {
    watched: HashMap<String, WatchedAgent>,
    /// The watched agents whose statuses are not requested yet.
    unrequested: Vec<String>,
    /// Whether the broker has answered a request for statuses.
    has_answers: bool,
    /// When agents without a call were last searched for.
    searched_at: Option<Instant>,
}

#[derive(Debug)]
struct WatchedAgent {
    /// When a call to the agent last began.
    called_at: Instant,
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
    pub(super) fn watch(&mut self, agent: &str, now: Instant) -> bool {
        if let Some(watched) = self.watched.get_mut(agent) {
            watched.called_at = now;
            return watched.is_answered;
        }
        let watched = WatchedAgent { called_at: now, is_answered: false, available_at: None };
        self.watched.insert(agent.to_owned(), watched);
        self.unrequested.push(agent.to_owned());
        false
    }

    /// Takes agents whose statuses are to be requested, a bounded number.
    pub(super) fn take_unrequested(&mut self) -> Vec<String> {
        let start = self.unrequested.len().saturating_sub(MAX_REQUESTED_AGENTS);
        self.unrequested.split_off(start)
    }

    /// Takes agents that are no longer watched because they had no call for some time, a bounded number. `in_flight` are
    /// those whose replies are awaited.
    pub(super) fn take_idle(&mut self, in_flight: &HashSet<&str>, now: Instant) -> Vec<String> {
        self.searched_at = Some(now);
        let is_idle = |agent: &str, watched: &WatchedAgent| {
            watched.is_answered
                && now.saturating_duration_since(watched.called_at) >= WATCHED_FOR
                && !in_flight.contains(agent)
        };
        let idle = self.watched.extract_if(|agent, watched| is_idle(agent, watched));
        idle.take(MAX_REQUESTED_AGENTS).map(|(agent, _)| agent).collect()
    }

    /// Whether it is time for [`take_idle`](Self::take_idle).
    pub(super) fn must_search_idle(&self, now: Instant) -> bool {
        self.searched_at.is_none_or(|at| now.saturating_duration_since(at) >= SEARCH_INTERVAL)
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
        let (mut statuses, now) = (AgentStatuses::default(), Instant::now());
        let (connected, available, leaving) = ("2026-11-22T03:00:00Z", "2026-11-22T03:00:01Z", "2026-11-22T04:00:00Z");
        assert!(!statuses.record_status("a", &status("a", "unavailable", connected), false), "it is not watched");
        assert!(!statuses.watch("a", now) && !statuses.watch("a", now));
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
        let (mut statuses, now) = (AgentStatuses::default(), Instant::now());
        let agents: Vec<String> = (0..=MAX_REQUESTED_AGENTS).map(|n| n.to_string()).collect();
        for agent in agents.iter().chain(&agents) {
            assert!(!statuses.watch(agent, now));
        }
        let requests = [statuses.take_unrequested(), statuses.take_unrequested()];
        assert_eq!(requests.each_ref().map(Vec::len), [MAX_REQUESTED_AGENTS, 1]);
        assert!(statuses.take_unrequested().is_empty(), "each agent is requested once");
        statuses.record_answer(&requests[1]);
        assert!(statuses.watch(&requests[1][0], now) && !statuses.watch(&requests[0][0], now));
    }

    #[test]
    fn r119_agents_without_a_call_for_some_time_are_no_longer_watched() {
        let (mut statuses, start) = (AgentStatuses::default(), Instant::now());
        let agents: Vec<String> = (0..3 + MAX_REQUESTED_AGENTS).map(|n| n.to_string()).collect();
        for agent in &agents {
            statuses.watch(agent, start);
        }
        statuses.record_answer(&agents);
        assert!(!statuses.watch("unanswered", start));
        assert!(statuses.must_search_idle(start) && statuses.take_idle(&HashSet::new(), start).is_empty());
        assert!(!statuses.must_search_idle(start) && statuses.must_search_idle(start + SEARCH_INTERVAL));
        let later = start + WATCHED_FOR;
        assert!(statuses.watch("0", later), "it is called again");
        let in_flight = HashSet::from(["1"]);
        let idle = [statuses.take_idle(&in_flight, later), statuses.take_idle(&in_flight, later)];
        assert_eq!(idle.each_ref().map(Vec::len), [MAX_REQUESTED_AGENTS, 1]);
        let mut watched: Vec<&String> = statuses.watched.keys().collect();
        watched.sort();
        assert_eq!(watched, ["0", "1", "unanswered"]);
        assert!(!statuses.watch(&idle[0][0], later), "its status is requested again");
    }
}
