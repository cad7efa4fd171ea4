//! Tests of the recent refusals: their bounds, and what a look returns.

use super::*;
use crate::{fault::FaultCode, values::ClientKey};
use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

fn decision(id: &str) -> Decision {
    Decision {
        id: id.to_owned(),
        at: SystemTime::now(),
        duration: Duration::from_millis(1),
        target: Some(target(http::Method::POST, "/agents/a/invoke")),
        agent: None,
        operation: None,
        caller: Some("key:team-a".into()),
        tier: None,
        code: FaultCode::NotFound,
        status: 404,
        step: DecisionStep::Authorization,
        rule: DecidingRule::NoGrant,
        refusing_agent: None,
        rules: None,
        message: "The agent was not found".into(),
        detail: None,
    }
}

fn target(method: http::Method, path: &str) -> DecisionTarget {
    DecisionTarget { method, path: path.into() }
}

fn remembered(recent: &RecentDecisions, ids: impl Iterator<Item = String>) -> usize {
    ids.filter(|id| !recent.find(id).is_empty()).count()
}

#[test]
fn one_caller_has_at_most_a_quarter_of_the_refusals_and_replaces_its_own() {
    let recent = RecentDecisions::default();
    recent.set_max(100);
    for at in 0..40 {
        recent.record(ClientKey::new(at), decision(&format!("quiet-{at}")));
    }
    for at in 0..10_000 {
        recent.record(ClientKey::new(1_000), decision(&format!("flood-{at}")));
    }
    assert_eq!(remembered(&recent, (0..40).map(|at| format!("quiet-{at}"))), 40);
    assert_eq!(remembered(&recent, (0..10_000).map(|at| format!("flood-{at}"))), 25);
    assert_eq!(recent.find("flood-9999").len(), 1, "the newest are kept");
}

#[test]
fn the_decisions_of_an_agent_are_found_newest_first_up_to_a_bound() {
    let recent = RecentDecisions::default();
    recent.set_max(1_000);
    for at in 0..60_u64 {
        let agent = if at % 2 == 0 { "even" } else { "odd" };
        recent.record(ClientKey::new(at), Decision { agent: agent.parse().ok(), ..decision(&at.to_string()) });
    }
    recent.record(ClientKey::new(99), decision("hidden"));
    let ids: Vec<String> = recent.find_of_agent("odd").into_iter().map(|decision| decision.id).collect();
    let expected: Vec<String> = (0..20).map(|at| (59 - 2 * at).to_string()).collect();
    assert_eq!(ids, expected);
    assert!(recent.find_of_agent("eve").is_empty() && recent.find_of_agent("").is_empty());
}

#[test]
fn of_a_long_method_the_beginning_is_kept() {
    let recent = RecentDecisions::default();
    recent.set_max(4);
    let kept = |length: usize| {
        let method = "M".repeat(length).parse().unwrap();
        let target = Some(target(method, "/"));
        recent.record(ClientKey::new(1), Decision { target, ..decision(&length.to_string()) });
        recent.find(&length.to_string())[0].target.as_ref().unwrap().method.as_str().len()
    };
    assert_eq!([4, 32, 33, 60_000].map(kept), [4, 32, 32, 32]);
}

#[test]
fn the_oldest_refusal_of_many_callers_is_replaced_and_none_is_kept_without_room() {
    let recent = RecentDecisions::default();
    recent.record(ClientKey::new(1), decision("before"));
    assert!(!recent.is_enabled() && recent.find("before").is_empty(), "0 remembers none");
    recent.set_max(10);
    for at in 0..25 {
        recent.record(ClientKey::new(at), decision(&at.to_string()));
    }
    let kept: Vec<u64> = (0..25).filter(|at| !recent.find(&at.to_string()).is_empty()).collect();
    assert_eq!(kept, (15..25).collect::<Vec<_>>());
    recent.set_max(3);
    assert_eq!(remembered(&recent, (0..25).map(|at| at.to_string())), 3);
    recent.set_max(0);
    assert_eq!(remembered(&recent, (0..25).map(|at| at.to_string())), 0);
}

#[test]
fn calls_that_share_an_id_are_all_found_up_to_a_bound_and_long_paths_are_cut() {
    let recent = RecentDecisions::default();
    recent.set_max(1_000);
    for client in 0..100 {
        let target = Some(target(http::Method::POST, &format!("/{}", "é".repeat(400))));
        let (message, detail) = ("é".repeat(1_000).into(), Some("é".repeat(10_000)));
        recent.record(ClientKey::new(client), Decision { target, message, detail, ..decision("same") });
    }
    let found = recent.find("same");
    assert_eq!(found.len(), 20);
    for decision in &found {
        let (target, detail) = (decision.target.as_ref().unwrap(), decision.detail.as_ref().unwrap());
        assert!([target.path.len(), decision.message.len() / 4, detail.len() / 4].iter().all(|length| *length <= 256));
    }
}

/// A configuration whose every rule stands in one line.
#[derive(Debug)]
struct OneLine(u32);

impl LocateRule for OneLine {
    fn locate(&self, _: &DecidingRule, _: RuleScope<'_>, _: &dyn LocateDocument) -> LocatedRule {
        LocatedRule { line: Some(format!("gatepost.yaml:{}", self.0)), ..LocatedRule::without_line("access.grants[0]") }
    }
}

struct NoDocuments;

impl LocateDocument for NoDocuments {
    fn locate_document(&self, _: &str, _: &str) -> Option<DocumentPlace> {
        None
    }

    fn locate_rejection(&self, _: &str) -> Option<RejectionPlace> {
        None
    }
}

#[test]
fn a_decision_keeps_the_configuration_under_which_its_call_began() {
    let recent = RecentDecisions::default();
    recent.set_max(100);
    recent.set_rules(Arc::new(OneLine(1)));
    recent.record(ClientKey::new(1), decision("before"));
    let began_at = Instant::now();
    // A clock may be coarse.
    while began_at.elapsed() < Duration::from_millis(2) {
        std::thread::yield_now();
    }
    recent.set_rules(Arc::new(OneLine(2)));
    let long = Decision { duration: began_at.elapsed(), ..decision("long") };
    recent.record(ClientKey::new(1), long);
    recent.record(ClientKey::new(1), Decision { duration: Duration::ZERO, ..decision("after") });
    let in_force = recent.rules_in_force().unwrap();
    let view = DecisionView {
        caller: None,
        rules_in_force: &in_force,
        documents: &NoDocuments,
        redact: |text| Cow::Borrowed(text),
    };
    for (id, line, has_changed) in [("before", 1, true), ("long", 1, true), ("after", 2, false)] {
        let shown = recent.find(id)[0].to_json(&view);
        assert_eq!(shown["line"], format!("gatepost.yaml:{line}"), "{shown}");
        assert_eq!(shown.get("configuration_changed_since").is_some(), has_changed, "{shown}");
    }
    // The configurations are bounded, and a decision keeps its own.
    (3..100).for_each(|line| recent.set_rules(Arc::new(OneLine(line))));
    assert_eq!(recent.find("before")[0].to_json(&view)["line"], "gatepost.yaml:1");
}
