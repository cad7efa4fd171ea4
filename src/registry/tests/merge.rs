//! Several sources: precedence, the loss guard, and staleness.

use super::*;
use std::time::SystemTime;

/// A catalogue with these sources, and its generation.
fn desk(origins: Vec<Origin>) -> Desk {
    let desk = Desk::new();
    let (era, _) = desk.catalogue.begin(origins, Vec::new(), Vec::new());
    Desk { era, ..desk }
}

fn careful(name: &str, hold_for: Duration) -> Origin {
    Origin { hold: Some((0.5, hold_for)), ..origin(name) }
}

fn whole(name: &str, ids: &[&str]) -> Part {
    let documents = read::documents(Path::new("a.json"), agents(ids).into()).unwrap();
    Part { name: name.into(), news: News::Whole(documents) }
}

impl Desk {
    fn says(&self, source: usize, parts: Vec<Part>) -> Verdict {
        self.catalogue.apply(self.era, vec![look(source, parts)])[0]
    }

    fn fails(&self, source: usize) -> Verdict {
        let failed = Look { source, change: Change::failed("down"), remembered: None };
        self.catalogue.apply(self.era, vec![failed])[0]
    }

    fn health(&self, source: usize) -> SourceHealth {
        self.catalogue.sources()[source].clone()
    }
}

fn numbered(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|number| format!("agent-{number:02}")).collect()
}

fn many(from: usize, to: usize) -> Part {
    let ids = numbered(from, to);
    whole("list", &ids.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn r16_the_earlier_source_wins_an_id_and_the_other_is_reported_with_the_winners_name() {
    let desk = desk(vec![origin("first"), origin("second"), origin("third")]);
    desk.says(2, vec![whole("3", &["same", "c"])]);
    desk.says(1, vec![whole("2", &["same", "b"])]);
    let third = desk.refused();
    assert_eq!(third[0].reasons, ["id: belongs to source second, which has precedence"]);
    desk.says(0, vec![whole("1", &["same"])]);
    assert_eq!(desk.ids(), ["b", "c", "same"]);
    assert_eq!(desk.catalogue.load().get("same").unwrap().agent.name, "same");
    let refused = desk.refused();
    assert_eq!(refused.iter().map(|one| &*one.source).collect::<Vec<_>>(), ["2", "3"]);
    assert!(
        refused.iter().all(|one| one.reasons == ["id: belongs to source first, which has precedence"]),
        "{refused:?}"
    );
    let compiled = desk.compiler.count();
    desk.says(0, vec![Part { name: "1".into(), news: News::Gone }]);
    assert_eq!((desk.ids().len(), desk.refused().len(), desk.compiler.count()), (3, 1, compiled));
}

#[test]
fn r10_a_duplicate_id_in_one_source_is_served_by_no_source() {
    let desk = desk(vec![origin("first"), origin("second")]);
    desk.says(0, vec![whole("1", &["same"]), whole("2", &["same"])]);
    desk.says(1, vec![whole("3", &["same"])]);
    assert!(desk.ids().is_empty());
    assert_eq!(desk.refused().len(), 3);
}

#[test]
fn reordering_sources_changes_the_winner_without_recompiling() {
    let desk = desk(vec![origin("first"), origin("second")]);
    desk.says(0, vec![whole("1", &["same"])]);
    desk.says(1, vec![whole("2", &["same", "b"])]);
    let compiled = desk.compiler.count();
    let _ = desk.catalogue.begin(vec![origin("second"), origin("first")], Vec::new(), Vec::new());
    assert_eq!((desk.ids(), desk.compiler.count()), (vec!["b".to_owned(), "same".to_owned()], compiled));
    assert_eq!(&*desk.refused()[0].source, "1");
    let elsewhere = Origin { place: "elsewhere".into(), ..origin("second") };
    let _ = desk.catalogue.begin(vec![elsewhere], Vec::new(), Vec::new());
    assert!(desk.ids().is_empty(), "a source at another location is another source");
}

#[test]
fn a_new_snapshot_notifies_and_an_empty_poll_does_not() {
    let desk = desk(vec![origin("only")]);
    let mut changed = desk.catalogue.changed();
    changed.mark_unchanged();
    let before = desk.catalogue.load().at;
    desk.says(0, vec![whole("1", &["a"])]);
    assert!(changed.has_changed().unwrap() && desk.catalogue.load().at >= before);
    changed.mark_unchanged();
    assert_eq!(desk.says(0, Vec::new()), Verdict::Taken { changed: false });
    assert_eq!(desk.fails(0), Verdict::Failed);
    assert!(!changed.has_changed().unwrap());
}

#[test]
fn a_great_loss_is_withheld_until_three_polls_over_the_hold_time_agree() {
    let desk = desk(vec![careful("a", Duration::from_millis(300)), origin("b")]);
    assert_eq!(desk.says(0, vec![many(0, 20)]), Verdict::Taken { changed: true }, "a gain is never withheld");
    assert_eq!(desk.says(0, vec![many(0, 10)]), Verdict::Taken { changed: true }, "half is not more than half");
    assert_eq!(desk.says(0, vec![many(0, 4)]), Verdict::Held);
    assert_eq!((desk.ids().len(), desk.health(0).losing), (10, Some(6)));
    assert!(desk.health(0).warning().unwrap().contains("6 of 10 agents"));
    for _ in 0..5 {
        assert_eq!(desk.says(0, Vec::new()), Verdict::Held, "many polls do not replace the hold time");
    }
    let began = Instant::now();
    while desk.says(0, Vec::new()) == Verdict::Held {
        assert!(began.elapsed() < Duration::from_secs(20), "the update is withheld for ever");
    }
    assert_eq!((desk.ids().len(), desk.health(0).losing), (4, None));
}

#[test]
fn an_empty_list_replaced_agents_and_invalid_documents_count_as_losses() {
    let bad = |count: usize| {
        let text = format!("[{}]", vec![r#"{"id": "agent-00", "version": 1}"#; count].join(","));
        let documents = read::documents(Path::new("a.json"), text.into()).unwrap();
        Part { name: "list".into(), news: News::Whole(documents) }
    };
    for (before, after) in [
        (many(0, 20), whole("list", &[])),
        (many(0, 20), many(20, 40)),
        (many(0, 20), bad(20)),
        (many(0, 20), Part { name: "list".into(), news: News::Gone }),
        (many(0, 3), whole("list", &[])),
    ] {
        let desk = desk(vec![careful("a", Duration::from_secs(60))]);
        desk.says(0, vec![before]);
        let count = desk.ids().len();
        let shown = format!("{after:?}");
        assert_eq!(desk.says(0, vec![after]), Verdict::Held, "{shown}");
        assert_eq!(desk.ids().len(), count);
    }
    let desk = desk(vec![careful("a", Duration::from_secs(60))]);
    desk.says(0, vec![whole("list", &["only"])]);
    assert_eq!(desk.says(0, vec![whole("list", &[])]), Verdict::Taken { changed: true }, "the only agent may go");
}

#[test]
fn recovery_is_accepted_at_once_and_a_failed_poll_restarts_the_count() {
    let desk = desk(vec![careful("a", Duration::ZERO)]);
    desk.says(0, vec![many(0, 20)]);
    for _ in 0..4 {
        assert_eq!(desk.says(0, vec![many(0, 1)]), Verdict::Held);
        assert_eq!(desk.says(0, Vec::new()), Verdict::Held);
        assert_eq!(desk.fails(0), Verdict::Failed);
    }
    assert_eq!(desk.says(0, vec![many(0, 21)]), Verdict::Taken { changed: true });
    assert_eq!((desk.ids().len(), desk.health(0).losing), (21, None));
}

#[test]
fn an_operator_can_confirm_a_withheld_loss_only() {
    let desk = desk(vec![careful("a", Duration::from_secs(60)), origin("b")]);
    desk.says(0, vec![many(0, 20)]);
    assert_eq!(desk.catalogue.confirm("a"), Some(false));
    desk.says(0, vec![many(0, 2)]);
    assert_eq!((desk.catalogue.confirm("nobody"), desk.catalogue.confirm("b")), (None, Some(false)));
    assert_eq!(desk.ids().len(), 20);
    assert_eq!(desk.catalogue.confirm("a"), Some(true));
    assert_eq!((desk.ids().len(), desk.health(0).losing), (2, None));
}

#[test]
fn the_loss_guard_survives_a_new_generation_and_a_restart() {
    let desk = desk(vec![careful("a", Duration::from_secs(60))]);
    desk.says(0, vec![many(0, 20)]);
    desk.says(0, vec![many(0, 2)]);
    let (era, _) = desk.catalogue.begin(vec![careful("a", Duration::from_secs(60))], Vec::new(), vec![look(0, vec![])]);
    let desk = Desk { era, ..desk };
    assert_eq!((desk.ids().len(), desk.health(0).losing), (20, Some(20)), "the first poll now reports nothing");

    let desk = Desk::new();
    let change = Change { parts: vec![many(0, 20)], ..Change::default() };
    let remembered = Look { source: 0, change, remembered: Some(SystemTime::now()) };
    let empty = look(0, vec![whole("list", &[])]);
    let (_, verdicts) =
        desk.catalogue.begin(vec![careful("a", Duration::from_secs(60))], vec![remembered], vec![empty]);
    assert_eq!((verdicts.as_slice(), desk.ids().len()), ([Verdict::Held].as_slice(), 20));
    assert_eq!(desk.compiler.count(), 20);
}

#[test]
fn the_first_poll_of_a_generation_removes_parts_it_does_not_report() {
    let desk = desk(vec![origin("a")]);
    desk.says(0, vec![whole("1", &["a"]), whole("2", &["b"])]);
    desk.says(0, vec![whole("1", &["a", "c"])]);
    assert_eq!(desk.ids(), ["a", "b", "c"], "later polls report changes only");
    let (era, _) = desk.catalogue.begin(vec![origin("a")], Vec::new(), Vec::new());
    let desk = Desk { era, ..desk };
    assert_eq!(desk.fails(0), Verdict::Failed);
    assert_eq!(desk.ids().len(), 3, "a failed poll removes nothing");
    desk.says(0, vec![whole("1", &["a", "c"])]);
    assert_eq!(desk.ids(), ["a", "c"]);
}

#[test]
fn stale_agents_are_removed_and_return_with_an_empty_successful_poll() {
    let stale = Origin { stale_after: Some(Duration::from_millis(200)), ..origin("a") };
    let desk = desk(vec![stale, origin("b")]);
    desk.says(0, vec![whole("1", &["same", "a"])]);
    desk.says(1, vec![whole("2", &["same", "b"])]);
    desk.catalogue.expire(desk.era);
    assert_eq!(desk.ids().len(), 3);
    let began = Instant::now();
    while !desk.health(0).stale {
        assert!(began.elapsed() < Duration::from_secs(20), "the source never becomes stale");
        desk.fails(0);
        desk.catalogue.expire(desk.era);
    }
    assert_eq!(desk.ids(), ["b", "same"], "the later source's agent is served instead");
    let health = desk.health(0);
    assert!(health.stale && health.warning().unwrap().contains("not served (down)"), "{health:?}");
    let compiled = desk.compiler.count();
    assert_eq!(desk.says(0, Vec::new()), Verdict::Taken { changed: true });
    assert_eq!((desk.ids().len(), desk.compiler.count(), desk.health(0).warning()), (3, compiled, None));
}

#[test]
fn a_poll_with_more_than_max_agents_is_rejected_as_a_whole() {
    let desk = desk(vec![Origin { most: 5, ..origin("a") }]);
    desk.says(0, vec![many(0, 4)]);
    assert_eq!(desk.says(0, vec![many(0, 6)]), Verdict::Refused);
    assert_eq!(desk.says(0, vec![whole("another", &["x", "y"])]), Verdict::Refused, "the parts count together");
    assert!(desk.health(0).trouble.unwrap().contains("at most 5"));
    assert_eq!(desk.ids().len(), 4);
    assert_eq!(desk.says(0, vec![many(0, 5)]), Verdict::Taken { changed: true });
    assert_eq!(desk.health(0).trouble, None);
}
