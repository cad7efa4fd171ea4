//! A span as plain data, with bounds on what its texts may hold.

use super::trace_context::{SpanId, TraceId};
use http::HeaderValue;
use std::borrow::Cow;

/// The longest text of an attribute in bytes; longer ones are truncated.
const MAX_TEXT_LEN: usize = 256;

/// What a span describes (OpenTelemetry, SpanKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A step inside the gateway.
    Internal,
    /// A request that the gateway answers.
    Server,
    /// A request that the gateway makes.
    Client,
    /// A message that the gateway sends to a broker.
    Producer,
    /// A message that the gateway takes from a broker.
    Consumer,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for AttributeValue {
    /// Truncates a text that is too long.
    fn from(mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(MAX_TEXT_LEN));
        Self::Text(Cow::Owned(text))
    }
}

impl From<Cow<'_, str>> for AttributeValue {
    fn from(text: Cow<'_, str>) -> Self {
        let end = text.floor_char_boundary(MAX_TEXT_LEN);
        Self::Text(Cow::Owned(text.get(..end).unwrap_or_default().to_owned()))
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// How the step ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SpanStatus {
    /// Without a failure.
    #[default]
    Unset,
    /// With a failure, which the attribute `error.type` names.
    Error,
}

/// A span that another span refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanLink {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
}

/// A span that has ended, or is about to.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    pub(super) parent: Option<SpanId>,
    /// Whether the parent is a span of another process.
    pub(super) has_remote_parent: bool,
    pub(super) tracestate: Option<HeaderValue>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    /// Nanoseconds since the Unix epoch.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) link: Option<SpanLink>,
    pub(super) status: SpanStatus,
}

impl Span {
    /// Sets an attribute; a text that is empty is left out.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        let value = value.into();
        if value != AttributeValue::Text(Cow::Borrowed("")) {
            self.attributes.push((name, value));
        }
    }
}
