//! Invalid documents, which affect only themselves, and malformed files, which keep their previous agents.

use super::*;
use proptest::prelude::*;

#[test]
fn r127_the_search_for_a_version_without_quotes_takes_linear_time() {
    let fixture = TestCatalogue::new();
    let bad = format!(r#"{{"id": "bad", {}}}"#, r#""version":"#.repeat(100_000));
    let began = std::time::Instant::now();
    fixture.put("a.json", format!("[{bad}, {}]", agent("a"))).unwrap();
    // A quadratic search takes minutes.
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert_eq!((fixture.ids(), fixture.rejections().len()), (vec!["a".to_owned()], 1));
}

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
        let fixture = TestCatalogue::new();
        fixture.put("a.json", format!("[{}, {bad}, {}]", agent("a"), agent("b"))).unwrap();
        assert_eq!(fixture.ids(), ["a", "b"], "{bad}");
        let rejections = fixture.rejections();
        assert_eq!((rejections.len(), rejections[0].index, &*rejections[0].part), (1, 1, "a.json"), "{bad}");
        assert!(rejections[0].to_string().contains(reason), "{bad}: {}", rejections[0]);
    }
}

#[test]
fn r10_a_rejection_has_the_id_and_every_reason() {
    let fixture = TestCatalogue::new();
    fixture.put("a.yaml", "id: planner\nname: 5\nstatus: asleep\nversion: 1.10\n").unwrap();
    let rejections = &fixture.rejections()[0];
    assert_eq!(rejections.id.as_deref(), Some("planner"));
    assert!(rejections.reasons.len() >= 4, "{rejections}");
}

#[test]
fn rejection_reasons_are_bounded_in_length() {
    let fixture = TestCatalogue::new();
    let mut verbose = agent(&"i".repeat(500_000));
    verbose["authentication"] = json!({"type": "x".repeat(200_000)});
    verbose["operations"] = (0..200).map(|number| json!({"name": number})).collect();
    fixture.put("a.json", verbose.to_string()).unwrap();
    let message = fixture.rejections()[0].to_string();
    assert!(message.len() < 12_000, "{}", message.len());
}

#[test]
fn documents_that_are_too_large_or_too_deep_are_rejected_individually() {
    let fixture = TestCatalogue::new();
    let mut large = agent("large");
    large["description"] = json!("x".repeat(1 << 20));
    let deep = format!("{{\"id\": \"deep\", \"x\": {}1{}}}", "[".repeat(200), "]".repeat(200));
    let deeper = "[".repeat(100_000) + &"]".repeat(100_000);
    fixture.put("a.json", format!("[{large}, {deep}, {deeper}, {}]", agent("a"))).unwrap();
    assert_eq!((fixture.ids(), fixture.rejections().len()), (vec!["a".to_owned()], 3));
    fixture.put("b.yaml", format!("- {large}\n- {}\n", agent("b"))).unwrap();
    assert_eq!((fixture.ids().len(), fixture.rejections().len()), (2, 4));
}

#[test]
fn a_malformed_file_keeps_its_previous_agents() {
    let fixture = TestCatalogue::new();
    let valid = agents(&["a", "b"]);
    fixture.put("a.json", valid.clone()).unwrap();
    fixture.put("b.yaml", "- {id: c, name: C, endpoint: 'https://c.example/'}").unwrap();
    let mut malformed: Vec<(&str, Vec<u8>)> =
        (0..valid.len()).map(|length| ("a.json", valid.as_bytes()[..length].to_vec())).collect();
    malformed.extend([
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
    for (name, bytes) in malformed {
        let excerpt = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let result = fixture.put(name, bytes);
        assert!(result.is_err(), "{name} {excerpt}");
        assert!(result.unwrap_err().len() < 500);
        assert_eq!(fixture.ids(), ["a", "b", "c"], "{name} {excerpt}");
        assert!(!fixture.catalogue.load().unreadable_parts.is_empty());
    }
    fixture.put("a.json", valid).unwrap();
    assert_eq!((fixture.compiler.count(), fixture.catalogue.load().unreadable_parts.len()), (3, 1));
}

#[test]
fn yaml_alias_expansion_is_bounded() {
    let mut nested = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let alias = format!("*a{}", level - 1);
        nested.push_str(&format!("a{level}: &a{level} [{}]\n", vec![alias; 10].join(", ")));
    }
    let began = Instant::now();
    assert!(TestCatalogue::new().put("a.yaml", nested).is_err());
    let long = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(10_000), "*a, ".repeat(9_000));
    assert!(TestCatalogue::new().put("a.yaml", long).is_err());
    let large = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(9_000));
    assert!(TestCatalogue::new().put("a.yaml", large).is_err());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let fixture = TestCatalogue::new();
    fixture.put("a.yaml", "- &base {id: a, name: A, endpoint: 'https://a.example/'}\n- {<<: *base, id: b}\n").unwrap();
    assert_eq!(fixture.ids(), ["a", "b"], "an ordinary alias works");
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
    fn a_corrupt_file_loses_no_agent_of_another_file(position in 0usize..400, byte: u8) {
        let fixture = TestCatalogue::new();
        fixture.put("b.json", agents(&["kept"])).unwrap();
        let mut text = agents(&["a", "b", "c"]).into_bytes();
        let length = text.len();
        text[position % length] = byte;
        let _ = fixture.put("a.json", text);
        prop_assert!(fixture.ids().contains(&"kept".to_owned()));
    }
}
