//! Parsing of topics and status messages.

use super::*;
use crate::{
    agent::{Agent, AgentStatus, EndpointScheme},
    mqtt_client::{MAX_MESSAGE_BYTES, canonical_topic},
    registry::mqtt_feed::status_message::{Availability, agent_id_of_topic, build_document, parse_status},
};
use proptest::prelude::*;

const BROKER: &str = "mqtts://broker.example:8883";

fn agent(payload: &Value, id: &str) -> Agent {
    let message = parse_status(id, payload.to_string().as_bytes()).unwrap();
    let Availability::Available(fields) = message.availability else { panic!("not available") };
    let text = build_document(fields, id, BROKER, true);
    Agent::from_document(&serde_json::from_slice(&text).unwrap(), [0; 32]).unwrap()
}

#[test]
fn r109_topics_are_compared_in_canonical_form() {
    for spelling in [
        "/control/agents/a/status",
        "control/agents/a/status",
        "//control///agents/a/status/",
        "/control/agents/a//status//",
    ] {
        assert_eq!(canonical_topic(spelling), "/control/agents/a/status", "{spelling}");
        assert_eq!(agent_id_of_topic(spelling).as_deref(), Some("a"), "{spelling}");
    }
    assert_eq!((canonical_topic("").as_str(), canonical_topic("///").as_str()), ("", ""));
}

#[test]
fn r107_other_topics_are_not_status_topics() {
    for other in [
        "",
        "/control/agents/status",
        "/control/agents//status",
        "/control/agents/a/input",
        "/control/agents/a/b/status",
        "/x/control/agents/a/status",
        "/Control/agents/a/status",
        "/control/agents/a/status/x",
        "$SYS/control/agents/a/status",
    ] {
        assert_eq!(agent_id_of_topic(other), None, "{other}");
    }
}

#[test]
fn r113_the_reference_agents_status_becomes_a_valid_document() {
    let mut payload = status_payload("planner", "available");
    payload["capabilities"] = json!(["plan", "write_file"]);
    payload["description"] = json!("Plans things");
    let agent = agent(&payload, "planner");
    assert_eq!((agent.id.as_str(), agent.name.as_str(), &*agent.description), ("planner", "planner", "Plans things"));
    assert_eq!(agent.capabilities.iter().map(|word| &**word).collect::<Vec<_>>(), ["plan", "write_file"]);
    assert_eq!(agent.endpoint.to_string(), "mqtts://broker.example:8883/control/agents/planner/input");
    assert_eq!(agent.endpoint.scheme(), EndpointScheme::Mqtts);
    assert_eq!((agent.status, agent.operations.len()), (AgentStatus::Active, 1));
    assert!(agent.operations[0].name.is_empty() && agent.operations[0].inputs.is_none());
}

#[test]
fn r114_fields_beyond_the_protocol_are_kept() {
    let mut payload = status_payload("a", "available");
    payload["model"] = json!({"name": "x", "deep": [[[1]]]});
    payload["name"] = json!("The A");
    payload["operations"] = json!([{"name": "plan", "inputs": {"type": "object"}}]);
    let agent = agent(&payload, "a");
    assert_eq!((agent.name.as_str(), agent.operation("plan").is_some()), ("The A", true));
    assert!(agent.document.contains("\"deep\""), "{}", agent.document);
}

#[test]
fn a_message_cannot_change_its_agents_id_or_endpoint() {
    let mut payload = status_payload("a", "available");
    payload["endpoint"] = json!("http://169.254.169.254/");
    payload["id"] = json!("b");
    let agent = agent(&payload, "a");
    assert_eq!(
        (agent.id.as_str(), agent.endpoint.to_string().as_str()),
        ("a", "mqtts://broker.example:8883/control/agents/a/input")
    );
}

#[test]
fn r113_invalid_statuses_are_rejected_with_a_reason() {
    let large = json!({"agent_id": "a", "status": "available", "x": "x".repeat(MAX_MESSAGE_BYTES)}).to_string();
    let deep =
        format!("{{\"agent_id\": \"a\", \"status\": \"available\", \"x\": {}{}}}", "[".repeat(90), "]".repeat(90));
    for (payload, reason) in [
        ("available", "not JSON"),
        ("{\"agent_id\": \"a\", \"status\": \"avail", "not JSON"),
        ("{\"agent_id\": \"a\", \"agent_id\": \"b\", \"status\": \"available\"}", "appears twice"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "agent_id: is required"),
        ("{\"agent_id\": 5, \"status\": \"available\"}", "agent_id: is required"),
        ("{\"agent_id\": \"b\", \"status\": \"available\"}", "agent_id: must be 'a', as in the topic, not 'b'"),
        ("{\"agent_id\": \"a\"}", "status: must be available or unavailable"),
        ("{\"agent_id\": \"a\", \"status\": \"busy\"}", "status: must be"),
        ("{\"agent_id\": \"a\", \"status\": true}", "status: must be"),
        ("\u{feff}{}", "byte order mark"),
        (" ", "is empty"),
        (&*large, "more than 262144 bytes"),
        (&*deep, "nested too deeply"),
    ] {
        let why = parse_status("a", payload.as_bytes()).unwrap_err();
        assert!(why.contains(reason) && why.len() < 300, "{payload:.80}: {why}");
    }
    assert!(parse_status("a", b"\xff\xfe").unwrap_err().contains("UTF-8"));
}

#[test]
fn r108_ids_that_are_not_path_safe_are_rejected() {
    for id in ["", ".", "..", "a b", "ä", "a%2f", "a$", &"x".repeat(129)] {
        let payload = json!({"agent_id": id, "status": "available"}).to_string();
        assert!(parse_status(id, payload.as_bytes()).unwrap_err().contains("A-Z a-z 0-9"), "{id}");
    }
    for id in ["a", "A.b-c_9", &"x".repeat(128)] {
        assert!(parse_status(id, status_payload(id, "available").to_string().as_bytes()).is_ok(), "{id}");
    }
}

#[test]
fn r114_an_invalid_timestamp_is_noticed_and_accepted() {
    for (timestamp, invalid) in [
        (json!("2026-11-22T03:00:00Z"), false),
        (json!("2026-11-22T03:00:00.123456789Z"), false),
        (json!("2026-11-22T03:00:00+00:00"), true),
        (json!("2026-11-22 03:00"), true),
        (json!("yesterday"), true),
        (json!(1_763_780_400), true),
        (Value::Null, true),
    ] {
        let payload = json!({"agent_id": "a", "status": "unavailable", "timestamp": timestamp});
        let message = parse_status("a", payload.to_string().as_bytes()).unwrap();
        assert_eq!(
            (message.invalid_timestamp, message.availability),
            (invalid, Availability::Unavailable),
            "{timestamp}"
        );
    }
}

#[test]
fn an_empty_payload_clears_the_status() {
    assert_eq!(parse_status("a", b"").unwrap().availability, Availability::Cleared);
}

proptest! {
    #[test]
    fn messages_do_not_panic_the_parser(id in ".{0,20}", payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_status(&id, &payload);
    }

    #[test]
    fn r109_the_canonical_form_is_idempotent(topic in "[/a-c+]{0,30}") {
        let canonical = canonical_topic(&topic);
        prop_assert_eq!(&canonical_topic(&canonical), &canonical);
        prop_assert!(!canonical.contains("//") && !canonical.ends_with('/'));
        prop_assert!(canonical.is_empty() || canonical.starts_with('/'));
    }
}
