//! MQTT topics of the 2389 protocol: their canonical spelling, and the topics to which a task may be forwarded. The
//! bridge publishes only to topics that this file builds or parses.

use crate::{agent::AgentId, mqtt_client::canonical_topic};

/// Maximum length of a conversation id, in bytes.
const MAX_CONVERSATION_ID_BYTES: usize = 256;

/// Returns the topic on which tasks for an agent arrive (R107).
pub(super) fn input_topic(agent: &str) -> String {
    format!("/control/agents/{agent}/input")
}

/// Returns the topic on which an agent publishes its availability (R107).
pub(super) fn status_topic(agent: &str) -> String {
    format!("/control/agents/{agent}/status")
}

/// Returns the topic on which an agent responds to a conversation (R107).
pub(super) fn conversation_topic(conversation: &str, agent: &str) -> String {
    format!("/conversations/{conversation}/{agent}")
}

/// Whether `id` can be one level of a topic: no wildcard, separator, control character or white space.
pub(super) fn is_conversation_id(id: &str) -> bool {
    let is_allowed = |c: char| !matches!(c, '/' | '+' | '#') && !c.is_control() && !c.is_whitespace();
    (1..=MAX_CONVERSATION_ID_BYTES).contains(&id.len()) && id.chars().all(is_allowed)
}

/// Destination of a task's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextTarget {
    /// Another agent, which receives a task.
    Agent(String),
    /// A conversation, which receives the response.
    Conversation(String),
}

impl NextTarget {
    /// Parses the topic of a `next` member; `None` for a topic to which no task is forwarded.
    pub(super) fn parse(topic: &str) -> Option<Self> {
        let topic = canonical_topic(topic);
        if let Some(agent) = topic.strip_prefix("/control/agents/").and_then(|rest| rest.strip_suffix("/input")) {
            return AgentId::is_valid(agent).then_some(Self::Agent(topic));
        }
        let levels: Vec<&str> = topic.strip_prefix("/conversations/")?.split('/').collect();
        let is_valid = match levels.as_slice() {
            [conversation] => is_conversation_id(conversation),
            [conversation, agent] => is_conversation_id(conversation) && AgentId::is_valid(agent),
            _ => false,
        };
        is_valid.then_some(Self::Conversation(topic))
    }

    /// The topic in its canonical spelling.
    pub(super) fn topic(&self) -> &str {
        match self {
            Self::Agent(topic) | Self::Conversation(topic) => topic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r109_topics_have_one_canonical_spelling() {
        for (topic, canonical) in [
            ("//control//agents/foo/", "/control/agents/foo"),
            ("control/agents/foo", "/control/agents/foo"),
            ("/control/agents/foo", "/control/agents/foo"),
            ("///", ""),
            ("", ""),
        ] {
            assert_eq!(canonical_topic(topic), canonical);
        }
    }

    #[test]
    fn r112_tasks_are_forwarded_to_agents_and_conversations_only() {
        assert_eq!(NextTarget::parse("control/agents//b/input/"), Some(NextTarget::Agent(input_topic("b"))));
        for topic in ["/conversations/c/b", "/conversations/c"] {
            assert_eq!(NextTarget::parse(topic), Some(NextTarget::Conversation(topic.to_owned())));
        }
        for topic in [
            "",
            "/",
            "/control/agents/b/status",
            "/control/agents/+/input",
            "/control/agents/#",
            "/control/agents/a/b/input",
            "/control/agents/../input",
            "/control/agents//input",
            "/conversations",
            "/conversations/+/a",
            "/conversations/c/#",
            "/conversations/c/a/b",
            "/conversations/c\u{0}/a",
            "$SYS/broker",
            "$share/g/control/agents/b/input",
            "/elsewhere",
        ] {
            assert_eq!(NextTarget::parse(topic), None, "{topic}");
        }
    }

    proptest! {
        #[test]
        fn r109_canonical_topics_are_stable_and_have_no_empty_levels(topic in "[/a-z+#]{0,40}") {
            let canonical = canonical_topic(&topic);
            prop_assert_eq!(canonical_topic(&canonical), canonical.clone());
            prop_assert!(!canonical.contains("//") && !canonical.ends_with('/'));
            prop_assert!(canonical.is_empty() || canonical.starts_with('/'));
        }

        #[test]
        fn no_task_is_forwarded_to_a_wildcard_topic(topic in "\\PC{0,60}") {
            if let Some(target) = NextTarget::parse(&topic) {
                let wild = target.topic().contains(['+', '#', '\0']);
                prop_assert!(!wild);
                prop_assert!(target.topic().starts_with("/control/agents/") || target.topic().starts_with("/conversations/"));
            }
        }
    }
}
