//! Misbehaving brokers, scripted byte by byte.

use super::*;
use crate::values::ConfigDuration;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::Instant,
};

/// What a broker does with a connection, given the MQTT version of the CONNECT packet.
type BrokerScript = Box<dyn Fn(TcpStream, u8) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync>;

async fn broker(script: BrokerScript) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let script = Arc::clone(&script);
            tokio::spawn(async move {
                let connect = packet(&mut stream).await;
                // The protocol name is followed by the version.
                script(stream, connect.get(6).copied().unwrap_or_default()).await;
            });
        }
    });
    address
}

/// Reads the body of the next packet.
async fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let (_, mut length, mut shift) = (stream.read_u8().await.unwrap_or_default(), 0, 0);
    loop {
        let byte = stream.read_u8().await.unwrap_or_default();
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let mut body = vec![0; length];
    let _ = stream.read_exact(&mut body).await;
    body
}

fn publish(id: &str, payload: &str) -> Vec<u8> {
    let topic = format!("control/agents/{id}/status");
    let length = 2 + topic.len() + payload.len();
    let mut bytes = vec![0x31, (length & 0x7f) as u8 | 0x80, (length >> 7 & 0x7f) as u8 | 0x80, (length >> 14) as u8];
    bytes.extend((topic.len() as u16).to_be_bytes());
    bytes.extend(topic.as_bytes());
    bytes.extend(payload.as_bytes());
    bytes
}

/// Accepts the connection in MQTT 3.1.1, grants the subscription, and sends `messages`.
async fn serve(stream: &mut TcpStream, messages: &[u8]) {
    stream.write_all(b"\x20\x02\x00\x00").await.unwrap();
    let subscribe = packet(stream).await;
    let granted = [b"\x90\x04", &subscribe[..2], b"\x01\x01"].concat();
    let _ = stream.write_all(&granted).await;
    let _ = stream.write_all(messages).await;
}

fn feed(address: SocketAddr) -> MqttFeed {
    let settings = MqttSourceConfig { keep_alive: ConfigDuration::from_secs(1), ..MqttSourceConfig::default() };
    MqttFeed::new(&format!("mqtt://{address}"), settings, Duration::from_millis(500), 100).unwrap()
}

/// Polls until `holds`, and acknowledges each result.
async fn poll_until(feed: &mut MqttFeed, what: &str, condition: impl Fn(&PollResult) -> bool) -> PollResult {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let result = feed.poll().await;
        feed.acknowledge();
        if condition(&result) {
            return result;
        }
        assert!(Instant::now() < deadline, "{what} did not happen: {result:?}");
        let _ = tokio::time::timeout(Duration::from_millis(100), feed.wait_for_update()).await;
    }
}

fn has_update(result: &PollResult, id: &str, prefix: &str) -> bool {
    updates(result).get(id).is_some_and(|update| update.starts_with(prefix))
}

/// Returns the feed of a broker that answers CONNECT with `bytes`, and then may close the connection.
async fn feed_of_broker_answering(bytes: &'static [u8], close: bool) -> MqttFeed {
    let script: BrokerScript = Box::new(move |mut stream, _| {
        Box::pin(async move {
            let _ = stream.write_all(bytes).await;
            if !close {
                std::future::pending::<()>().await;
            }
        })
    });
    feed(broker(script).await)
}

#[tokio::test]
async fn r104_the_client_falls_back_to_mqtt_3_1_1() {
    for refusal in [&b"\x20\x02\x00\x01"[..], b"\x20\x03\x00\x84\x00", b""] {
        let script: BrokerScript = Box::new(move |mut stream, version| {
            Box::pin(async move {
                match version {
                    4 => {
                        serve(&mut stream, &publish("a", &status_payload("a", "available").to_string())).await;
                        std::future::pending::<()>().await;
                    }
                    _ => stream.write_all(refusal).await.unwrap(),
                }
            })
        });
        let mut feed = feed(broker(script).await);
        let result = poll_until(&mut feed, "the older version", |result| result.error.is_none()).await;
        assert_updates(&result, &[("a", "active")]);
    }
}

#[tokio::test]
async fn r116_an_oversized_message_over_mqtt_3_1_1_is_rejected_alone() {
    let long = json!({"agent_id": "long", "status": "available", "x": "x".repeat(1_500_000)}).to_string();
    let messages = [
        publish("a", &status_payload("a", "available").to_string()),
        publish("long", &long),
        publish("b", &status_payload("b", "available").to_string()),
    ]
    .concat();
    let script: BrokerScript = Box::new(move |mut stream, version| {
        let messages = messages.clone();
        Box::pin(async move {
            if version == 4 {
                serve(&mut stream, &messages).await;
                std::future::pending::<()>().await;
            }
        })
    });
    let mut feed = feed(broker(script).await);
    let result =
        poll_until(&mut feed, "the first update", |result| result.error.is_none() && !result.parts.is_empty()).await;
    assert_updates(
        &result,
        &[("a", "active"), ("b", "active"), ("long", "broken: the status has more than 262144 bytes")],
    );
}

#[tokio::test]
async fn invalid_broker_responses_are_errors() {
    for (bytes, close, reason) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], true, ""),
        (b"\x20\x02\x00\x05", true, "refuses the user name or the password"),
        (b"\x20\x03\x00\x87\x00", true, ""),
        (b"\x20\x03\x00\x88\x00", false, "ServerUnavailable"),
        (b"\x30\x05\x00\x01a{}", false, ""),
        (b"\xff\xff\xff\xff\xff\xff\xff", false, ""),
        (b"\x20", true, ""),
        (b"", true, ""),
        (b"", false, "no answer in time"),
    ] {
        let mut feed = feed_of_broker_answering(bytes, close).await;
        let result = feed.poll().await;
        let why = result.error.clone().unwrap_or_else(|| panic!("{bytes:?} is not an error"));
        assert!(why.starts_with("the broker at mqtt://127.0.0.1:") && why.contains(reason), "{bytes:?}: {why}");
        assert!(why.len() < 500 && result.parts.is_empty(), "{bytes:?}: {why}");
    }
}

#[tokio::test]
async fn a_refused_subscription_is_an_error() {
    let script: BrokerScript = Box::new(|mut stream, version| {
        Box::pin(async move {
            if version == 5 {
                stream.write_all(b"\x20\x03\x00\x00\x00").await.unwrap();
                let subscribe = packet(&mut stream).await;
                stream.write_all(&[b"\x90\x05", &subscribe[..2], b"\x00\x87\x87"].concat()).await.unwrap();
            }
            std::future::pending::<()>().await;
        })
    });
    let mut feed = feed(broker(script).await);
    let why = feed.poll().await.error.unwrap();
    assert!(why.contains("subscription to /control/agents/+/status refused"), "{why}");
}

#[tokio::test]
async fn an_unacknowledged_subscription_is_an_error() {
    let script: BrokerScript = Box::new(|mut stream, version| {
        Box::pin(async move {
            if version == 4 {
                stream.write_all(b"\x20\x02\x00\x00").await.unwrap();
                stream.write_all(&publish("a", "garbage")).await.unwrap();
                std::future::pending::<()>().await;
            }
        })
    });
    let mut feed = feed(broker(script).await);
    let why = feed.poll().await.error.unwrap();
    assert!(why.contains("no response in time"), "{why}");
}

#[tokio::test]
async fn a_silent_broker_is_disconnected_and_its_agents_stay() {
    let script: BrokerScript = Box::new(|mut stream, version| {
        Box::pin(async move {
            if version == 4 {
                serve(&mut stream, &publish("a", &status_payload("a", "available").to_string())).await;
                std::future::pending::<()>().await;
            }
        })
    });
    let mut feed = feed(broker(script).await);
    poll_until(&mut feed, "the first update", |result| has_update(result, "a", "active") && result.error.is_none())
        .await;
    let result = poll_until(&mut feed, "the silence", |result| result.error.is_some()).await;
    assert!(result.parts.is_empty(), "{result:?}");
}

#[tokio::test]
async fn reconnects_to_a_flapping_broker_back_off() {
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let connections = Arc::clone(&count);
    let script: BrokerScript = Box::new(move |mut stream, version| {
        connections.fetch_add(usize::from(version == 4), std::sync::atomic::Ordering::SeqCst);
        Box::pin(async move {
            if version == 4 {
                serve(&mut stream, &publish("a", &status_payload("a", "available").to_string())).await;
                // The ping after a second of silence means that the client has read everything.
                packet(&mut stream).await;
            }
        })
    });
    let mut feed = feed(broker(script).await);
    poll_until(&mut feed, "the first update", |result| has_update(result, "a", "active")).await;
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let result = feed.poll().await;
        feed.acknowledge();
        assert!(!has_update(&result, "a", "gone"), "{result:?}");
        let _ = tokio::time::timeout_at(deadline, feed.wait_for_update()).await;
    }
    let connections = count.load(std::sync::atomic::Ordering::SeqCst);
    assert!((2..=5).contains(&connections), "{connections} connections in five seconds");
}

#[tokio::test]
async fn dropping_the_feed_closes_the_connection() {
    let (closed, mut closed_receiver) = tokio::sync::mpsc::channel(1);
    let script: BrokerScript = Box::new(move |mut stream, version| {
        let closed = closed.clone();
        Box::pin(async move {
            if version == 4 {
                serve(&mut stream, b"").await;
                while stream.read_u8().await.is_ok() {}
                let _ = closed.send(()).await;
            }
        })
    });
    let mut feed = feed(broker(script).await);
    poll_until(&mut feed, "the first update", |result| result.error.is_none()).await;
    drop(feed);
    tokio::time::timeout(Duration::from_secs(5), closed_receiver.recv()).await.unwrap();
}
