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
fn jittered_pauses_differ_and_stay_within_half_of_the_pause() {
    let second = Duration::from_secs(1);
    let pauses: Vec<Duration> = (0..100).map(|_| jittered_pause(second)).collect();
    assert!(pauses.iter().all(|pause| (second / 2..=second * 3 / 2).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause != pauses[0]));
}
