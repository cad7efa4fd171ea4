//! The status and the text that an error of a server becomes.

use super::{super::server_error::ServerError, *};
use ::http::{HeaderMap, HeaderValue, StatusCode, header};

fn error(status: u16, body: &str) -> UpstreamReply {
    let headers = HeaderMap::from_iter([
        (header::RETRY_AFTER, HeaderValue::from_static("7")),
        (header::SERVER, HeaderValue::from_static("internal")),
    ]);
    ServerError::parse(body.as_bytes(), StatusCode::from_u16(status).unwrap()).into_reply(&headers, true)
}

fn openai(code: Value, kind: &str, param: Value) -> String {
    json!({"error": {"message": "m", "type": kind, "param": param, "code": code}}).to_string()
}

#[test]
fn what_the_gateway_or_the_operator_caused_is_no_fault_of_the_caller() {
    let null = Value::Null;
    for (status, body, expected) in [
        (401, openai(json!("invalid_api_key"), "invalid_request_error", null.clone()), 401),
        (403, openai(json!("unsupported_country_region_territory"), "request_forbidden", null.clone()), 401),
        (404, openai(json!("model_not_found"), "invalid_request_error", null.clone()), 502),
        (400, openai(json!("unsupported_parameter"), "invalid_request_error", json!("max_tokens")), 502),
        (400, openai(null.clone(), "invalid_request_error", json!("response_format")), 502),
        (400, "{}".to_owned(), 502),
        (400, "<html>400 The plain HTTP request was sent to HTTPS port</html>".to_owned(), 502),
        (422, json!({"detail": [{"loc": ["body", "model"], "msg": "field required"}]}).to_string(), 502),
        (402, json!({"error": {"message": "Insufficient credits", "code": 402}}).to_string(), 502),
        (429, openai(json!("insufficient_quota"), "insufficient_quota", null.clone()), 502),
        (405, json!({"detail": "Method Not Allowed"}).to_string(), 502),
        (409, "{}".to_owned(), 502),
        (418, "{}".to_owned(), 502),
        (500, openai(null.clone(), "server_error", null.clone()), 500),
        (502, "<html>".to_owned(), 502),
        (503, "busy".to_owned(), 503),
        (504, String::new(), 504),
        (529, openai(null.clone(), "overloaded_error", null.clone()), 503),
        (
            400,
            json!({"error": {"message": "No connected db.", "type": "no_db_connection", "code": "400"}}).to_string(),
            502,
        ),
        (400, json!({"error": {"message": "Invalid model name", "type": "x", "code": "400"}}).to_string(), 502),
        (302, String::new(), 302),
        (429, openai(json!("rate_limit_exceeded"), "tokens", null), 429),
    ] {
        assert_eq!(error(status, &body).status, expected, "{status} {body}");
    }
}

#[test]
fn what_the_input_caused_is_the_callers_fault() {
    let vllm = json!({
        "object": "error", "type": "BadRequestError", "param": null, "code": 400,
        "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    });
    let llama = json!({"error": {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds"}});
    let litellm = json!({"error": {
        "message": "litellm.ContextWindowExceededError: this is a mock context window exceeded error\nmodel=long.",
        "type": "invalid_request_error", "param": null, "code": "400",
    }});
    let gemini = json!([{"error": {"code": 400, "message": "The prompt is too long", "status": "INVALID_ARGUMENT"}}]);
    for body in [
        openai(json!("context_length_exceeded"), "invalid_request_error", json!("messages")),
        openai(json!("content_filter"), "invalid_request_error", json!("prompt")),
        openai(json!("invalid_value"), "invalid_request_error", json!("messages[0].role")),
        openai(Value::Null, "invalid_request_error", json!("messages.[1].content")),
        vllm.to_string(),
        llama.to_string(),
        litellm.to_string(),
        gemini.to_string(),
    ] {
        assert_eq!(error(400, &body).status, 400, "{body}");
    }
    let fastapi = json!({"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "not permitted"}]});
    assert_eq!(error(422, &fastapi.to_string()).status, 422);
    assert_eq!(error(413, "<html>").status, 413);
    assert_eq!(error(408, "").status, 408);
}

#[tokio::test]
async fn an_error_keeps_its_code_its_message_and_the_delay_and_nothing_else() {
    let body =
        json!({"error": {"message": "Too long", "code": "context_length_exceeded", "param": "messages"}, "trace": "x"});
    let reply = error(400, &body.to_string());
    assert_eq!(reply.headers.get(header::RETRY_AFTER).unwrap(), "7");
    assert!(!reply.headers.contains_key(header::SERVER) && reply.credential_sent);
    let (_, body) = read(Ok(reply)).await;
    assert_eq!(body, json!({"error": {"code": "context_length_exceeded", "message": "Too long"}}));
    // The message of a rate limit names the account, and the status of the server is in the log where it has no code.
    let limited =
        json!({"error": {"message": "Rate limit reached in organization org-1", "code": "rate_limit_exceeded"}});
    let (_, body) = read(Ok(error(429, &limited.to_string()))).await;
    assert_eq!(body, json!({"error": {"code": "rate_limit_exceeded", "message": null}}));
    let (_, body) = read(Ok(error(404, "nothing here"))).await;
    assert_eq!(body, json!({"error": {"code": 404, "message": null}}));
}
