//! The catalogue: parsing, reuse of compiled documents, swapping and rejecting.

use super::*;
use crate::telemetry::ExpositionFormat;

#[test]
fn r10_every_shape_and_format_of_a_file_is_parsed() {
    let yaml = "id: a\nname: A\nendpoint: https://a.example/\n";
    let list =
        "- {id: a, name: A, endpoint: 'https://a.example/'}\n- {id: b, name: B, endpoint: 'https://b.example/'}\n";
    for (name, text, count) in [
        ("one.json", agent("a").to_string(), 1),
        ("list.json", agents(&["a", "b"]), 2),
        ("none.json", "[]".to_owned(), 0),
        ("envelope.json", json!({"count": 2, "agents": [agent("a"), agent("b")], "next": null}).to_string(), 2),
        ("bom.json", format!("\u{feff}{}", agents(&["a"])), 1),
        ("one.yaml", yaml.to_owned(), 1),
        ("list.yml", list.to_owned(), 2),
        ("envelope.yaml", format!("agents:\n{list}"), 2),
        ("several.yaml", format!("---\n{yaml}\n---\nid: b\nname: B\nendpoint: https://b.example/\n"), 2),
        ("json-in.yaml", agents(&["a", "b", "c"]), 3),
        ("without-extension", agents(&["a"]), 1),
        ("without-extension-either", yaml.to_owned(), 1),
    ] {
        let fixture = TestCatalogue::new();
        fixture.put(name, text).unwrap();
        assert_eq!((fixture.ids().len(), fixture.rejections()), (count, vec![]), "{name}");
    }
}

#[test]
fn r15_a_document_that_has_a_member_agents_is_one_document() {
    let fixture = TestCatalogue::new();
    let mut document = agent("a");
    document["agents"] = json!(["x", {"y": 1}]);
    fixture.put("a.json", document.to_string()).unwrap();
    assert_eq!(fixture.ids(), ["a"]);
    fixture.put("a.yaml", "id: b\nname: B\nendpoint: https://b.example/\nagents: [1]\n").unwrap();
    assert_eq!(fixture.ids(), ["a", "b"]);
}

#[test]
fn an_unchanged_document_is_never_compiled_again() {
    let fixture = TestCatalogue::new();
    fixture.put("a.json", agents(&["a", "b", "c"])).unwrap();
    assert_eq!(fixture.compiler.count(), 3);
    let route = Arc::clone(fixture.catalogue.load().get("a").unwrap());
    fixture.put("a.json", agents(&["c", "a", "d"])).unwrap();
    assert_eq!(fixture.compiler.count(), 4, "only d is new");
    assert_eq!(fixture.ids(), ["a", "c", "d"]);
    assert!(Arc::ptr_eq(&route, fixture.catalogue.load().get("a").unwrap()));
    let moved = PartUpdate::Replaced(
        document_parser::parse_documents(Path::new("b.json"), agents(&["a", "d"]).into()).unwrap(),
    );
    let parts = vec![
        FeedPart { name: "a.json".into(), update: PartUpdate::Removed },
        FeedPart { name: "b.json".into(), update: moved },
    ];
    fixture.catalogue.ingest(fixture.generation, vec![source_poll(0, parts)]);
    assert_eq!(
        (fixture.compiler.count(), fixture.ids()),
        (4, vec!["a".to_owned(), "d".to_owned()]),
        "moved, not changed"
    );
}

#[test]
fn a_call_in_flight_keeps_its_route() {
    let fixture = TestCatalogue::new();
    fixture.put("a.json", agent("a").to_string()).unwrap();
    let route = Arc::clone(fixture.catalogue.load().get("a").unwrap());
    let mut changed = agent("a");
    changed["name"] = json!("another");
    fixture.put("a.json", changed.to_string()).unwrap();
    assert_eq!(
        (route.agent.name.as_str(), fixture.catalogue.load().get("a").unwrap().agent.name.as_str()),
        ("a", "another")
    );
    fixture.update_part("a.json", PartUpdate::Removed);
    assert!(fixture.catalogue.load().get("a").is_none() && fixture.catalogue.load().is_empty());
    assert_eq!(route.agent.id.as_str(), "a");
}

#[test]
fn r10_two_documents_with_one_id_are_both_rejected_until_one_is_removed() {
    let fixture = TestCatalogue::new();
    fixture.put("a.json", agents(&["same", "other"])).unwrap();
    fixture.put("b.json", agents(&["same"])).unwrap();
    assert_eq!(fixture.ids(), ["other"]);
    let rejections = fixture.rejections();
    assert_eq!(
        rejections.iter().map(|rejection| (&*rejection.part, rejection.index)).collect::<Vec<_>>(),
        [("a.json", 0), ("b.json", 0)]
    );
    assert!(
        rejections
            .iter()
            .all(|rejection| rejection.id.as_deref() == Some("same") && rejection.reasons[0].contains("same id"))
    );
    let compiled = fixture.compiler.count();
    fixture.update_part("b.json", PartUpdate::Removed);
    assert_eq!((fixture.ids(), fixture.compiler.count()), (vec!["other".to_owned(), "same".to_owned()], compiled));
    fixture.put("c.json", agents(&["x", "x", "x", "y"])).unwrap();
    assert_eq!((fixture.ids().len(), fixture.rejections().len()), (3, 3));
}

#[test]
fn r10_a_document_that_fails_to_compile_still_claims_its_id() {
    let fixture = TestCatalogue::new();
    *fixture.compiler.refused_id.lock() = Some("a".to_owned());
    fixture.put("a.json", agent("a").to_string()).unwrap();
    assert_eq!(fixture.rejections()[0].reasons, ["no credential"]);
    *fixture.compiler.refused_id.lock() = None;
    fixture
        .put("b.json", json!([{"id": "a", "name": "other", "endpoint": "https://evil.example/"}]).to_string())
        .unwrap();
    assert!(fixture.ids().is_empty());
}

#[test]
fn a_new_compiler_recompiles_every_route_and_keeps_every_agent() {
    let fixture = TestCatalogue::new();
    fixture.put("a.json", agents(&["a", "b"])).unwrap();
    fixture.put("broken.json", "[{\"id\": 1}]").unwrap();
    let before = Arc::clone(fixture.catalogue.load().get("a").unwrap());
    let second = Arc::new(CountingCompiler { number: 2, ..CountingCompiler::default() });
    *second.refused_id.lock() = Some("b".to_owned());
    fixture.catalogue.recompile(Arc::clone(&second) as _);
    assert_eq!((second.count(), fixture.compiler.count()), (2, 2));
    let after = Arc::clone(fixture.catalogue.load().get("a").unwrap());
    assert_eq!((before.compiler_number, after.compiler_number), (0, 2));
    assert!(Arc::ptr_eq(&before.agent, &after.agent));
    assert_eq!((fixture.ids(), fixture.rejections().len()), (vec!["a".to_owned()], 2));
    fixture.put("a.json", agents(&["a", "c"])).unwrap();
    assert_eq!((second.count(), fixture.compiler.count()), (3, 2), "later documents go to the compiler in force");
}

#[test]
fn a_panic_while_compiling_affects_one_agent_only() {
    let fixture = TestCatalogue::new();
    let mut bad = agent("bad");
    bad["name"] = json!("panics");
    fixture.put("a.json", json!([agent("a"), bad, agent("b")]).to_string()).unwrap();
    assert_eq!((fixture.ids().len(), fixture.rejections().len()), (2, 1));
    assert!(fixture.rejections()[0].reasons[0].contains("defect"));
}

#[test]
fn updates_of_an_earlier_generation_are_ignored() {
    let fixture = TestCatalogue::new();
    fixture.put("old/a.json", agents(&["a"])).unwrap();
    let (generation, _) = fixture.catalogue.begin_generation(vec![test_spec("new")], Vec::new(), Vec::new());
    assert!(fixture.ids().is_empty());
    fixture.put("old/a.json", agents(&["a"])).unwrap();
    assert!(fixture.ids().is_empty(), "the update of the earlier generation is ignored");
    let outcomes = fixture.catalogue.ingest(fixture.generation, vec![source_poll(0, Vec::new())]);
    assert_eq!(outcomes, [IngestOutcome::Outdated]);
    let part = FeedPart { name: "new.json".into(), update: PartUpdate::Replaced(vec![]) };
    assert_eq!(
        fixture.catalogue.ingest(generation, vec![source_poll(0, vec![part])]),
        [IngestOutcome::Accepted { changed: true }]
    );
}

#[test]
fn a_source_that_is_read_while_the_gateway_drains_does_not_make_it_ready() {
    for drains in [false, true] {
        let metrics = Metrics::new().unwrap();
        let compiler = Arc::new(CountingCompiler::default());
        let catalogue = Catalogue::new(compiler as _, Arc::clone(&metrics));
        let (generation, _) = catalogue.begin_generation(vec![test_spec("files")], Vec::new(), Vec::new());
        if drains {
            catalogue.report_draining();
        }
        catalogue.ingest(generation, vec![source_poll(0, Vec::new())]);
        assert!(catalogue.awaited_sources().is_empty());
        let expected = format!("\ngatepost_ready {}\n", u8::from(!drains));
        assert!(metrics.render(ExpositionFormat::Text).contains(&expected), "{drains}");
    }
}

#[test]
fn an_unreadable_part_is_listed_until_it_is_readable_again() {
    let fixture = TestCatalogue::new();
    fixture.put("a.json", agents(&["a"])).unwrap();
    fixture.update_part("a.json", PartUpdate::Unreadable("the disk is gone".to_owned()));
    assert_eq!(fixture.catalogue.load().unreadable_parts, [("a.json".into(), "the disk is gone".to_owned())]);
    assert_eq!(fixture.ids(), ["a"]);
    fixture.update_part("a.json", PartUpdate::ReadableAgain);
    assert!(fixture.catalogue.load().unreadable_parts.is_empty());
    assert_eq!((fixture.ids().len(), fixture.compiler.count()), (1, 1));
}

#[test]
fn r62_what_the_gateway_does_not_call_is_reported_apart_from_rejected_documents() {
    let fixture = TestCatalogue::new();
    let mut server = agent("mcp-server");
    server["protocol"] = json!("mcp");
    let other = RawDocument::new([1; 32], DocumentBody::Unsupported("'x': is of type 'skill'".to_owned()));
    fixture.put("a.json", json!([agent("a"), server, {"id": "broken"}]).to_string()).unwrap();
    fixture.update_part("b", PartUpdate::Replaced(vec![other]));
    let snapshot = fixture.catalogue.snapshot();
    assert_eq!((fixture.ids(), snapshot.rejected.len()), (vec!["a".to_owned()], 1));
    let unsupported: Vec<_> = snapshot.unsupported.iter().map(|document| document.reasons.join("; ")).collect();
    assert_eq!(unsupported, ["protocol: is mcp, and no rule lets it pass", "'x': is of type 'skill'"]);
    let health = &fixture.catalogue.source_health()[0];
    assert_eq!((health.agents, health.unsupported_documents.documents), (1, 2));
    assert!(health.unsupported_documents.first[0].starts_with("mcp-server: protocol"));
    // With a rule that lets it pass, it is an agent.
    fixture.catalogue.recompile(Arc::new(CountingCompiler { number: 1, ..CountingCompiler::default() }));
    assert_eq!(fixture.ids(), ["a", "mcp-server"]);
    assert_eq!(fixture.catalogue.snapshot().unsupported.len(), 1);
    assert_eq!(fixture.catalogue.source_health()[0].unsupported_documents.documents, 1);
}

#[test]
fn r62_a_document_with_other_notes_about_its_conversion_is_another_document() {
    let fixture = TestCatalogue::new();
    let document = |notes: &[&str]| {
        let text = agent("a").to_string();
        let notes: Vec<String> = notes.iter().map(|note| (*note).to_owned()).collect();
        let body = DocumentBody::Text(text.clone().into());
        vec![RawDocument::new(crate::values::sha256(text.as_bytes()), body).with_notes(notes.into())]
    };
    for (notes, count) in [(&[][..], 1), (&["paths: x"], 2), (&["paths: x"], 2), (&["paths: y"], 3)] {
        fixture.update_part("p", PartUpdate::Replaced(document(notes)));
        assert_eq!(fixture.compiler.count(), count, "{notes:?}");
        assert_eq!(fixture.catalogue.load().get("a").unwrap().agent.conversion_notes.len(), notes.len());
    }
}
