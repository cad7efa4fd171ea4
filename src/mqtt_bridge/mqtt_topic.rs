//! MQTT topics of the 2389 protocol: their canonical spelling, and the topics that a task may name for its result. The
//! bridge publishes only to topics that this file builds or parses.

use crate::{agent::AgentId, mqtt_client::canonical_topic};

/// Maximum length of a conversation id, in bytes.
const MAX_CONVERSATION_ID_BYTES: usize = 256;
/// Maximum length of a destination, in bytes.
const MAX_DESTINATION_BYTES: usize = 1_024;
/// First levels of the protocol's own topics.
const PROTOCOL_LEVELS: [&str; 2] = ["control", "conversations"];

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

/// Whether MQTT permits all characters of `text` (MQTT 5 §1.5.4): brokers close the connection of a client that sends a
/// control character or a noncharacter.
pub(super) fn has_only_mqtt_characters(text: &str) -> bool {
    let is_noncharacter = |c: char| matches!(c, '\u{fdd0}'..='\u{fdef}') || u32::from(c) & 0xfffe == 0xfffe;
    !text.chars().any(|c| c.is_control() || is_noncharacter(c))
}

/// Whether `id` can be one level of a topic: no wildcard, separator or white space, and no character that MQTT forbids.
pub(super) fn is_conversation_id(id: &str) -> bool {
    let is_allowed = |c: char| !matches!(c, '/' | '+' | '#') && !c.is_whitespace();
    (1..=MAX_CONVERSATION_ID_BYTES).contains(&id.len()) && id.chars().all(is_allowed) && has_only_mqtt_characters(id)
}

/// Destination of a task's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextTarget {
    /// Another agent, which receives a task.
    Agent(String),
    /// A conversation, which receives the response, or the next task if steps follow.
    Conversation(String),
    /// Any other topic (R154), in the sender's spelling. It receives the bare response.
    Destination(String),
}

impl NextTarget {
    /// Parses the topic of a `next` member. Returns `None` for a topic that must not receive a result: one of the
    /// protocol's own topics besides agents' inputs and conversations, a topic of the broker itself (`$…`), a wildcard,
    /// or a destination that no filter of `final_destinations` matches.
    pub(super) fn parse(raw: &str, final_destinations: &[String]) -> Option<Self> {
        let topic = canonical_topic(raw);
        let first_level = topic.split('/').nth(1)?;
        if !PROTOCOL_LEVELS.contains(&first_level) {
            let is_permitted = raw.len() <= MAX_DESTINATION_BYTES
                && !raw.contains(['+', '#'])
                && has_only_mqtt_characters(raw)
                && !first_level.starts_with('$')
                && final_destinations.iter().any(|filter| filter_matches(filter, &topic));
            return is_permitted.then(|| Self::Destination(raw.to_owned()));
        }
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

    /// The topic to publish to.
    pub(super) fn topic(&self) -> &String {
        match self {
            Self::Agent(topic) | Self::Conversation(topic) | Self::Destination(topic) => topic,
        }
    }
}

/// Whether `filter` is a topic filter (MQTT 5 §4.7.1): `+` and `#` are whole levels, and `#` is the last one.
pub(super) fn is_topic_filter(filter: &str) -> bool {
    let levels: Vec<&str> = filter.split('/').filter(|level| !level.is_empty()).collect();
    let is_level = |(index, level): (usize, &&str)| match *level {
        "+" => true,
        "#" => index + 1 == levels.len(),
        level => !level.contains(['+', '#']) && has_only_mqtt_characters(level),
    };
    !levels.is_empty() && levels.iter().enumerate().all(is_level)
}

/// Whether a topic filter matches a topic in its canonical spelling; the spelling of the filter does not matter.
fn filter_matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/').filter(|level| !level.is_empty());
    for expected in filter.split('/').filter(|level| !level.is_empty()) {
        match (expected, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (expected, Some(level)) if expected == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
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

    /// Parses a topic where every destination is permitted.
    fn parse(topic: &str) -> Option<NextTarget> {
        NextTarget::parse(topic, &["#".to_owned()])
    }

    #[test]
    fn r112_r154_results_go_to_agents_to_conversations_and_to_topics_beside_the_protocol() {
        assert_eq!(parse("control/agents//b/input/"), Some(NextTarget::Agent(input_topic("b"))));
        for topic in ["/conversations/c/b", "/conversations/c"] {
            assert_eq!(parse(topic), Some(NextTarget::Conversation(topic.to_owned())));
        }
        for topic in ["/elsewhere", "results/app 1", "a//b/", "/results/$x", "/Control/agents/a/status"] {
            assert_eq!(parse(topic), Some(NextTarget::Destination(topic.to_owned())), "in the sender's spelling");
        }
    }

    #[test]
    fn r154_no_result_goes_to_the_control_plane_to_the_broker_or_to_a_wildcard() {
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
            "/$SYS/broker",
            "$share/g/control/agents/b/input",
            "control//agents/b/status/",
            "/control/agents/b/progress/x",
            "control",
            "/control/anything",
            "results/+",
            "results/#",
            "results/\n",
            "results/\u{ffff}",
            "/conversations/c\u{fdd0}",
            &"x".repeat(1_025),
        ] {
            assert_eq!(parse(topic), None, "{topic}");
        }
    }

    #[test]
    fn r154_control_characters_and_noncharacters_are_in_no_topic() {
        let forbidden =
            ['\0', '\u{1f}', '\u{7f}', '\u{9f}', '\u{fdd0}', '\u{fdef}', '\u{fffe}', '\u{ffff}', '\u{10ffff}'];
        for c in forbidden {
            assert!(!is_conversation_id(&format!("c{c}")) && parse(&format!("results/{c}")).is_none(), "{c:?}");
        }
        for c in ['a', 'é', '\u{fdcf}', '\u{fdf0}', '\u{fffd}', '\u{feff}', '\u{1f916}', '\u{10fffd}'] {
            assert!(is_conversation_id(&format!("c{c}")) && parse(&format!("results/{c}")).is_some(), "{c:?}");
        }
    }

    #[test]
    fn r154_filters_narrow_the_destinations_and_nothing_else() {
        let filters = ["results/#".to_owned(), "/a/+/c".to_owned()];
        let narrow = |topic: &str| NextTarget::parse(topic, &filters).is_some();
        for topic in ["results", "/results/x/y", "a/b/c", "/a//b/c", "/conversations/c", "/control/agents/b/input"] {
            assert!(narrow(topic), "{topic}");
        }
        for topic in ["result", "/a/c", "a/b/c/d", "/control/agents/b/status", "/conversations/a/b/c"] {
            assert!(!narrow(topic), "{topic}");
        }
        assert!(NextTarget::parse("x", &[]).is_none());
        for filter in ["#", "results/#", "/a/+/c", "+"] {
            assert!(is_topic_filter(filter), "{filter}");
        }
        for filter in ["", "/", "a/#/b", "a+", "a/b#", "a\0", "a\u{fffe}"] {
            assert!(!is_topic_filter(filter), "{filter}");
        }
    }

    /// Topics of the protocol and of the broker in many spellings, some with a level replaced or added, and any text.
    fn any_spelling() -> impl Strategy<Value = String> {
        let topics = prop::sample::select(vec![
            "control/agents/a/input",
            "control/agents/a/status",
            "control/agents/a/progress/x",
            "control/agents/a",
            "control",
            "conversations/c/a",
            "conversations/c",
            "$SYS/broker/log",
            "$share/g/control/agents/a/input",
        ]);
        let spelled = (topics, prop::collection::vec("/{1,3}", 8), "/{0,3}", 0..8_usize, "[a-b]|\\+|#|input|status|");
        let spelled = spelled.prop_map(|(topic, separators, start, position, replacement)| {
            let levels: Vec<&str> = topic.split('/').collect();
            let level = |(index, level): (usize, &&str)| {
                if index == position { replacement.clone() } else { (*level).to_owned() }
            };
            let levels: Vec<String> = levels.iter().enumerate().map(level).collect();
            let spelled = levels.iter().zip(separators).map(|(level, separator)| format!("{level}{separator}"));
            start + &spelled.collect::<String>()
        });
        prop_oneof![spelled, "\\PC{0,60}"]
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
        fn r154_no_spelling_of_a_topic_reaches_the_control_plane(topic in any_spelling()) {
            let canonical = canonical_topic(&topic);
            let target = parse(&topic);
            if let Some(target) = &target {
                prop_assert_eq!(canonical_topic(target.topic()), canonical.clone());
                prop_assert!(!target.topic().contains(['+', '#', '\0']) && !canonical.starts_with("/$"));
            }
            if canonical == "/control" || canonical.starts_with("/control/") {
                let agent = canonical.strip_prefix("/control/agents/").and_then(|rest| rest.strip_suffix("/input"));
                let input = agent.filter(|agent| AgentId::is_valid(agent)).map(|agent| NextTarget::Agent(input_topic(agent)));
                prop_assert_eq!(target, input);
            }
        }
    }
}
