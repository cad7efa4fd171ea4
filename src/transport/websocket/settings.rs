//! How an agent over WebSocket is spoken to, as a person writes it, and what is in force.

use crate::unit::{Size, Span};
use std::time::Duration;

/// How agents over WebSocket are spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "AgentWebSocket")]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The form of messages: `ndjson` (a line of JSON each), `bare` (the input alone, and one message is the answer)
    /// or `json_rpc` (JSON-RPC 2.0, whose method is the operation). Default: ndjson (R80).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// With ndjson, the line that answers a caller who wants one document: the `first`, after which the gateway
    /// closes, or the `last` before the agent closes or says `end`. Default: first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<Pick>,
    /// With ndjson, a line by which the agent says that its answer is over, such as `[DONE]`. Default: none, the agent
    /// closes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The largest message, either way; 1KiB to 64MiB. Default: 1MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_message: Option<Size>,
    /// Messages that may come before the one that answers a caller who wants one document. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u32>,
    /// How long an agent may be silent until it is asked whether it is there (ping); 0s never asks. Default: 20s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<Span>,
    /// How long it then has to answer (pong). Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pong: Option<Span>,
    /// Whether messages of callers who have a WebSocket of their own are checked against the operation's input schema;
    /// `true` has the agent's messages to them checked against its output schema, too (`contract.output`). Default:
    /// callers' messages, where there is a schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<bool>,
}

/// The form of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Frames {
    /// The input as it is; one message is the answer.
    Bare,
    /// A line of JSON each.
    #[default]
    Ndjson,
    /// JSON-RPC 2.0.
    JsonRpc,
}

/// Which line is the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
}

impl Settings {
    pub(in crate::transport) fn over(&self, base: &Self) -> Self {
        Self {
            frames: self.frames.or(base.frames),
            document: self.document.or(base.document),
            end: self.end.clone().or_else(|| base.end.clone()),
            max_message: self.max_message.or(base.max_message),
            max_messages: self.max_messages.or(base.max_messages),
            ping: self.ping.or(base.ping),
            pong: self.pong.or(base.pong),
            check: self.check.or(base.check),
        }
    }

    /// What is wrong with these settings.
    pub(in crate::transport) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.max_message.is_some_and(|size| !(1 << 10..=64 << 20).contains(&size.get())) {
            problems.push("websocket.max_message: must be between 1KiB and 64MiB".to_owned());
        }
        if self.pong.is_some_and(|span| span.get().is_zero()) {
            problems.push("websocket.pong: must be longer than 0s".to_owned());
        }
        if self.end.as_ref().is_some_and(|end| end.trim().is_empty() || end.trim() != end || end.contains('\n')) {
            problems.push("websocket.end: must be one line without spaces around it".to_owned());
        }
        problems
    }
}

/// What is in force for one agent.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) frames: Frames,
    pub(super) document: Pick,
    pub(super) end: Option<String>,
    pub(super) max_message: usize,
    pub(super) max_messages: u32,
    pub(super) ping: Duration,
    pub(super) pong: Duration,
    pub(super) check: Option<bool>,
}

impl From<&Settings> for Manner {
    fn from(from: &Settings) -> Self {
        Self {
            frames: from.frames.unwrap_or_default(),
            document: from.document.unwrap_or_default(),
            end: from.end.clone(),
            max_message: from.max_message.unwrap_or(Size::kib(1 << 10)).get(),
            max_messages: from.max_messages.unwrap_or(1000),
            ping: from.ping.unwrap_or(Span::secs(20)).get(),
            pong: from.pong.unwrap_or(Span::secs(10)).get(),
            check: from.check,
        }
    }
}
