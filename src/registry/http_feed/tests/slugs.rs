//! Slugs: path-safe, stable, and never a reserved word.

use super::{
    slug::{operation_name, slug},
    *,
};
use crate::agent::AgentId;
use proptest::prelude::*;

#[test]
fn r10_r108_names_become_slugs() {
    for (name, id) in [
        ("planner", "planner"),
        ("A.b-c_9", "A.b-c_9"),
        ("Snake Card", "Snake-Card"),
        ("urn:air:example.com:agent:planner", "urn-air-example.com-agent-planner"),
        ("  two   words ", "two-words"),
        ("a/b", "a-b"),
        ("-a-", "-a-"),
    ] {
        assert_eq!(slug(name), id);
    }
    for (name, start) in [
        ("Über", "ber-"),
        ("v1 旅行", "v1-"),
        ("旅行", "agent-"),
        ("..", "agent-"),
        ("", "agent-"),
        (&*"x y".repeat(100), "x-yx-y"),
    ] {
        let id = slug(name);
        assert!(id.starts_with(start) && AgentId::is_valid(&id) && slug(name) == id, "{id}");
    }
    for (one, other) in [("旅行", "天气"), ("Agent 旅行", "Agent 天气"), ("Über", "Aber ber")] {
        assert_ne!(slug(one), slug(other));
    }
}

#[test]
fn r13_reserved_path_segments_get_a_suffix() {
    for name in ["invoke", "agent.json", "agent-card.json", "openapi.json", "history", ".well-known"] {
        let document = |operation: &str| {
            json!({
                "id": "a", "name": "a", "endpoint": "https://a.example/", "operations": [{"name": operation}]
            })
        };
        assert!(Agent::from_document(&document(name), [0; 32]).is_err(), "{name} is reserved");
        assert!(Agent::from_document(&document(&operation_name(name)), [0; 32]).is_ok(), "{name}");
    }
}

proptest! {
    #[test]
    fn r108_every_name_becomes_a_valid_identifier(name in ".{0,200}") {
        prop_assert!(AgentId::is_valid(&slug(&name)), "{}", slug(&name));
        prop_assert!(AgentId::is_valid(&operation_name(&name)));
        prop_assert_eq!(slug(&slug(&name)), slug(&name));
    }

    #[test]
    fn r74_arbitrary_bytes_do_not_panic_the_list_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = list_parser::parse_page(&base(), &bytes.into());
    }

    #[test]
    fn r74_text_near_json_does_not_panic_the_list_parser(text in r#"[\[\]{}",:\\agents0-9 nextCursor]{0,120}"#) {
        let _ = list_parser::parse_page(&base(), &text.into());
    }
}
