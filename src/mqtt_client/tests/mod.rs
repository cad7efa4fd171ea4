//! Truncated packets and canonical topics. Real brokers are tested in `tests/it/external`, scripted ones in the tests
//! of the registry's MQTT feed.

mod packet_truncation;

use super::*;

#[test]
fn r109_topics_have_one_canonical_spelling() {
    for (topic, canonical) in [
        ("//control//agents/foo/", "/control/agents/foo"),
        ("control/agents/foo", "/control/agents/foo"),
        ("/control/agents/foo///", "/control/agents/foo"),
        ("", ""),
        ("///", ""),
    ] {
        assert_eq!(canonical_topic(topic), canonical, "{topic}");
        assert_eq!(canonical_topic(canonical), canonical, "{topic}");
    }
}

#[test]
fn r116_the_length_of_a_message_is_that_of_all_its_texts() {
    let message = IncomingMessage {
        topic: "abc".into(),
        payload: "12345".into(),
        user_properties: vec![("baggage".to_owned(), "x".repeat(1_000)); 16],
        retained: false,
        repeated: false,
        qos: 1,
        packet_id: 1,
    };
    assert_eq!(message.length(), 8 + 16 * 1_007);
}
