//! Messages, reply formats and the parsing of replies, without a network.

use super::{
    answer::{Answers, Part, is_failure},
    ask::{Wants, message},
    leg::{Leg, LegBounds},
    lost::Peer,
    settings::{Frames, Manner, UpstreamWebSocketConfig},
};
use crate::transport::{Bounds, Timeouts};
use ::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use futures_util::SinkExt;
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
fn r92_an_input_is_written_in_the_agents_framing() {
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
fn r40_a_failure_in_a_stream_is_distinguished_from_a_result_that_mentions_errors() {
    assert!(is_failure(b"{\"error\":{\"message\":\"x\"},\"id\":1}") && is_failure(b"{\"error\":\"x\"}"));
    for result in ["{\"error\":null}", "{\"error\":\"x\",\"answer\":1}", "{\"error\":\"\"}", "[1]", "{\"n\":1}", "no"] {
        assert!(!is_failure(result.as_bytes()), "{result}");
    }
}

/// The parts of a reply that consists of these messages and a close frame.
async fn parts(frames: Frames, messages: &[&str]) -> Vec<String> {
    let (near, far) = tokio::io::duplex(1 << 20);
    let mut agent = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
    for text in messages {
        agent.send(Message::text(*text)).await.unwrap();
    }
    agent.close(None).await.unwrap();
    let (ping, pong, write) = (Duration::ZERO, Duration::from_secs(9), Duration::from_secs(9));
    let bounds = LegBounds { max_message: 1 << 20, ping, pong, write };
    let leg = Leg::new(Box::new(near), Peer::Agent, Vec::new(), bounds).await;
    let manner = Manner::from(&UpstreamWebSocketConfig { frames: Some(frames), ..UpstreamWebSocketConfig::default() });
    let until = Instant::now() + Duration::from_secs(9);
    let mut answers = Answers::new(leg, manner, ("r1", Bounds::from(&Timeouts::default()), until));
    let mut parts = Vec::new();
    let text = |data: &[u8]| String::from_utf8(data.to_vec()).unwrap();
    loop {
        match answers.part().await {
            Ok(Part::One(name, data)) => parts.push(format!("{}{}", name.unwrap_or_default(), text(&data))),
            Ok(Part::Last(data)) => parts.push(format!("last {}", text(&data))),
            Ok(Part::Failure(status, _)) => parts.push(status.to_string()),
            Ok(Part::End) => return parts,
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
    assert_eq!(parts(Frames::Ndjson, &messages).await, ["{\"n\":1}", "[2]", "3"]);
    assert_eq!(parts(Frames::Ndjson, &["1\nno\n2"]).await, ["1", "AgentError"]);
    assert_eq!(parts(Frames::Bare, &[" {\n}\n"]).await, ["last {\n}"]);
    assert_eq!(parts(Frames::Bare, &[""]).await, ["AgentError"]);
    // A message of nothing but line breaks must not use more memory than its size.
    assert_eq!(parts(Frames::Ndjson, &[&"\n".repeat(1 << 19)]).await, Vec::<String>::new());
}

#[tokio::test]
async fn r94_an_error_without_an_id_is_a_reply_and_a_batch_is_invalid() {
    let said = |text: &'static str| async move { parts(Frames::JsonRpc, &[text]).await };
    let error = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"no\"}}";
    assert_eq!(said(error).await, ["400 Bad Request"]);
    assert_eq!(said("{\"method\":\"m\",\"params\":[1]}").await, ["m[1]"]);
    assert_eq!(said("{\"id\":\"r1\",\"result\":[1, 2]}").await, ["last [1, 2]"]);
    assert_eq!(said("{\"id\":\"r1\"}").await, ["last null"]);
    assert_eq!(said("[\"m\",\"r1\",null,{\"a\":1}]").await, ["AgentError"]);
}
