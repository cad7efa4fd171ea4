//! Several sources: precedence, the loss guard, and staleness.

use super::*;
use crate::values::sha256;
use std::time::SystemTime;

/// A catalogue with these sources, and its generation.
fn catalogue_with(specs: Vec<SourceSpec>) -> TestCatalogue {
    let fixture = TestCatalogue::new();
    let (generation, _) = fixture.catalogue.begin_generation(specs, Vec::new(), Vec::new());
    TestCatalogue { generation, ..fixture }
}

fn guarded_spec(name: &str, confirm_after: Duration) -> SourceSpec {
    SourceSpec { loss_guard: Some(LossGuardPolicy { threshold: 0.5, confirm_after }), ..test_spec(name) }
}

fn part_with_agents(name: &str, ids: &[&str]) -> FeedPart {
    let documents = document_parser::parse_documents(Path::new("a.json"), agents(ids).into()).unwrap();
    FeedPart { name: name.into(), update: PartUpdate::Replaced(documents) }
}

impl TestCatalogue {
    fn poll(&self, source: usize, parts: Vec<FeedPart>) -> IngestOutcome {
        self.catalogue.ingest(self.generation, vec![source_poll(source, parts)])[0]
    }

    fn fail(&self, source: usize) -> IngestOutcome {
        let failed = SourcePoll { source, result: PollResult::failed("down"), stored_at: None };
        self.catalogue.ingest(self.generation, vec![failed])[0]
    }

    fn health(&self, source: usize) -> SourceHealth {
        self.catalogue.source_health()[source].clone()
    }
}

fn numbered_ids(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|number| format!("agent-{number:02}")).collect()
}

fn part_with_numbered_agents(from: usize, to: usize) -> FeedPart {
    let ids = numbered_ids(from, to);
    part_with_agents("list", &ids.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A part of the built-in registry: one document of `publisher` at `server`.
fn published_part(id: &str, publisher: &str, server: &str) -> FeedPart {
    let text = json!({"id": id, "name": id, "endpoint": format!("https://{server}/{id}")}).to_string();
    let document = RawDocument::new(sha256(text.as_bytes()), DocumentBody::Text(text.into()));
    let document = RawDocument { publisher: Some(publisher.into()), ..document };
    FeedPart { name: format!("registry/{id}").into(), update: PartUpdate::Replaced(vec![document]) }
}

#[test]
fn r41_a_document_at_the_server_of_another_owners_agent_is_refused_whatever_came_first() {
    let kind = |name: &str, kind| SourceSpec { kind, ..test_spec(name) };
    let fixture = catalogue_with(vec![kind("registry", "registry"), kind("reg", "aidip"), kind("agents", "files")]);
    fixture.compiler.trusts_no_endpoint.store(true, Ordering::SeqCst);
    fixture.poll(
        0,
        vec![published_part("a", "key:one", "one.example"), published_part("evil", "key:two", "secret.example")],
    );
    assert_eq!(fixture.ids(), ["a", "evil"]);
    // The operator's file and the remote source name servers that a publisher named before.
    let document = |id: &str, server: &str| {
        let part = published_part(id, "", server);
        let PartUpdate::Replaced(mut documents) = part.update else { unreachable!() };
        documents[0].publisher = None;
        FeedPart { name: part.name, update: PartUpdate::Replaced(documents) }
    };
    fixture.poll(2, vec![document("secret", "secret.example")]);
    fixture.poll(1, vec![document("far", "one.example"), document("evil-too", "SECRET.example:443")]);
    assert_eq!(fixture.ids(), ["far", "secret"], "the operator comes first, then remote sources, then publishers");
    let rejections = fixture.rejections();
    assert_eq!(rejections.len(), 3, "{rejections:?}");
    assert!(
        rejections.iter().all(|rejection| rejection.reasons[0].contains("another owner's agent")),
        "{rejections:?}"
    );
    // A document that is not served because of its id takes no server.
    fixture.poll(0, vec![published_part("b-own", "key:two", "two.example")]);
    let duplicate = vec![document("evil", "two.example"), document("far", "one.example")];
    fixture.poll(1, duplicate);
    assert!(fixture.ids().contains(&"b-own".to_owned()), "{:?}", fixture.rejections());
    fixture.poll(0, vec![FeedPart { name: "registry/b-own".into(), update: PartUpdate::Removed }]);
    fixture.poll(1, vec![FeedPart { name: "registry/evil".into(), update: PartUpdate::Removed }]);
    // Agents of one owner share a server, and so do documents whose server the operator listed.
    fixture.poll(2, vec![FeedPart { name: "registry/secret".into(), update: PartUpdate::Removed }]);
    fixture
        .poll(0, vec![published_part("evil", "key:one", "own.example"), published_part("b", "key:one", "own.example")]);
    assert_eq!(fixture.ids(), ["b", "evil", "evil-too", "far"]);
    fixture.compiler.trusts_no_endpoint.store(false, Ordering::SeqCst);
    fixture.catalogue.recompile(Arc::clone(&fixture.compiler) as _);
    assert_eq!(fixture.ids(), ["a", "b", "evil", "evil-too", "far"]);
}

#[test]
fn r41_a_server_that_the_operators_settings_name_for_an_agent_is_not_taken_by_a_document_that_comes_first() {
    let kind = |name: &str, kind| SourceSpec { kind, ..test_spec(name) };
    let fixture = catalogue_with(vec![kind("registry", "registry")]);
    fixture.compiler.trusts_no_endpoint.store(true, Ordering::SeqCst);
    *fixture.compiler.additional_server.lock() = Some(("own", "https://second.example/x".parse().unwrap()));
    fixture.poll(
        0,
        vec![
            published_part("comes-first", "key:two", "second.example"),
            published_part("own", "key:one", "own.example"),
        ],
    );
    assert_eq!(fixture.ids(), ["own"]);
    assert!(fixture.rejections()[0].reasons[0].contains("another owner's agent"), "{:?}", fixture.rejections());
}

#[test]
fn r41_one_text_from_two_sources_is_compiled_for_each_of_its_writers() {
    let kind = |name: &str, kind| SourceSpec { kind, ..test_spec(name) };
    let fixture = catalogue_with(vec![kind("registry", "registry"), kind("agents", "files")]);
    fixture.poll(1, vec![published_part("a", "", "one.example")]);
    assert!(fixture.catalogue.load().get("a").unwrap().agent.source.is_operator());
    fixture.poll(0, vec![published_part("a", "key:two", "one.example")]);
    let source = Arc::clone(&fixture.catalogue.load().get("a").unwrap().agent.source);
    assert_eq!(
        source.publisher().map(|id| &**id),
        Some("key:two"),
        "the published document has precedence, and not the operator's trust"
    );
}

#[test]
fn r16_the_earlier_source_wins_an_id_and_the_other_is_reported_with_the_winners_name() {
    let fixture = catalogue_with(vec![test_spec("first"), test_spec("second"), test_spec("third")]);
    fixture.poll(2, vec![part_with_agents("3", &["same", "c"])]);
    fixture.poll(1, vec![part_with_agents("2", &["same", "b"])]);
    let third = fixture.rejections();
    assert_eq!(third[0].reasons, ["id: belongs to source second, which has precedence"]);
    fixture.poll(0, vec![part_with_agents("1", &["same"])]);
    assert_eq!(fixture.ids(), ["b", "c", "same"]);
    assert_eq!(fixture.catalogue.load().get("same").unwrap().agent.name, "same");
    let rejections = fixture.rejections();
    assert_eq!(rejections.iter().map(|rejection| &*rejection.part).collect::<Vec<_>>(), ["2", "3"]);
    assert!(
        rejections.iter().all(|rejection| rejection.reasons == ["id: belongs to source first, which has precedence"]),
        "{rejections:?}"
    );
    let compiled = fixture.compiler.count();
    fixture.poll(0, vec![FeedPart { name: "1".into(), update: PartUpdate::Removed }]);
    assert_eq!((fixture.ids().len(), fixture.rejections().len(), fixture.compiler.count()), (3, 1, compiled));
}

#[test]
fn r10_a_duplicate_id_in_one_source_is_served_by_no_source() {
    let fixture = catalogue_with(vec![test_spec("first"), test_spec("second")]);
    fixture.poll(0, vec![part_with_agents("1", &["same"]), part_with_agents("2", &["same"])]);
    fixture.poll(1, vec![part_with_agents("3", &["same"])]);
    assert!(fixture.ids().is_empty());
    assert_eq!(fixture.rejections().len(), 3);
}

#[test]
fn reordering_sources_changes_the_winner_without_recompiling() {
    let fixture = catalogue_with(vec![test_spec("first"), test_spec("second")]);
    fixture.poll(0, vec![part_with_agents("1", &["same"])]);
    fixture.poll(1, vec![part_with_agents("2", &["same", "b"])]);
    let compiled = fixture.compiler.count();
    let _ = fixture.catalogue.begin_generation(vec![test_spec("second"), test_spec("first")], Vec::new(), Vec::new());
    assert_eq!((fixture.ids(), fixture.compiler.count()), (vec!["b".to_owned(), "same".to_owned()], compiled));
    assert_eq!(&*fixture.rejections()[0].part, "1");
    let elsewhere = SourceSpec { location: "elsewhere".into(), ..test_spec("second") };
    let _ = fixture.catalogue.begin_generation(vec![elsewhere], Vec::new(), Vec::new());
    assert!(fixture.ids().is_empty(), "a source at another location is another source");
}

#[test]
fn a_new_snapshot_notifies_and_an_empty_poll_does_not() {
    let fixture = catalogue_with(vec![test_spec("only")]);
    let mut changed = fixture.catalogue.subscribe();
    changed.mark_unchanged();
    fixture.poll(0, vec![part_with_agents("1", &["a"])]);
    assert!(changed.has_changed().unwrap());
    changed.mark_unchanged();
    assert_eq!(fixture.poll(0, Vec::new()), IngestOutcome::Accepted { changed: false });
    assert_eq!(fixture.fail(0), IngestOutcome::Failed);
    assert!(!changed.has_changed().unwrap());
}

#[test]
fn a_great_loss_is_withheld_until_three_polls_over_the_confirmation_time_agree() {
    let fixture = catalogue_with(vec![guarded_spec("a", Duration::from_millis(300)), test_spec("b")]);
    assert_eq!(
        fixture.poll(0, vec![part_with_numbered_agents(0, 20)]),
        IngestOutcome::Accepted { changed: true },
        "a gain is never withheld"
    );
    assert_eq!(
        fixture.poll(0, vec![part_with_numbered_agents(0, 10)]),
        IngestOutcome::Accepted { changed: true },
        "half is not more than half"
    );
    assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 4)]), IngestOutcome::Withheld);
    assert_eq!((fixture.ids().len(), fixture.health(0).withheld_loss), (10, Some(6)));
    assert!(fixture.health(0).warning().unwrap().contains("6 of 10 agents"));
    for _ in 0..5 {
        assert_eq!(
            fixture.poll(0, Vec::new()),
            IngestOutcome::Withheld,
            "many polls do not replace the confirmation time"
        );
    }
    let began = Instant::now();
    while fixture.poll(0, Vec::new()) == IngestOutcome::Withheld {
        assert!(began.elapsed() < Duration::from_secs(20), "the update is withheld for ever");
    }
    assert_eq!((fixture.ids().len(), fixture.health(0).withheld_loss), (4, None));
}

#[test]
fn while_a_loss_is_withheld_parts_that_lose_nothing_take_effect() {
    let fixture = catalogue_with(vec![guarded_spec("a", Duration::from_secs(60))]);
    let lost = ["a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7"];
    let before = [("one", &lost[..]), ("two", &["b"]), ("three", &["c"])];
    fixture.poll(0, before.map(|(name, ids)| part_with_agents(name, ids)).into());
    assert_eq!(fixture.ids().len(), 10);
    // One owner removes its agents, another one adds an agent, and a third one takes an id of the first.
    let update = vec![
        FeedPart { name: "one".into(), update: PartUpdate::Removed },
        part_with_agents("two", &["b", "new"]),
        part_with_agents("three", &["c", "a0"]),
    ];
    assert_eq!(fixture.poll(0, update), IngestOutcome::Withheld);
    assert_eq!((fixture.ids().len(), fixture.health(0).withheld_loss), (11, Some(7)));
    for id in lost.iter().chain(&["b", "new", "c"]) {
        assert!(fixture.ids().contains(&(*id).to_owned()), "{id}");
    }
    fixture.catalogue.confirm_withheld_update("a");
    assert_eq!(fixture.ids(), ["a0", "b", "c", "new"]);
}

#[test]
fn an_empty_list_replaced_agents_and_invalid_documents_count_as_losses() {
    let part_with_invalid_documents = |count: usize| {
        let text = format!("[{}]", vec![r#"{"id": "agent-00", "version": 1}"#; count].join(","));
        let documents = document_parser::parse_documents(Path::new("a.json"), text.into()).unwrap();
        FeedPart { name: "list".into(), update: PartUpdate::Replaced(documents) }
    };
    for (before, after) in [
        (part_with_numbered_agents(0, 20), part_with_agents("list", &[])),
        (part_with_numbered_agents(0, 20), part_with_numbered_agents(20, 40)),
        (part_with_numbered_agents(0, 20), part_with_invalid_documents(20)),
        (part_with_numbered_agents(0, 20), FeedPart { name: "list".into(), update: PartUpdate::Removed }),
        (part_with_numbered_agents(0, 3), part_with_agents("list", &[])),
    ] {
        let fixture = catalogue_with(vec![guarded_spec("a", Duration::from_secs(60))]);
        fixture.poll(0, vec![before]);
        let count = fixture.ids().len();
        let description = format!("{after:?}");
        assert_eq!(fixture.poll(0, vec![after]), IngestOutcome::Withheld, "{description}");
        assert_eq!(fixture.ids().len(), count);
    }
    let fixture = catalogue_with(vec![guarded_spec("a", Duration::from_secs(60))]);
    fixture.poll(0, vec![part_with_agents("list", &["only"])]);
    assert_eq!(
        fixture.poll(0, vec![part_with_agents("list", &[])]),
        IngestOutcome::Accepted { changed: true },
        "the only agent may go"
    );
}

#[test]
fn recovery_is_accepted_at_once_and_a_failed_poll_restarts_the_count() {
    let fixture = catalogue_with(vec![guarded_spec("a", Duration::ZERO)]);
    fixture.poll(0, vec![part_with_numbered_agents(0, 20)]);
    for _ in 0..4 {
        assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 1)]), IngestOutcome::Withheld);
        assert_eq!(fixture.poll(0, Vec::new()), IngestOutcome::Withheld);
        assert_eq!(fixture.fail(0), IngestOutcome::Failed);
    }
    assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 21)]), IngestOutcome::Accepted { changed: true });
    assert_eq!((fixture.ids().len(), fixture.health(0).withheld_loss), (21, None));
}

#[test]
fn an_operator_can_confirm_a_withheld_loss_only() {
    let fixture = catalogue_with(vec![guarded_spec("a", Duration::from_secs(60)), test_spec("b")]);
    fixture.poll(0, vec![part_with_numbered_agents(0, 20)]);
    assert_eq!(fixture.catalogue.confirm_withheld_update("a"), Some(false));
    fixture.poll(0, vec![part_with_numbered_agents(0, 2)]);
    assert_eq!(
        (fixture.catalogue.confirm_withheld_update("unknown"), fixture.catalogue.confirm_withheld_update("b")),
        (None, Some(false))
    );
    assert_eq!(fixture.ids().len(), 20);
    assert_eq!(fixture.catalogue.confirm_withheld_update("a"), Some(true));
    assert_eq!((fixture.ids().len(), fixture.health(0).withheld_loss), (2, None));
}

#[test]
fn the_loss_guard_survives_a_new_generation_and_a_restart() {
    let fixture = catalogue_with(vec![guarded_spec("a", Duration::from_secs(60))]);
    fixture.poll(0, vec![part_with_numbered_agents(0, 20)]);
    fixture.poll(0, vec![part_with_numbered_agents(0, 2)]);
    let (generation, _) = fixture.catalogue.begin_generation(
        vec![guarded_spec("a", Duration::from_secs(60))],
        Vec::new(),
        vec![source_poll(0, vec![])],
    );
    let fixture = TestCatalogue { generation, ..fixture };
    assert_eq!(
        (fixture.ids().len(), fixture.health(0).withheld_loss),
        (20, Some(20)),
        "the first poll now reports nothing"
    );

    let fixture = TestCatalogue::new();
    let result = PollResult { parts: vec![part_with_numbered_agents(0, 20)], ..PollResult::default() };
    let stored = SourcePoll { source: 0, result, stored_at: Some(SystemTime::now()) };
    let empty = source_poll(0, vec![part_with_agents("list", &[])]);
    let (_, outcomes) =
        fixture.catalogue.begin_generation(vec![guarded_spec("a", Duration::from_secs(60))], vec![stored], vec![empty]);
    assert_eq!((outcomes.as_slice(), fixture.ids().len()), ([IngestOutcome::Withheld].as_slice(), 20));
    assert_eq!(fixture.compiler.count(), 20);
}

#[test]
fn the_first_poll_of_a_generation_removes_parts_it_does_not_report() {
    let fixture = catalogue_with(vec![test_spec("a")]);
    fixture.poll(0, vec![part_with_agents("1", &["a"]), part_with_agents("2", &["b"])]);
    fixture.poll(0, vec![part_with_agents("1", &["a", "c"])]);
    assert_eq!(fixture.ids(), ["a", "b", "c"], "later polls report changes only");
    let (generation, _) = fixture.catalogue.begin_generation(vec![test_spec("a")], Vec::new(), Vec::new());
    let fixture = TestCatalogue { generation, ..fixture };
    assert_eq!(fixture.fail(0), IngestOutcome::Failed);
    assert_eq!(fixture.ids().len(), 3, "a failed poll removes nothing");
    fixture.poll(0, vec![part_with_agents("1", &["a", "c"])]);
    assert_eq!(fixture.ids(), ["a", "c"]);
}

#[test]
fn stale_agents_are_removed_and_return_with_an_empty_successful_poll() {
    let spec = SourceSpec { max_staleness: Some(Duration::from_millis(200)), ..test_spec("a") };
    let fixture = catalogue_with(vec![spec, test_spec("b")]);
    fixture.poll(0, vec![part_with_agents("1", &["same", "a"])]);
    fixture.poll(1, vec![part_with_agents("2", &["same", "b"])]);
    fixture.catalogue.remove_stale_agents(fixture.generation);
    assert_eq!(fixture.ids().len(), 3);
    let began = Instant::now();
    while !fixture.health(0).stale {
        assert!(began.elapsed() < Duration::from_secs(20), "the source never becomes stale");
        fixture.fail(0);
        fixture.catalogue.remove_stale_agents(fixture.generation);
    }
    assert_eq!(fixture.ids(), ["b", "same"], "the later source's agent is served instead");
    let health = fixture.health(0);
    assert!(health.stale && health.warning().unwrap().contains("not served (down)"), "{health:?}");
    let compiled = fixture.compiler.count();
    assert_eq!(fixture.poll(0, Vec::new()), IngestOutcome::Accepted { changed: true });
    assert_eq!((fixture.ids().len(), fixture.compiler.count(), fixture.health(0).warning()), (3, compiled, None));
}

#[test]
fn a_poll_with_more_than_max_agents_is_rejected_as_a_whole() {
    let fixture = catalogue_with(vec![SourceSpec { max_agents: 5, ..test_spec("a") }]);
    fixture.poll(0, vec![part_with_numbered_agents(0, 4)]);
    assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 6)]), IngestOutcome::Rejected);
    assert_eq!(
        fixture.poll(0, vec![part_with_agents("another", &["x", "y"])]),
        IngestOutcome::Rejected,
        "the parts count together"
    );
    assert!(fixture.health(0).error.unwrap().contains("at most 5"));
    assert_eq!(fixture.ids().len(), 4);
    assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 5)]), IngestOutcome::Accepted { changed: true });
    assert_eq!(fixture.health(0).error, None);
}

/// A part with documents of these ids and names.
fn list_part(name: &str, agents: &[(&str, &str)]) -> FeedPart {
    let documents = agents.iter().map(|(id, name)| {
        let text = json!({"id": id, "name": name, "endpoint": "https://x.example/"}).to_string();
        RawDocument::new(sha256(text.as_bytes()), DocumentBody::Text(text.into()))
    });
    FeedPart { name: name.into(), update: PartUpdate::Replaced(documents.collect()) }
}

fn poll_of_lists(lists: &[&str], parts: Vec<FeedPart>) -> SourcePoll {
    let lists = lists.iter().map(|name| (*name).into()).collect();
    SourcePoll { source: 0, result: PollResult { parts, lists, ..PollResult::default() }, stored_at: None }
}

#[test]
fn r62_the_earlier_list_of_a_source_wins_an_id_and_equal_documents_are_one() {
    let fixture = catalogue_with(vec![test_spec("catalog")]);
    let parts = vec![
        list_part("own", &[("good", "Own"), ("twice", "One"), ("twice", "Two")]),
        list_part("a-nested", &[("good", "Evil"), ("shared", "Shared"), ("twice", "Three")]),
        list_part("b-nested", &[("shared", "Shared"), ("other", "Other")]),
    ];
    let lists = ["own", "a-nested", "b-nested"];
    fixture.catalogue.ingest(fixture.generation, vec![poll_of_lists(&lists, parts)]);
    assert_eq!(fixture.ids(), ["good", "other", "shared"]);
    let name_of = |id: &str| fixture.catalogue.load().get(id).unwrap().agent.name.clone();
    assert_eq!(name_of("good"), "Own");
    let rejections = fixture.rejections();
    let reasons: Vec<String> = rejections.iter().map(|rejection| rejection.to_string()).collect();
    assert_eq!(rejections.len(), 4, "{reasons:?}");
    let of_evil = reasons.iter().find(|reason| reason.starts_with("a-nested[0]")).expect("the loser is rejected");
    assert!(of_evil.contains("belongs to the list own, which has precedence"), "{of_evil}");
    // The order of the lists decides, without any new document.
    let reordered = poll_of_lists(&["own", "b-nested", "a-nested"], Vec::new());
    assert_eq!(
        fixture.catalogue.ingest(fixture.generation, vec![reordered]),
        [IngestOutcome::Accepted { changed: true }]
    );
    let reordered = poll_of_lists(&["a-nested", "own", "b-nested"], Vec::new());
    fixture.catalogue.ingest(fixture.generation, vec![reordered]);
    assert_eq!(name_of("good"), "Evil");
}

#[test]
fn r62_a_list_with_too_many_agents_is_withheld_and_the_lists_before_it_stay() {
    let fixture = catalogue_with(vec![SourceSpec { max_agents: 3, ..test_spec("catalog") }]);
    let lists = ["own", "one", "two"];
    let part = |name: &str, agents: &[(&str, &str)]| list_part(name, agents);
    let parts = vec![part("own", &[("a", "A")]), part("one", &[("b", "B")]), part("two", &[("c", "C"), ("d", "D")])];
    fixture.catalogue.ingest(fixture.generation, vec![poll_of_lists(&lists, parts)]);
    assert_eq!(fixture.ids(), ["a", "b"]);
    let health = fixture.health(0);
    assert!(health.error.is_none() && health.is_read, "{health:?}");
    let warning = health.warning().expect("a warning");
    assert!(warning.contains("two: with it the source would have more than 3 agents"), "{warning}");
}

#[test]
fn r62_the_loss_guard_counts_agents_that_no_list_serves_any_more() {
    let fixture = catalogue_with(vec![guarded_spec("catalog", Duration::from_secs(60))]);
    let ids: Vec<String> = numbered_ids(0, 20);
    let agents = |name: &'static str| ids.iter().map(|id| (id.as_str(), name)).collect::<Vec<_>>();
    let lists = ["own", "nested"];
    let parts = vec![list_part("own", &agents("Own")), list_part("nested", &agents("Copy"))];
    fixture.catalogue.ingest(fixture.generation, vec![poll_of_lists(&lists, parts)]);
    // The copies were never served.
    let outcome =
        fixture.catalogue.ingest(fixture.generation, vec![poll_of_lists(&lists, vec![list_part("nested", &[])])]);
    assert!(matches!(outcome[0], IngestOutcome::Accepted { .. }), "{outcome:?}");
    let outcome =
        fixture.catalogue.ingest(fixture.generation, vec![poll_of_lists(&lists, vec![list_part("own", &[])])]);
    assert_eq!(outcome, [IngestOutcome::Withheld]);
}

#[test]
fn r62_a_nested_list_that_is_not_read_after_a_restart_keeps_its_agents_from_disk() {
    let spec = || vec![test_spec("catalog")];
    let lists = ["own", "nested"];
    let stored = SourcePoll {
        stored_at: Some(SystemTime::now()),
        ..poll_of_lists(
            &lists,
            vec![list_part("own", &[("a", "A")]), list_part("nested", &[("a", "Evil"), ("b", "B")])],
        )
    };
    let fixture = TestCatalogue::new();
    let (generation, _) = fixture.catalogue.begin_generation(spec(), Vec::new(), vec![stored]);
    let fixture = TestCatalogue { generation, ..fixture };
    let unreadable = FeedPart { name: "nested".into(), update: PartUpdate::Unreadable("it is down".to_owned()) };
    fixture.catalogue.ingest(
        fixture.generation,
        vec![poll_of_lists(&lists, vec![list_part("own", &[("a", "A"), ("c", "C")]), unreadable])],
    );
    assert_eq!(fixture.ids(), ["a", "b", "c"]);
    assert_eq!(fixture.catalogue.load().get("a").unwrap().agent.name, "A");
    let stored = fixture.catalogue.agents_of_source(fixture.generation, 0).unwrap();
    assert_eq!(stored.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), lists, "stored in order of precedence");
    let health = fixture.health(0);
    assert!(health.is_read && health.unreadable_parts == ["nested: it is down"], "{health:?}");
}

#[test]
fn a_poll_that_finds_nothing_new_is_ingested_at_once_unless_something_of_its_source_is_pending() {
    let fixture = catalogue_with(vec![guarded_spec("list", Duration::from_secs(3_600))]);
    let unchanged = || vec![SourcePoll { source: 0, result: PollResult::default(), stored_at: None }];
    let ingest_unchanged = |polls| fixture.catalogue.ingest_unchanged(fixture.generation, polls);
    assert!(ingest_unchanged(unchanged()).is_err(), "the source was not read yet");
    fixture.poll(0, vec![part_with_numbered_agents(0, 10)]);
    let first = fixture.health(0).last_success;
    assert_eq!(ingest_unchanged(unchanged()).unwrap(), [IngestOutcome::Accepted { changed: false }]);
    assert!(fixture.health(0).last_success > first);
    for result in [
        PollResult::failed("down"),
        PollResult { replaces_all: true, ..PollResult::default() },
        PollResult { parts: vec![part_with_numbered_agents(0, 9)], ..PollResult::default() },
    ] {
        assert!(ingest_unchanged(vec![SourcePoll { source: 0, result, stored_at: None }]).is_err());
    }
    // Polls confirm a loss that is withheld, and a failure is over when a poll succeeds again.
    assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 2)]), IngestOutcome::Withheld);
    assert!(ingest_unchanged(unchanged()).is_err());
    assert_eq!(fixture.poll(0, vec![part_with_numbered_agents(0, 10)]), IngestOutcome::Accepted { changed: true });
    fixture.fail(0);
    assert!(fixture.health(0).error.is_some());
    assert!(ingest_unchanged(unchanged()).is_ok());
    assert!(fixture.health(0).error.is_none());
}
