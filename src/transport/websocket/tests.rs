//! What is sent and asked for, without a connection.

use super::{
    answer::is_failure,
    ask::{Wants, message},
    settings::Frames,
};
use ::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;

fn accept(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_str(value).unwrap());
    headers
}

#[test]
fn r80_the_form_of_an_answer_is_what_accept_prefers() {
    for (value, wants) in [
        ("application/json", Wants::Document),
        ("*/*", Wants::Document),
        ("text/event-stream", Wants::Events),
        ("application/x-ndjson", Wants::Lines),
        ("application/jsonl", Wants::Lines),
        ("application/json, text/event-stream", Wants::Document),
        ("application/json;q=0.5, text/event-stream", Wants::Events),
        ("text/event-stream;q=0.5, application/x-ndjson;q=0.9, */*;q=0.1", Wants::Lines),
        ("text/html", Wants::Document),
        ("text/*", Wants::Events),
        ("application/json;q=x, text/event-stream;q=0.1", Wants::Events),
    ] {
        assert_eq!(Wants::of(&accept(value), b"{}"), wants, "{value}");
    }
    assert_eq!(Wants::of(&HeaderMap::new(), b"{\"stream\": true}"), Wants::Lines);
    assert_eq!(Wants::of(&accept("application/json"), b"{\"stream\": true}"), Wants::Document);
    assert_eq!(Wants::of(&HeaderMap::new(), b"{\"stream\": \"true\"}"), Wants::Document);
}

#[test]
fn r92_an_input_is_written_in_the_agents_form() {
    let sent = |frames, input: &str| message(frames, ("r1", "op"), &Bytes::from(input.to_owned()));
    assert_eq!(sent(Frames::Bare, " {\"a\": 1}\n").unwrap(), "{\"a\": 1}");
    assert_eq!(sent(Frames::Bare, "").unwrap(), "{}");
    assert_eq!(sent(Frames::Ndjson, "{\r\n\"a\":\n1}").unwrap(), "{  \"a\": 1}\n");
    let rpc = |params: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":\"r1\",\"method\":\"op\",\"params\":{params}}}");
    assert_eq!(
        sent(Frames::JsonRpc, "{\"a\":1.000000000000000000001}").unwrap(),
        rpc("{\"a\":1.000000000000000000001}")
    );
    assert_eq!(sent(Frames::JsonRpc, "7").unwrap(), rpc("[7]"));
    assert!(sent(Frames::Ndjson, "{\"a\":").is_err() && sent(Frames::JsonRpc, "{} {}").is_err());
    assert!(message(Frames::Bare, ("r1", ""), &Bytes::from_static(&[0xff])).is_err());
}

#[test]
fn r40_a_failure_in_a_stream_is_told_from_a_result_that_speaks_of_errors() {
    assert!(is_failure(b"{\"error\":{\"message\":\"x\"},\"id\":1}") && is_failure(b"{\"error\":\"x\"}"));
    for result in ["{\"error\":null}", "{\"error\":\"x\",\"answer\":1}", "{\"error\":\"\"}", "[1]", "{\"n\":1}", "no"] {
        assert!(!is_failure(result.as_bytes()), "{result}");
    }
}
