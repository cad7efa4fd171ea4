//! Streams of servers, whole and broken off, in chunks that end anywhere.

use super::{super::streamed_answer::StreamedAnswer, *};
use crate::{fault::FaultCode, transport::ReplyBody};
use ::http::{HeaderMap, StatusCode};
use bytes::Bytes;

/// Translates a stream that arrives in chunks of `size` bytes.
async fn translate(stream: &str, size: usize) -> Result<UpstreamReply, Fault> {
    let chunks: Vec<Bytes> = stream.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for chunk in chunks {
            if sender.send(Ok(chunk)).await.is_err() {
                return;
            }
        }
    });
    let body = ReplyBody::from_channel(receiver);
    let reply = UpstreamReply { status: StatusCode::OK, headers: HeaderMap::new(), body, credential_sent: true };
    StreamedAnswer::new(reply).into_reply().await
}

/// Returns the events that a stream becomes, and the fault that ends it.
async fn events_of(stream: &str, size: usize) -> (String, Option<Fault>) {
    let mut reply = match translate(stream, size).await {
        Ok(reply) => reply,
        Err(fault) => return (String::new(), Some(fault)),
    };
    let mut text = String::new();
    while let Some(chunk) = reply.body.next_chunk().await {
        match chunk {
            Ok(chunk) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
            Err(fault) => return (text, Some(fault)),
        }
    }
    (text, None)
}

fn delta(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}))
}

fn finish(reason: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

const ROLE: &str = "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 2}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[tokio::test]
async fn r43_parts_of_the_text_are_events_and_the_last_one_has_the_usage() {
    let expected = "data: {\"delta\":\"Hé\"}\n\ndata: {\"delta\":\"i\"}\n\n\
                    data: {\"finish_reason\":\"stop\",\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}\n\n";
    let stream =
        [": comment\n\n", ROLE, &delta("Hé"), "event: x\nid: 1\n", &delta("i"), &finish("stop"), USAGE, DONE].concat();
    for size in [1, 2, 7, 1_000] {
        for stream in [stream.clone(), stream.replace('\n', "\r\n"), stream.replace("data: ", "data:")] {
            let (events, fault) = events_of(&stream, size).await;
            assert!(fault.is_none(), "{fault:?}");
            assert_eq!(events, expected, "{size}");
        }
    }
    // Servers that end without a marker, or say no reason, have still said that the answer is complete.
    for end in [finish("stop"), finish("eos"), DONE.to_owned(), DONE.trim_end().to_owned()] {
        let (events, fault) = events_of(&[delta("Hi"), end].concat(), 1_000).await;
        assert!(fault.is_none(), "{fault:?}");
        assert_eq!(events, "data: {\"delta\":\"Hi\"}\n\ndata: {\"finish_reason\":\"stop\"}\n\n");
    }
}

#[tokio::test]
async fn r43_a_stream_that_is_not_complete_ends_with_a_fault_after_its_parts() {
    let refusal = "data: {\"choices\": [{\"delta\": {\"refusal\": \"No.\"}}]}\n\n";
    let error = "data: {\"error\": {\"message\": \"CUDA out of memory at 10.0.0.1\", \"code\": \"oom\"}}\n\n";
    let long = format!("data: \"{}\n\n", "x".repeat(300 << 10));
    let many_lines = "data: xxxxxxxx\n".repeat(40_000);
    for (end, status, words) in [
        (String::new(), 502, "ended before the answer was complete"),
        (finish("length"), 502, "limit of tokens"),
        ([finish("content_filter"), DONE.to_owned()].concat(), 422, "content filter"),
        ([finish("tool_calls"), DONE.to_owned()].concat(), 502, "called a tool"),
        ([refusal, &finish("stop"), DONE].concat(), 422, "refused the input"),
        ([error, DONE].concat(), 502, "The agent failed"),
        ("data: <html>\n\n".to_owned(), 502, "is not a chat completion"),
        ("data: {\"choices\": [\n\n".to_owned(), 502, "is not a chat completion"),
        (long, 502, "too long"),
        (many_lines, 502, "too long"),
    ] {
        let (events, fault) = events_of(&[delta("Hi"), end].concat(), 1_000).await;
        let fault = fault.unwrap();
        assert_eq!((fault.http_status(), &*events), (status, "data: {\"delta\":\"Hi\"}\n\n"), "{words}");
        assert!(fault.message().contains(words), "{}", fault.message());
        assert!(!fault.to_string().contains("10.0.0.1"), "{fault}");
    }
}

#[tokio::test]
async fn r36_an_error_with_which_a_stream_begins_has_a_status() {
    let error = |error: Value| format!("data: {}\n\ndata: [DONE]\n\n", json!({"error": error}));
    for (error, status) in [
        (error(json!({"message": "busy", "code": 429})), 429),
        (error(json!({"message": "x", "code": "model_not_found"})), 502),
    ] {
        assert_eq!(read(translate(&error, 1_000).await).await.0, status);
    }
    let fault = translate("", 1).await.unwrap_err();
    assert_eq!(fault.code(), FaultCode::AgentError);
}

#[tokio::test]
async fn r43_a_caller_that_leaves_ends_the_exchange_with_the_server() {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let body = ReplyBody::from_channel(receiver);
    sender.send(Ok(Bytes::from(delta("Hi")))).await.unwrap();
    let reply = UpstreamReply { status: StatusCode::OK, headers: HeaderMap::new(), body, credential_sent: true };
    drop(StreamedAnswer::new(reply).into_reply().await.unwrap());
    sender.closed().await;
}
