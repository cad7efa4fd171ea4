//! The result that a complete answer becomes.

use super::{super::model_answer::to_reply, *};

fn reply(settings: Value, answer: &Value) -> Result<UpstreamReply, Fault> {
    let config = config(settings);
    to_reply(answer.to_string().as_bytes(), &operation(json!({}), &config), true)
}

fn completion(content: Value, finish_reason: &str) -> Value {
    json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": null,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": content, "refusal": null}, "finish_reason": finish_reason},
            {"index": 1, "message": {"content": "second"}},
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "details": {"x": 1}},
    })
}

#[tokio::test]
async fn a_text_is_the_output_with_the_usage() {
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    for (content, text) in [
        (json!("Hi"), "Hi"),
        (json!(""), ""),
        (json!([{"type": "text", "text": "H"}, {"type": "thinking"}, {"type": "text", "text": "i"}]), "Hi"),
    ] {
        let answer = read(reply(json!({}), &completion(content, "stop"))).await;
        assert_eq!(answer, (200, json!({"output": text, "usage": usage})));
    }
    // Servers that report less.
    let bare = json!({"choices": [{"message": {"content": "Hi"}}], "usage": {"total": 1}});
    assert_eq!(read(reply(json!({}), &bare)).await, (200, json!({"output": "Hi"})));
}

#[tokio::test]
async fn json_is_the_result_itself_and_anything_else_an_error_of_the_agent() {
    let json_form = || json!({"output": "json"});
    let answer = read(reply(json_form(), &completion(json!(" {\"n\": 1.10}\n"), "stop"))).await;
    assert_eq!(answer, (200, json!({"n": 1.10})));
    for text in ["```json\n{}\n```", "{\"n\": 1", "Here: {}", "", "{\"a\": 1, \"a\": 2}"] {
        let fault = reply(json_form(), &completion(json!(text), "stop")).unwrap_err();
        assert_eq!((fault.http_status(), fault.message()), (502, "The agent's answer is not valid JSON"), "{text}");
    }
}

#[tokio::test]
async fn incomplete_answers_refusals_and_other_documents_are_no_results() {
    for (finish_reason, status, words) in [
        ("length", 502, "limit of tokens"),
        ("max_tokens", 502, "limit of tokens"),
        ("content_filter", 422, "content filter"),
        ("tool_calls", 502, "called a tool"),
    ] {
        let fault = reply(json!({}), &completion(json!("Hi"), finish_reason)).unwrap_err();
        assert_eq!(fault.http_status(), status);
        assert!(fault.message().contains(words), "{}", fault.message());
    }
    let mut refused = completion(Value::Null, "stop");
    refused["choices"][0]["message"]["refusal"] = json!("I cannot help with that.");
    let (status, body) = read(reply(json!({}), &refused)).await;
    assert_eq!((status, &body["error"]["message"]), (422, &json!("I cannot help with that.")));
    for answer in [
        json!({}),
        json!([]),
        json!("Hi"),
        json!({"choices": []}),
        json!({"choices": null}),
        json!({"choices": [{}]}),
        json!({"choices": [{"message": {"content": null}}]}),
        json!({"choices": [{"message": {"content": {"text": 1}}}]}),
        json!({"choices": {"message": 1}}),
        json!({"output": "Hi"}),
    ] {
        assert_eq!(reply(json!({}), &answer).unwrap_err().http_status(), 502, "{answer}");
    }
    let config = config(json!({}));
    let operation = operation(json!({}), &config);
    for body in [&b"<html>Sign in</html>"[..], b"", b"{\"choices\": [", b"\xff"] {
        assert_eq!(to_reply(body, &operation, false).unwrap_err().http_status(), 502);
    }
}

#[tokio::test]
async fn a_success_with_an_error_is_the_error() {
    for (answer, status) in [
        (json!({"error": {"message": "Rate limited", "code": 429}}), 429),
        (json!({"error": {"message": "Rate limited", "code": "429"}}), 429),
        (json!({"error": {"message": "broken"}, "choices": []}), 502),
        (json!({"error": "broken"}), 502),
        (json!({"object": "error", "message": "no such model", "code": 404}), 502),
        (json!({"error": {"message": "x", "code": 200}}), 502),
        (json!({"error": {"message": "x", "code": 99999}}), 502),
    ] {
        assert_eq!(read(reply(json!({}), &answer)).await.0, status, "{answer}");
    }
    let mut without_error = completion(json!("Hi"), "stop");
    without_error["error"] = Value::Null;
    assert_eq!(read(reply(json!({}), &without_error)).await.0, 200);
}
