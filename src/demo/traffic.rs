//! The traffic of the demo: a few calls a minute that succeed, fail and are refused, so that the console has something to
//! show.

use crate::{
    gateway::{Gateway, OperatorCall, call_as_operator},
    values::Secret,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

/// The pause between two calls, well within the limits of the demo's key.
const PAUSE: Duration = Duration::from_millis(700);

/// Agents and inputs. The last two are refused: an input that breaks the schema, and an agent that does not exist.
const CALLS: &[(&str, &str)] = &[
    ("echo", r#"{"hello": "console"}"#),
    ("agent-12345", r#"{"text": "\u65e9\u4e0a\u597d", "source_language": "zh", "target_language": "en"}"#),
    ("streamer", r#"{"prompt": "Once upon a time"}"#),
    ("echo", r#"{"hello": [1, 2, 3]}"#),
    ("agent-12345", r#"{"text": "Goodbye", "source_language": "en", "target_language": "zh"}"#),
    ("agent-12345", r#"{"text": "Hello", "target_language": "fr"}"#),
    ("nobody", "{}"),
];

/// Makes calls for as long as the process runs, as the caller of `key`.
pub(super) async fn make_calls(gateway: Arc<Gateway>, key: Secret) {
    for (agent, input) in CALLS.iter().cycle() {
        let mut credential = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(key.expose()) {
            credential.insert("x-api-key", value);
        }
        let call = OperatorCall {
            credential,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            agent: (*agent).to_owned(),
            operation: None,
            input: Bytes::from_static(input.as_bytes()),
        };
        // What becomes of a call is what the console shows.
        if let (_, Ok(mut reply)) = call_as_operator(&gateway, call).await {
            while reply.chunks.recv().await.is_some() {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}
