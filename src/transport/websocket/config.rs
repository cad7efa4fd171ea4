//! Configuration of WebSocket connections to agents, and the options in force for one agent.

use crate::values::{ByteSize, ConfigDuration};
use std::time::Duration;

/// The WebSocket connections to agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "AgentWebSocket")]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamWebSocketConfig {
    /// The framing of messages: `ndjson` (one line of JSON each), `bare` (the input alone; one message is the reply)
    /// or `json_rpc` (JSON-RPC 2.0, whose method is the operation). Default: ndjson (R80).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<MessageFraming>,
    /// With ndjson, the line that is the reply for a caller that wants one document: the `first`, after which the
    /// gateway closes, or the `last` before the agent closes or sends `end_marker`. Default: first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_message: Option<DocumentSelection>,
    /// With ndjson, a line with which the agent ends its reply, such as `[DONE]`. Default: none, the agent closes the
    /// connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_marker: Option<String>,
    /// The largest message in either direction; 1KiB to 64MiB. Default: 1MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_message_size: Option<ByteSize>,
    /// Messages that may precede the reply for a caller that wants one document. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// How long a connection may be silent before the gateway sends a ping; 0s disables pings. Default: 20s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping_interval: Option<ConfigDuration>,
    /// How long the agent has to answer a ping with a pong. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pong_timeout: Option<ConfigDuration>,
    /// Whether a caller with a WebSocket is connected to the agent's WebSocket, and messages are relayed unchanged; `false`
    /// makes a call of each message instead, for callers whose messages have another form than the agent's, such as the
    /// reference client of agent://. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<bool>,
    /// Whether messages of callers that use a WebSocket are validated against the operation's input schema; `true`
    /// also validates the agent's messages to them against its output schema (`contract.output`). Default: callers'
    /// messages, where there is a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate_messages: Option<bool>,
}

/// The framing of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageFraming {
    /// The input unchanged; one message is the reply.
    Bare,
    /// One line of JSON each.
    #[default]
    Ndjson,
    /// JSON-RPC 2.0.
    JsonRpc,
}

/// Which line is the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DocumentSelection {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
}

impl UpstreamWebSocketConfig {
    pub(in crate::transport) fn with_fallback(&self, base: &Self) -> Self {
        Self {
            framing: self.framing.or(base.framing),
            result_message: self.result_message.or(base.result_message),
            end_marker: self.end_marker.clone().or_else(|| base.end_marker.clone()),
            max_message_size: self.max_message_size.or(base.max_message_size),
            max_messages: self.max_messages.or(base.max_messages),
            ping_interval: self.ping_interval.or(base.ping_interval),
            pong_timeout: self.pong_timeout.or(base.pong_timeout),
            relay: self.relay.or(base.relay),
            validate_messages: self.validate_messages.or(base.validate_messages),
        }
    }

    /// Returns every value that cannot be used.
    pub(in crate::transport) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.max_message_size.is_some_and(|size| !(1 << 10..=64 << 20).contains(&size.get())) {
            problems.push("websocket.max_message_size: is out of bounds (must be 1KiB to 64MiB)".to_owned());
        }
        if self.pong_timeout.is_some_and(|timeout| timeout.get().is_zero()) {
            problems.push("websocket.pong_timeout: is 0s (must be longer)".to_owned());
        }
        let is_unusable = |text: &String| text.trim().is_empty() || text.trim() != text || text.contains('\n');
        if self.end_marker.as_ref().is_some_and(is_unusable) {
            problems.push("websocket.end_marker: is not usable (must be one line without spaces around it)".to_owned());
        }
        problems
    }
}

/// The options in force for one agent.
#[derive(Clone, Debug)]
pub(super) struct WebSocketOptions {
    pub(super) framing: MessageFraming,
    pub(super) result_message: DocumentSelection,
    pub(super) end_marker: Option<String>,
    pub(super) max_message_size: usize,
    pub(super) max_messages: u32,
    pub(super) ping_interval: Duration,
    pub(super) pong_timeout: Duration,
    pub(super) relay: bool,
    pub(super) validate: Option<bool>,
}

impl From<&UpstreamWebSocketConfig> for WebSocketOptions {
    fn from(config: &UpstreamWebSocketConfig) -> Self {
        Self {
            framing: config.framing.unwrap_or_default(),
            result_message: config.result_message.unwrap_or_default(),
            end_marker: config.end_marker.clone(),
            max_message_size: config.max_message_size.unwrap_or(ByteSize::from_kib(1 << 10)).get(),
            max_messages: config.max_messages.unwrap_or(1000),
            ping_interval: config.ping_interval.unwrap_or(ConfigDuration::from_secs(20)).get(),
            pong_timeout: config.pong_timeout.unwrap_or(ConfigDuration::from_secs(10)).get(),
            relay: config.relay.unwrap_or(true),
            validate: config.validate_messages,
        }
    }
}
