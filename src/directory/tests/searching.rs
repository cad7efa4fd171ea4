//! `POST /agents/search`.

use super::*;
use crate::search::{SearchFilters, StatusFilter};

fn search_request(body: &Value) -> TestRequest<'static> {
    send(Method::POST, "/agents/search", body)
}

#[tokio::test]
async fn r22_a_search_returns_an_uncacheable_array_of_summaries() {
    let fixture = test_directory(&[translator(), minimal_agent("b"), minimal_agent("c")]);
    let response = fixture.expect_response(search_request(&json!({"filters": {}, "top": 2, "unknown": 1}))).await;
    assert_eq!(ids(&response.json()), ["b", "c"]);
    assert_eq!((response.status.as_u16(), response.header("cache-control")), (200, "no-store"));
    let rest = fixture.expect_response(search_request(&json!({"skip": 2}))).await.json();
    assert_eq!(ids(&rest), ["translator"]);
    assert!(rest[0].get("score").is_none(), "without a query there is no ranking");
}

#[tokio::test]
async fn r3_a_search_finds_only_visible_agents() {
    let mut other = minimal_agent("b");
    other["description"] = json!("Translates, too.");
    let mut fixture = test_directory(&[translator(), other]);
    fixture.visibility.hidden = vec!["translator"];
    assert_eq!(ids(&fixture.expect_response(search_request(&json!({"query": "translate"}))).await.json()), ["b"]);
}

#[test]
fn r22_filters_are_parsed_in_plural_singular_as_a_string_and_as_an_array() {
    let parse = |body: &Value| {
        let mut violations = request_body::Violations::default();
        let members = request_body::BodyMembers::new(body, &mut violations);
        let filters = search_filters::filters_from_body(&members, &mut violations);
        violations.into_result("broken").unwrap();
        filters
    };
    for body in [
        json!({"capabilities": ["translation"]}),
        json!({"capabilities": "translation"}),
        json!({"capability": "translation", "tags": null}),
        json!({"capability": ["translation", " "]}),
    ] {
        assert_eq!(
            parse(&body),
            SearchFilters { capabilities: vec!["translation".to_owned()], ..SearchFilters::default() },
            "{body}"
        );
    }
    for name in ["supported_languages", "supported_language", "languages", "language"] {
        assert_eq!(parse(&json!({name: "en"})).languages, ["en"]);
    }
    assert_eq!(parse(&json!({"status": ["inactive"]})).status, [StatusFilter::Inactive]);
}

#[tokio::test]
async fn r22_all_violations_of_a_search_are_reported_at_once_with_their_pointers() {
    let fixture = test_directory(&[translator()]);
    let broken = json!({
        "filters": {"capabilities": [1], "tags": {"a": 1}, "supported_language": 7, "status": "asleep"},
        "query": ["x"], "top": 101, "skip": -1,
    });
    let fault = fixture.expect_fault(search_request(&broken)).await;
    assert_eq!(fault.code(), FaultCode::InvalidInput);
    let expected = [
        "/filters/capabilities",
        "/filters/status",
        "/filters/supported_language",
        "/filters/tags",
        "/query",
        "/skip",
        "/top",
    ];
    let mut violated = pointers(&fault);
    violated.sort_unstable();
    assert_eq!(violated, expected);
}

#[tokio::test]
async fn a_search_that_is_not_a_json_object_is_refused() {
    let fixture = test_directory(&[translator()]);
    let refusals = [
        ("", FaultCode::InvalidInput),
        ("[]", FaultCode::InvalidInput),
        ("null", FaultCode::InvalidInput),
        ("{\"top\":1,\"top\":2}", FaultCode::InvalidInput),
        ("{\"filters\":[]}", FaultCode::InvalidInput),
        ("{\"top\":0}", FaultCode::InvalidInput),
        ("{\"top\":1.5}", FaultCode::InvalidInput),
        ("{\"top\":\"5\"}", FaultCode::InvalidInput),
        ("{\"query\":\"\u{1}", FaultCode::InvalidInput),
    ];
    for (body, code) in refusals {
        let request = TestRequest { body: body.to_owned(), ..search_request(&json!({})) };
        assert_eq!(fixture.expect_fault(request).await.code(), code, "{body}");
    }
    let deep = TestRequest { body: "[".repeat(40), ..search_request(&json!({})) };
    assert_eq!(fixture.expect_fault(deep).await.code(), FaultCode::InvalidInput);
    let large = TestRequest { body: " ".repeat(70 << 10), ..search_request(&json!({})) };
    assert_eq!(fixture.expect_fault(large).await.code(), FaultCode::PayloadTooLarge);
    let wordy = json!({"query": "a".repeat(2_001)});
    assert_eq!(pointers(&fixture.expect_fault(search_request(&wordy)).await), ["/query"]);
    let listed = json!({"filters": {"tags": vec!["t"; 65]}});
    assert_eq!(pointers(&fixture.expect_fault(search_request(&listed)).await), ["/filters/tags"]);
}

#[tokio::test]
async fn a_search_in_another_media_type_is_refused() {
    let fixture = test_directory(&[translator()]);
    for media in
        ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "multipart/form-data"]
    {
        let fault = fixture.expect_fault(search_request(&json!({})).header("content-type", media)).await;
        assert_eq!(fault.code(), FaultCode::UnsupportedMediaType, "{media}");
    }
    let fault = fixture.expect_fault(search_request(&json!({})).header("content-encoding", "gzip")).await;
    assert_eq!(fault.code(), FaultCode::UnsupportedMediaType);
    fixture.expect_response(search_request(&json!({})).header("content-type", "application/json; charset=UTF-8")).await;
}
