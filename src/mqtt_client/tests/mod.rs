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
