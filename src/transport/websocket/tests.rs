//! Messages, reply formats and the parsing of replies, without a network.

use super::{
    close_reason::WebSocketPeer,
    config::{MessageFraming, UpstreamWebSocketConfig, WebSocketOptions},
    reply_message::{ReplyPart, ReplyReader, reports_failure},
    request_message::{ReplyFormat, build_message},
    websocket_connection::{WebSocketConnection, WebSocketLimits},
};
use crate::{
    agent::DeclaredMembers,
    transport::{TimeoutConfig, UpstreamTimeouts},
};
use ::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use futures_util::SinkExt;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

fn accept(value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_str(value).unwrap());
    headers
}

#[test]
fn r80_the_reply_format_is_what_accept_prefers() {
    for (value, format) in [
        ("application/json", ReplyFormat::Document),
        ("*/*", ReplyFormat::Document),
        ("text/event-stream", ReplyFormat::Events),
        ("application/x-ndjson", ReplyFormat::Lines),
        ("application/jsonl", ReplyFormat::Lines),
        ("application/json, text/event-stream", ReplyFormat::Document),
        ("application/json;q=0.5, text/event-stream", ReplyFormat::Events),
        ("text/event-stream;q=0.5, application/x-ndjson;q=0.9, */*;q=0.1", ReplyFormat::Lines),
        ("text/html", ReplyFormat::Document),
        ("text/*", ReplyFormat::Events),
        ("application/json;q=x, text/event-stream;q=0.1", ReplyFormat::Events),
    ] {
        assert_eq!(ReplyFormat::negotiate(&accept(value), b"{}"), format, "{value}");
    }
    assert_eq!(ReplyFormat::negotiate(&HeaderMap::new(), b"{\"stream\": true}"), ReplyFormat::Lines);
    assert_eq!(ReplyFormat::negotiate(&accept("application/json"), b"{\"stream\": true}"), ReplyFormat::Document);
    assert_eq!(ReplyFormat::negotiate(&HeaderMap::new(), b"{\"stream\": \"true\"}"), ReplyFormat::Document);
}

#[test]
fn r92_an_input_is_written_in_the_agents_framing() {
    let build = |framing, input: &str| build_message(framing, "r1", "op", &Bytes::from(input.to_owned()));
    assert_eq!(build(MessageFraming::Bare, " {\"a\": 1}\n").unwrap(), "{\"a\": 1}");
    assert_eq!(build(MessageFraming::Bare, "").unwrap(), "{}");
    assert_eq!(build(MessageFraming::Ndjson, "{\r\n\"a\":\n1}").unwrap(), "{  \"a\": 1}\n");
    let rpc = |params: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":\"r1\",\"method\":\"op\",\"params\":{params}}}");
    assert_eq!(
        build(MessageFraming::JsonRpc, "{\"a\":1.000000000000000000001}").unwrap(),
        rpc("{\"a\":1.000000000000000000001}")
    );
    assert_eq!(build(MessageFraming::JsonRpc, "7").unwrap(), rpc("[7]"));
    assert!(build(MessageFraming::Ndjson, "{\"a\":").is_err() && build(MessageFraming::JsonRpc, "{} {}").is_err());
    assert!(build_message(MessageFraming::Bare, "r1", "", &Bytes::from_static(&[0xff])).is_err());
}

#[test]
fn r40_a_failure_in_a_stream_is_distinguished_from_a_result_that_mentions_errors() {
    let fails = |part: &str| reports_failure(part.as_bytes(), DeclaredMembers::default());
    for failure in [
        "{\"error\":{\"message\":\"x\"},\"id\":1}",
        "{\"error\":\"x\"}",
        "{\"success\":false,\"message\":\"x\"}",
        "{\"status\":\"failed\",\"reason\":\"x\"}",
        "{\"error\":\"x\",\"data\":{\"n\":1}}",
    ] {
        assert!(fails(failure), "{failure}");
    }
    for result in [
        "{\"error\":null}",
        "{\"error\":\"x\",\"answer\":1}",
        "{\"error\":\"\"}",
        "{\"success\":false,\"answer\":1}",
        "[1]",
        "{\"n\":1}",
        "no",
    ] {
        assert!(!fails(result), "{result}");
    }
    let declared = DeclaredMembers::of_schema(&json!({"properties": {"error": {}, "success": {}}}));
    for data in ["{\"error\":\"x\"}", "{\"success\":false}"] {
        assert!(fails(data) && !reports_failure(data.as_bytes(), declared), "{data}");
    }
}

/// Reads the parts of a reply that consists of these messages and a close frame.
async fn read_parts(framing: MessageFraming, messages: &[&str]) -> Vec<String> {
    let (near, far) = tokio::io::duplex(1 << 20);
    let mut agent = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    for text in messages {
        agent.send(Message::text(*text)).await.unwrap();
    }
    agent.close(None).await.unwrap();
    let limits = WebSocketLimits {
        max_message_size: 1 << 20,
        ping_interval: Duration::ZERO,
        pong_timeout: Duration::from_secs(9),
        write_timeout: Duration::from_secs(9),
    };
    let connection = WebSocketConnection::new(Box::new(near), WebSocketPeer::Agent, Vec::new(), limits).await;
    let options = WebSocketOptions::from(&UpstreamWebSocketConfig {
        framing: Some(framing),
        ..UpstreamWebSocketConfig::default()
    });
    let until = Instant::now() + Duration::from_secs(9);
    let timeouts = UpstreamTimeouts::from(&TimeoutConfig::default());
    let mut reader = ReplyReader::new(connection, options, "r1", timeouts, until);
    let mut parts = Vec::new();
    let text = |data: &[u8]| String::from_utf8(data.to_vec()).unwrap();
    loop {
        match reader.next_part().await {
            Ok(ReplyPart::Item(name, data)) => parts.push(format!("{}{}", name.unwrap_or_default(), text(&data))),
            Ok(ReplyPart::Last(data)) => parts.push(format!("last {}", text(&data))),
            Ok(ReplyPart::Failure(status, _)) => parts.push(status.to_string()),
            Ok(ReplyPart::End) => return parts,
            Err(fault) => {
                parts.push(fault.code().row().name.to_owned());
                return parts;
            }
        }
    }
}

#[tokio::test]
async fn r80_messages_are_split_into_lines_wherever_messages_end() {
    let messages = ["{\"n\":1}\r\n\n [2] \n", "\n\n", "", "3"];
    assert_eq!(read_parts(MessageFraming::Ndjson, &messages).await, ["{\"n\":1}", "[2]", "3"]);
    assert_eq!(read_parts(MessageFraming::Ndjson, &["1\nno\n2"]).await, ["1", "AgentError"]);
    assert_eq!(read_parts(MessageFraming::Bare, &[" {\n}\n"]).await, ["last {\n}"]);
    assert_eq!(read_parts(MessageFraming::Bare, &[""]).await, ["AgentError"]);
    // A message of nothing but line breaks must not use more memory than its size.
    assert_eq!(read_parts(MessageFraming::Ndjson, &[&"\n".repeat(1 << 19)]).await, Vec::<String>::new());
}

#[tokio::test]
async fn r94_an_error_without_an_id_is_a_reply_and_a_batch_is_invalid() {
    let parts_of = |text: &'static str| async move { read_parts(MessageFraming::JsonRpc, &[text]).await };
    let error = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"no\"}}";
    assert_eq!(parts_of(error).await, ["400 Bad Request"]);
    assert_eq!(parts_of("{\"method\":\"m\",\"params\":[1]}").await, ["m[1]"]);
    assert_eq!(parts_of("{\"id\":\"r1\",\"result\":[1, 2]}").await, ["last [1, 2]"]);
    assert_eq!(parts_of("{\"id\":\"r1\"}").await, ["last null"]);
    assert_eq!(parts_of("[\"m\",\"r1\",null,{\"a\":1}]").await, ["AgentError"]);
}
