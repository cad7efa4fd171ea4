//! The catalogue: parsing, reuse of compiled documents, swapping and rejecting.

use super::*;

#[test]
fn r10_every_shape_and_format_of_a_file_is_parsed() {
    let yaml = "id: a\nname: A\nendpoint: https://a.example/\n";
    let listed =
        "- {id: a, name: A, endpoint: 'https://a.example/'}\n- {id: b, name: B, endpoint: 'https://b.example/'}\n";
    for (name, text, count) in [
        ("one.json", agent("a").to_string(), 1),
        ("list.json", agents(&["a", "b"]), 2),
        ("none.json", "[]".to_owned(), 0),
        ("envelope.json", json!({"count": 2, "agents": [agent("a"), agent("b")], "next": null}).to_string(), 2),
        ("bom.json", format!("\u{feff}{}", agents(&["a"])), 1),
        ("one.yaml", yaml.to_owned(), 1),
        ("list.yml", listed.to_owned(), 2),
        ("envelope.yaml", format!("agents:\n{listed}"), 2),
        ("several.yaml", format!("---\n{yaml}\n---\nid: b\nname: B\nendpoint: https://b.example/\n"), 2),
        ("json-in.yaml", agents(&["a", "b", "c"]), 3),
        ("without-extension", agents(&["a"]), 1),
        ("without-extension-either", yaml.to_owned(), 1),
    ] {
        let desk = TestCatalogue::new();
        desk.put(name, text).unwrap();
        assert_eq!((desk.ids().len(), desk.refused()), (count, vec![]), "{name}");
    }
}

#[test]
fn r15_a_document_that_has_a_member_agents_is_one_document() {
    let desk = TestCatalogue::new();
    let mut document = agent("a");
    document["agents"] = json!(["x", {"y": 1}]);
    desk.put("a.json", document.to_string()).unwrap();
    assert_eq!(desk.ids(), ["a"]);
    desk.put("a.yaml", "id: b\nname: B\nendpoint: https://b.example/\nagents: [1]\n").unwrap();
    assert_eq!(desk.ids(), ["a", "b"]);
}

#[test]
fn an_unchanged_document_is_never_compiled_again() {
    let desk = TestCatalogue::new();
    desk.put("a.json", agents(&["a", "b", "c"])).unwrap();
    assert_eq!(desk.compiler.count(), 3);
    let kept = Arc::clone(desk.catalogue.load().get("a").unwrap());
    desk.put("a.json", agents(&["c", "a", "d"])).unwrap();
    assert_eq!(desk.compiler.count(), 4, "only d is new");
    assert_eq!(desk.ids(), ["a", "c", "d"]);
    assert!(Arc::ptr_eq(&kept, desk.catalogue.load().get("a").unwrap()));
    let moved = PartUpdate::Replaced(
        document_parser::parse_documents(Path::new("b.json"), agents(&["a", "d"]).into()).unwrap(),
    );
    let parts = vec![
        FeedPart { name: "a.json".into(), update: PartUpdate::Removed },
        FeedPart { name: "b.json".into(), update: moved },
    ];
    desk.catalogue.ingest(desk.era, vec![source_poll(0, parts)]);
    assert_eq!((desk.compiler.count(), desk.ids()), (4, vec!["a".to_owned(), "d".to_owned()]), "moved, not changed");
}

#[test]
fn a_call_in_flight_keeps_its_route() {
    let desk = TestCatalogue::new();
    desk.put("a.json", agent("a").to_string()).unwrap();
    let route = Arc::clone(desk.catalogue.load().get("a").unwrap());
    let mut changed = agent("a");
    changed["name"] = json!("another");
    desk.put("a.json", changed.to_string()).unwrap();
    assert_eq!(
        (route.agent.name.as_str(), desk.catalogue.load().get("a").unwrap().agent.name.as_str()),
        ("a", "another")
    );
    desk.update_part("a.json", PartUpdate::Removed);
    assert!(desk.catalogue.load().get("a").is_none() && desk.catalogue.load().is_empty());
    assert_eq!(route.agent.id.as_str(), "a");
}

#[test]
fn r10_two_documents_with_one_id_are_both_rejected_until_one_is_removed() {
    let desk = TestCatalogue::new();
    desk.put("a.json", agents(&["same", "other"])).unwrap();
    desk.put("b.json", agents(&["same"])).unwrap();
    assert_eq!(desk.ids(), ["other"]);
    let refused = desk.refused();
    assert_eq!(refused.iter().map(|one| (&*one.part, one.index)).collect::<Vec<_>>(), [("a.json", 0), ("b.json", 0)]);
    assert!(refused.iter().all(|one| one.id.as_deref() == Some("same") && one.reasons[0].contains("same id")));
    let compiled = desk.compiler.count();
    desk.update_part("b.json", PartUpdate::Removed);
    assert_eq!((desk.ids(), desk.compiler.count()), (vec!["other".to_owned(), "same".to_owned()], compiled));
    desk.put("c.json", agents(&["x", "x", "x", "y"])).unwrap();
    assert_eq!((desk.ids().len(), desk.refused().len()), (3, 3));
}

#[test]
fn r10_a_document_that_fails_to_compile_still_claims_its_id() {
    let desk = TestCatalogue::new();
    *desk.compiler.refuse.lock().unwrap() = Some("a".to_owned());
    desk.put("a.json", agent("a").to_string()).unwrap();
    assert_eq!(desk.refused()[0].reasons, ["no credential"]);
    *desk.compiler.refuse.lock().unwrap() = None;
    desk.put("b.json", json!([{"id": "a", "name": "other", "endpoint": "https://evil.example/"}]).to_string()).unwrap();
    assert!(desk.ids().is_empty());
}

#[test]
fn a_new_compiler_recompiles_every_route_and_keeps_every_agent() {
    let desk = TestCatalogue::new();
    desk.put("a.json", agents(&["a", "b"])).unwrap();
    desk.put("broken.json", "[{\"id\": 1}]").unwrap();
    let before = Arc::clone(desk.catalogue.load().get("a").unwrap());
    let second = Arc::new(CountingCompiler { number: 2, ..CountingCompiler::default() });
    *second.refuse.lock().unwrap() = Some("b".to_owned());
    desk.catalogue.recompile(Arc::clone(&second) as _);
    assert_eq!((second.count(), desk.compiler.count()), (2, 2));
    let after = Arc::clone(desk.catalogue.load().get("a").unwrap());
    assert_eq!((before.by, after.by), (0, 2));
    assert!(Arc::ptr_eq(&before.agent, &after.agent));
    assert_eq!((desk.ids(), desk.refused().len()), (vec!["a".to_owned()], 2));
    desk.put("a.json", agents(&["a", "c"])).unwrap();
    assert_eq!((second.count(), desk.compiler.count()), (3, 2), "later documents go to the compiler in force");
}

#[test]
fn a_panic_while_compiling_affects_one_agent_only() {
    let desk = TestCatalogue::new();
    let mut bad = agent("bad");
    bad["name"] = json!("panics");
    desk.put("a.json", json!([agent("a"), bad, agent("b")]).to_string()).unwrap();
    assert_eq!((desk.ids().len(), desk.refused().len()), (2, 1));
    assert!(desk.refused()[0].reasons[0].contains("defect"));
}

#[test]
fn updates_of_an_earlier_generation_are_ignored() {
    let desk = TestCatalogue::new();
    desk.put("old/a.json", agents(&["a"])).unwrap();
    let (era, _) = desk.catalogue.begin_generation(vec![test_spec("new")], Vec::new(), Vec::new());
    assert!(desk.ids().is_empty());
    desk.put("old/a.json", agents(&["a"])).unwrap();
    assert!(desk.ids().is_empty(), "the update of the earlier generation is ignored");
    let verdicts = desk.catalogue.ingest(desk.era, vec![source_poll(0, Vec::new())]);
    assert_eq!(verdicts, [IngestOutcome::Outdated]);
    let part = FeedPart { name: "new.json".into(), update: PartUpdate::Replaced(vec![]) };
    assert_eq!(
        desk.catalogue.ingest(era, vec![source_poll(0, vec![part])]),
        [IngestOutcome::Accepted { changed: true }]
    );
}

#[test]
fn an_unreadable_part_is_listed_until_it_is_readable_again() {
    let desk = TestCatalogue::new();
    desk.put("a.json", agents(&["a"])).unwrap();
    desk.update_part("a.json", PartUpdate::Unreadable("the disk is gone".to_owned()));
    assert_eq!(desk.catalogue.load().unreadable_parts, [("a.json".into(), "the disk is gone".to_owned())]);
    assert_eq!(desk.ids(), ["a"]);
    desk.update_part("a.json", PartUpdate::ReadableAgain);
    assert!(desk.catalogue.load().unreadable_parts.is_empty());
    assert_eq!((desk.ids().len(), desk.compiler.count()), (1, 1));
}
