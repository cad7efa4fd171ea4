//! Statuses of the agents that are called over one connection. An agent's last will says that the calls in flight get no
//! reply: the broker publishes it when the agent's connection breaks (R119).

use crate::mqtt_client::MAX_MESSAGE_BYTES;
use std::collections::HashMap;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The watched agents, each with the time at which it last said that it is available.
#[derive(Debug, Default)]
pub(super) struct AgentStatuses {
    watched: HashMap<String, Option<OffsetDateTime>>,
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
    /// Watches an agent; returns whether it was not watched before.
    pub(super) fn watch(&mut self, agent: &str) -> bool {
        let is_new = !self.watched.contains_key(agent);
        if is_new {
            self.watched.insert(agent.to_owned(), None);
        }
        is_new
    }

    /// Records a status, and returns whether it is the last will of a watched agent.
    ///
    /// A last will was written before the agent said that it is available. An agent that is about to leave says so
    /// later, and may still reply. A retained status describes the time before the subscription.
    pub(super) fn record_status(&mut self, agent: &str, payload: &[u8], retained: bool) -> bool {
        let Some(available_at) = self.watched.get_mut(agent) else { return false };
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
        assert!(statuses.watch("a") && !statuses.watch("a"));
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
}
