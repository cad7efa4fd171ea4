//! Tests of the recent refusals: their bounds, and what a look returns.

use super::*;
use crate::{fault::FaultCode, values::ClientKey};
use std::time::{Duration, SystemTime};

fn decision(id: &str) -> Decision {
    Decision {
        id: id.to_owned(),
        at: SystemTime::now(),
        duration: Duration::from_millis(1),
        method: http::Method::POST,
        path: "/agents/a/invoke".into(),
        agent: None,
        operation: None,
        caller: Some("key:team-a".into()),
        tier: None,
        code: FaultCode::NotFound,
        status: 404,
        step: DecisionStep::Authorization,
        rule: DecidingRule::NoGrant,
    }
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
fn of_a_long_method_the_beginning_is_kept() {
    let recent = RecentDecisions::default();
    recent.set_max(4);
    let kept = |length: usize| {
        let method = "M".repeat(length).parse().unwrap();
        recent.record(ClientKey::new(1), Decision { method, ..decision(&length.to_string()) });
        recent.find(&length.to_string())[0].method.as_str().len()
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
        let path = format!("/{}", "é".repeat(400)).into();
        recent.record(ClientKey::new(client), Decision { path, ..decision("same") });
    }
    let found = recent.find("same");
    assert_eq!(found.len(), 20);
    assert!(found.iter().all(|decision| decision.path.len() <= 256), "{}", found[0].path.len());
}
