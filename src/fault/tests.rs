//! Tests of the table of codes and of the wire formats of faults.

use super::*;
use std::time::Duration;

#[test]
fn r37_code_names_round_trip_and_are_unique() {
    for code in FaultCode::ALL {
        assert_eq!(FaultCode::from_name(code.row().name), Some(*code));
        assert!((400..600).contains(&code.row().status));
    }
    assert_eq!(FaultCode::from_name("Nonsense"), None);
}

#[test]
fn r36_the_error_object_has_code_message_and_request_id() {
    let fault = Fault::new(FaultCode::InvalidInput, "no").with_violations(vec![Violation::new("/a", "b")]);
    let body: serde_json::Value = serde_json::from_slice(&fault.to_body(ErrorFormat::Error, "r1")).unwrap();
    assert_eq!(
        body,
        serde_json::json!({"error": {"code": "InvalidInput", "message": "no",
        "details": [{"pointer": "/a", "message": "b"}], "request_id": "r1"}})
    );
}

#[test]
fn r90_problem_details_have_the_five_members() {
    let fault = Fault::new(FaultCode::Timeout, "late")
        .with_retry_after(Duration::from_millis(1200))
        .with_detail("agent at 10.0.0.1");
    let body: serde_json::Value = serde_json::from_slice(&fault.to_body(ErrorFormat::Problem, "r1")).unwrap();
    for member in ["type", "title", "status", "detail", "instance"] {
        assert!(body.get(member).is_some(), "{member}");
    }
    assert_eq!(body["retry_after"], 2);
    assert!(!body.to_string().contains("10.0.0.1"));
}

#[test]
fn r41_messages_about_the_request_are_public() {
    for text in [
        "Required field 'target_language' is missing.",
        "text must be at most 500 characters",
        "/text must be a string",
        "This model's maximum context length is 8192 tokens",
        "Invalid date 2026-11-23T10:00:00Z",
        "This model's maximum context length is 8192 tokens. However, you requested 8500 tokens (7500 in the messages, \
         1000 in the completion). Please reduce the length of the messages or completion.",
        "max_tokens is too large: 9000 (the token limit is 4096)",
        "Please select a model",
        "Unknown parameter: 'temperatur'",
        "Only .py and .json files are accepted",
        "Expecting ',' delimiter: line 3 column 5 (char 40)",
        "The token has expired",
    ] {
        assert_eq!(public_message(text).as_deref(), Some(text));
    }
}

#[test]
fn r117_r133_messages_about_internals_are_withheld() {
    let leaks = [
        "Traceback (most recent call last)",
        "open /srv/app/config.yaml",
        "cannot reach db:5432",
        "dial 10.0.0.7",
        "",
        "two\nlines",
        "see https://internal.example",
        "key sk-abc123def456ghi789jkl0 refused",
        "ask bob@corp.example",
        "C:\\app\\x",
        "token s3same refused",
        "SELECT name FROM users",
        "syntax error at or near \"drop\"",
        "duplicate key value violates unique constraint",
        "KeyError in main.py",
        "NameError on line 12",
        "Incorrect API key provided: sk-1234",
    ];
    for text in leaks {
        assert_eq!(public_message(text), None, "{text}");
    }
    assert_eq!(public_message(&"x".repeat(501)), None);
}

#[test]
fn r117_r133_only_the_sentence_that_names_internals_is_left_out() {
    let text = "Rate limit reached for requests per minute. Visit https://platform.example.com/limits to learn more.";
    assert_eq!(public_message(text).as_deref(), Some("Rate limit reached for requests per minute."));
    let text = "No account for +49 30 1234567. Card 4111 1111 1111 1111 is unknown.";
    assert_eq!(public_message(text).as_deref(), Some("No account for [redacted]. Card [redacted] is unknown."));
}

#[test]
fn r92_r94_json_rpc_callers_get_json_rpc_errors() {
    let fault = Fault::new(FaultCode::AgentUnavailable, "down")
        .with_retry_after(Duration::from_secs(2))
        .with_detail("10.0.0.1");
    let body = fault.to_json_rpc_response(&serde_json::json!("a"), "r1");
    assert_eq!((&body["jsonrpc"], &body["id"]), (&"2.0".into(), &"a".into()));
    let (error, data) = (&body["error"], &body["error"]["data"]);
    assert_eq!((&error["code"], &error["message"]), (&(-32073).into(), &"down".into()));
    assert_eq!((&data["code"], &data["status"]), (&"AgentUnavailable".into(), &503.into()));
    assert_eq!((&data["retry_after"], &data["request_id"]), (&2.into(), &"r1".into()));
    for (code, number) in
        [(FaultCode::InvalidInput, -32602), (FaultCode::CapabilityNotFound, -32601), (FaultCode::Internal, -32603)]
    {
        assert_eq!(Fault::new(code, "no").to_json_rpc_response(&1.into(), "r1")["error"]["code"], number);
    }
}

#[test]
fn r92_only_a_json_rpc_request_has_an_id_to_echo() {
    let id = |body: &str| json_rpc_request_id(body.as_bytes());
    assert_eq!(id(r#" {"jsonrpc":"2.0","id":7,"method":"a"}"#), Some(7.into()));
    assert_eq!(id(r#"{"jsonrpc":"2.0","id":"x"}"#), Some("x".into()));
    let unusable_ids = [r#"{"jsonrpc":"2.0"}"#, r#"{"jsonrpc":"2.0","id":null}"#, r#"{"jsonrpc":"2.0","id":{"a":1}}"#];
    for body in unusable_ids
        .map(str::to_owned)
        .into_iter()
        .chain([format!(r#"{{"jsonrpc":"2.0","id":"{}"}}"#, "x".repeat(300))])
    {
        assert_eq!(id(&body), Some(serde_json::Value::Null), "{body}");
    }
    for body in ["", "{", "[]", r#"{"id":1}"#, r#"{"jsonrpc":"1.0","id":1}"#, r#"{"jsonrpc":2,"id":1}"#, r#"{"jsonrpc"#]
    {
        assert_eq!(id(body), None, "{body}");
    }
}
