//! Invalid documents, which affect only themselves, and malformed files, which keep their previous agents.

use super::*;
use proptest::prelude::*;

#[test]
fn one_invalid_document_is_reported_and_the_others_stay() {
    for (bad, reason) in [
        (
            r#"{"id": "bad", "name": "x", "version": 3.1.4, "endpoint": "https://x.example/"}"#,
            "write it in quotes: \"3.1.4\"",
        ),
        (
            r#"{"id": "bad", "name": "x", "version": 1.10, "endpoint": "https://x.example/"}"#,
            "version: must be a string",
        ),
        (r#"{"id": "bad", "name": "x"}"#, "endpoint: is required"),
        (r#"{"id": "a b", "name": "x", "endpoint": "https://x.example/"}"#, "id:"),
        (
            r#"{"id": "bad", "name": "x", "endpoint": "https://x.example/", "authentication": {"type": "magic"}}"#,
            "authentication.type",
        ),
        (r#"{"id": "bad", "id": "worse", "name": "x", "endpoint": "https://x.example/"}"#, "appears twice"),
        (r#"{"id": "bad" "name": "x"}"#, "line 1 column"),
        (r#"{"id": tru}"#, "not JSON"),
        ("", "no document between two commas"),
        ("null", "must be an object, not null"),
        ("[]", "must be an object, not an array"),
        ("\"text\"", "must be an object, not a string"),
        ("{]", "not JSON"),
    ] {
        let desk = TestCatalogue::new();
        desk.put("a.json", format!("[{}, {bad}, {}]", agent("a"), agent("b"))).unwrap();
        assert_eq!(desk.ids(), ["a", "b"], "{bad}");
        let refused = desk.refused();
        assert_eq!((refused.len(), refused[0].index, &*refused[0].part), (1, 1, "a.json"), "{bad}");
        assert!(refused[0].to_string().contains(reason), "{bad}: {}", refused[0]);
    }
}

#[test]
fn r10_a_rejection_has_the_id_and_every_reason() {
    let desk = TestCatalogue::new();
    desk.put("a.yaml", "id: planner\nname: 5\nstatus: asleep\nversion: 1.10\n").unwrap();
    let refused = &desk.refused()[0];
    assert_eq!(refused.id.as_deref(), Some("planner"));
    assert!(refused.reasons.len() >= 4, "{refused}");
}

#[test]
fn rejection_reasons_are_bounded_in_length() {
    let desk = TestCatalogue::new();
    let mut loud = agent(&"i".repeat(500_000));
    loud["authentication"] = json!({"type": "x".repeat(200_000)});
    loud["operations"] = (0..200).map(|at| json!({"name": at})).collect();
    desk.put("a.json", loud.to_string()).unwrap();
    let told = desk.refused()[0].to_string();
    assert!(told.len() < 12_000, "{}", told.len());
}

#[test]
fn documents_that_are_too_large_or_too_deep_are_rejected_individually() {
    let desk = TestCatalogue::new();
    let mut large = agent("large");
    large["description"] = json!("x".repeat(1 << 20));
    let deep = format!("{{\"id\": \"deep\", \"x\": {}1{}}}", "[".repeat(200), "]".repeat(200));
    let abyss = "[".repeat(100_000) + &"]".repeat(100_000);
    desk.put("a.json", format!("[{large}, {deep}, {abyss}, {}]", agent("a"))).unwrap();
    assert_eq!((desk.ids(), desk.refused().len()), (vec!["a".to_owned()], 3));
    desk.put("b.yaml", format!("- {large}\n- {}\n", agent("b"))).unwrap();
    assert_eq!((desk.ids().len(), desk.refused().len()), (2, 4));
}

#[test]
fn a_malformed_file_keeps_its_previous_agents() {
    let desk = TestCatalogue::new();
    let good = agents(&["a", "b"]);
    desk.put("a.json", good.clone()).unwrap();
    desk.put("b.yaml", "- {id: c, name: C, endpoint: 'https://c.example/'}").unwrap();
    let mut halves: Vec<(&str, Vec<u8>)> =
        (0..good.len()).map(|at| ("a.json", good.as_bytes()[..at].to_vec())).collect();
    halves.extend([
        ("a.json", b"<html><body>502".to_vec()),
        ("a.json", b"\xff\xfe[\0]\0".to_vec()),
        ("a.json", vec![0; 4096]),
        ("a.json", b"[] []".to_vec()),
        ("a.json", b"{\"agents\": [".to_vec()),
        ("a.json", b"{\"agents\": []} x".to_vec()),
        ("a.json", b"null".to_vec()),
        ("a.json", b"{\"agents\": [], \"agents\": []}".to_vec()),
        ("a.json", b" \n\t".to_vec()),
        ("a.json", b"[\"\\".to_vec()),
        ("a.json", vec![b'['; 1_000_000]),
        ("a.json", b"{\"a\":".repeat(300_000)),
        ("b.yaml", b"".to_vec()),
        ("b.yaml", b"just a text".to_vec()),
        ("b.yaml", b"- {id: c".to_vec()),
        ("b.yaml", b"a: b: c".to_vec()),
        ("b.yaml", b"\xff\xfe".to_vec()),
        ("b.yaml", vec![b'['; 100_000]),
        ("b.yaml", b"id: a\nid: b\n".to_vec()),
        ("b.yaml", b"x: *nowhere".to_vec()),
        ("b.yaml", b"5".to_vec()),
        ("b.yaml", b"n: .nan\n".to_vec()),
        ("b.yaml", b"a: !!binary x".to_vec()),
        ("b.yaml", b"%YAML 9.9\n---\n@".to_vec()),
    ]);
    for (name, bytes) in halves {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let told = desk.put(name, bytes);
        assert!(told.is_err(), "{name} {shown}");
        assert!(told.unwrap_err().len() < 500);
        assert_eq!(desk.ids(), ["a", "b", "c"], "{name} {shown}");
        assert!(!desk.catalogue.load().unreadable_parts.is_empty());
    }
    desk.put("a.json", good).unwrap();
    assert_eq!((desk.compiler.count(), desk.catalogue.load().unreadable_parts.len()), (3, 1));
}

#[test]
fn yaml_alias_expansion_is_bounded() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..12 {
        let before = format!("*a{}", at - 1);
        laughs.push_str(&format!("a{at}: &a{at} [{}]\n", vec![before; 10].join(", ")));
    }
    let began = Instant::now();
    assert!(TestCatalogue::new().put("a.yaml", laughs).is_err());
    let long = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(10_000), "*a, ".repeat(9_000));
    assert!(TestCatalogue::new().put("a.yaml", long).is_err());
    let fat = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(9_000));
    assert!(TestCatalogue::new().put("a.yaml", fat).is_err());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let desk = TestCatalogue::new();
    desk.put("a.yaml", "- &base {id: a, name: A, endpoint: 'https://a.example/'}\n- {<<: *base, id: b}\n").unwrap();
    assert_eq!(desk.ids(), ["a", "b"], "an ordinary alias works");
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300), yaml: bool) {
        let _ = TestCatalogue::new().put(if yaml { "a.yaml" } else { "a.json" }, bytes);
    }

    #[test]
    fn text_near_json_or_yaml_does_not_panic_the_parser(text in "[\\[\\]{}\",:\\\\ \n&*!|>#%@`a-c0-9-]{0,80}", yaml: bool) {
        let _ = TestCatalogue::new().put(if yaml { "a.yaml" } else { "a.json" }, text);
    }

    #[test]
    fn a_corrupt_file_loses_no_agent_of_another_file(at in 0usize..400, byte: u8) {
        let desk = TestCatalogue::new();
        desk.put("b.json", agents(&["kept"])).unwrap();
        let mut text = agents(&["a", "b", "c"]).into_bytes();
        let length = text.len();
        text[at % length] = byte;
        let _ = desk.put("a.json", text);
        prop_assert!(desk.ids().contains(&"kept".to_owned()));
    }
}
