//! One call a key: the first is made, whoever comes again waits or is given its answer, and memory is bounded.

use super::*;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

fn config() -> Config {
    Config::default()
}

fn names() -> (Arc<str>, Arc<str>) {
    ("key:one".into(), "agent".into())
}

fn enter(once: &Arc<Once>, key: &str, body: &str) -> Result<Entered> {
    let (caller, agent) = names();
    once.enter((&caller, &agent), key, digest(&[body.as_bytes()]))
}

fn first(once: &Arc<Once>, key: &str, body: &str) -> Ticket {
    match enter(once, key, body).unwrap() {
        Entered::First(ticket) => ticket,
        other => panic!("{key}: {other:?}"),
    }
}

fn whole(body: &str) -> Answer {
    Answer::Whole { status: StatusCode::OK, headers: HeaderMap::new(), body: Bytes::from(body.to_owned()) }
}

fn known(once: &Arc<Once>, key: &str, body: &str) -> Answer {
    match enter(once, key, body).unwrap() {
        Entered::Known(answer) => answer,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test]
async fn r45_the_first_answer_is_given_again_and_whoever_waits_gets_it() {
    let once = Once::new(&config());
    let ticket = first(&once, "k", "a");
    let Entered::Waits(waiting) = enter(&once, "k", "a").unwrap() else { panic!("it is under way") };
    ticket.answered(whole("done"));
    assert!(matches!(waiting.answer().await, Some(Answer::Whole { body, .. }) if body == "done"));
    assert!(matches!(known(&once, "k", "a"), Answer::Whole { body, .. } if body == "done"));
}

#[test]
fn r45_another_body_or_agent_or_caller_is_another_matter() {
    let once = Once::new(&config());
    let ticket = first(&once, "k", "a");
    assert_eq!(enter(&once, "k", "b").unwrap_err().code(), Code::IdempotencyMismatch);
    ticket.answered(whole("done"));
    assert_eq!(enter(&once, "k", "b").unwrap_err().code(), Code::IdempotencyMismatch);
    let (caller, agent) = names();
    let (other, elsewhere): (Arc<str>, Arc<str>) = ("key:two".into(), "other".into());
    for whose in [(&other, &agent), (&caller, &elsewhere)] {
        assert!(matches!(once.enter(whose, "k", digest(&[b"b"])).unwrap(), Entered::First(_)));
    }
    assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]), "parts are told apart");
}

#[tokio::test]
async fn r45_a_call_that_never_reached_the_agent_may_be_made_by_whoever_waits() {
    let once = Once::new(&config());
    let ticket = first(&once, "k", "a");
    let Entered::Waits(waiting) = enter(&once, "k", "a").unwrap() else { panic!("it is under way") };
    drop(ticket);
    assert!(waiting.answer().await.is_none());
    first(&once, "k", "other body").answered(whole("done"));
    assert_eq!(once.held().0, 1);
}

#[test]
fn r45_an_answer_that_is_too_large_is_not_kept_and_that_is_known() {
    let once = Once::new(&Config { max_answer: "10B".parse().unwrap(), ..config() });
    first(&once, "k", "a").answered(whole("much longer than that"));
    assert!(matches!(known(&once, "k", "a"), Answer::Unkept));
}

#[test]
fn what_is_remembered_is_bounded_in_number_and_bytes_and_what_is_under_way_stays() {
    let once = Once::new(&Config { most: 3, ..config() });
    let running = first(&once, "running", "a");
    for key in ["k1", "k2", "k3", "k4"] {
        first(&once, key, "a").answered(whole("done"));
    }
    assert_eq!(once.held().0, 3);
    assert!(matches!(enter(&once, "running", "a").unwrap(), Entered::Waits(_)));
    let (_one, _two) = (first(&once, "r2", "a"), first(&once, "r3", "a"));
    assert_eq!(enter(&once, "r4", "a").unwrap_err().code(), Code::Overloaded);
    running.answered(whole("done"));
    assert!(matches!(known(&once, "running", "a"), Answer::Whole { .. }), "its own place is enough for its answer");

    let once = Once::new(&Config { size: "8KiB".parse().unwrap(), ..config() });
    for number in 0..100 {
        first(&once, &format!("k{number}"), "a").answered(whole(&"x".repeat(1_000)));
        assert!(once.held().1 <= 8 << 10);
    }
    assert!(once.held().0 >= 4, "{:?}", once.held());
}

#[test]
fn r45_one_callers_large_answers_make_nobody_elses_call_happen_twice() {
    let once = Once::new(&Config { size: "64KiB".parse().unwrap(), ..config() });
    first(&once, "early", "a").answered(whole("done"));
    for number in 0..50 {
        first(&once, &format!("k{number}"), "a").answered(whole(&"x".repeat(10_000)));
        assert!(once.held().1 <= 64 << 10);
    }
    assert!(matches!(known(&once, "early", "a"), Answer::Unkept), "it is known that it was made");
    assert_eq!(enter(&once, "early", "b").unwrap_err().code(), Code::IdempotencyMismatch);
    assert!(matches!(known(&once, "k49", "a"), Answer::Whole { .. }), "the newest are kept");
    let once = Once::new(&Config { size: "2KiB".parse().unwrap(), ..config() });
    first(&once, "early", "a").answered(whole("done"));
    first(&once, "large", "a").answered(whole(&"x".repeat(10_000)));
    assert!(matches!(known(&once, "early", "a"), Answer::Whole { .. }), "what never fits displaces nothing");
}

#[test]
fn what_is_old_is_forgotten() {
    let once = Once::new(&config());
    first(&once, "k", "a").answered(whole("done"));
    once.reconfigure(&Config { keep: "0s".parse().unwrap(), ..config() });
    assert!(!once.is_on());
    assert!(matches!(enter(&once, "k", "b").unwrap(), Entered::First(_)));
    assert_eq!(once.held(), (0, 0));
}

#[test]
fn r45_a_key_is_1_to_255_visible_characters_in_one_field() {
    let with = |values: &[&[u8]]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FIELD, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    };
    assert_eq!(key(&with(&[])).unwrap(), None);
    assert_eq!(key(&with(&[b"a-1"])).unwrap(), Some("a-1"));
    assert!(key(&with(&["x".repeat(255).as_bytes()])).is_ok());
    let long = "x".repeat(256);
    let bad: [&[&[u8]]; 6] = [&[b""], &[b"a b"], &[b"\xff"], &[b"a\tb"], &[long.as_bytes()], &[b"a", b"a"]];
    for values in bad {
        assert_eq!(key(&with(values)).unwrap_err().code(), Code::InvalidInput, "{values:?}");
    }
}
