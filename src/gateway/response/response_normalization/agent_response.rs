//! An agent's response, as far as it was read, and how to treat it.

use super::{super::media_types::media_type_essence, ErrorDetails};
use crate::{agent::DeclaredMembers, fault::Fault};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use std::cell::OnceCell;

/// An agent's response, as far as it was read.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct AgentResponse<'a> {
    /// The HTTP status.
    pub(in crate::gateway) status: StatusCode,
    /// The header fields as sent by the agent.
    pub(in crate::gateway) headers: &'a HeaderMap,
    /// The beginning of the body.
    pub(in crate::gateway) body: &'a [u8],
    /// Whether `body` is the whole body.
    pub(in crate::gateway) complete: bool,
    /// Members that the operation's output schema declares: they are data.
    pub(in crate::gateway) declared_members: DeclaredMembers,
    /// Whether the request carried a credential of the gateway.
    pub(in crate::gateway) credential_sent: bool,
    /// Whether the caller named a session.
    pub(in crate::gateway) has_session: bool,
    /// Which protocols' errors the caller reads itself at this agent.
    pub(in crate::gateway) read_errors: ReadErrors,
    /// Which parts of an error the caller reads.
    pub(in crate::gateway) error_details: &'a ErrorDetails,
    /// Whether the log has the body of an error, which may repeat the caller's input.
    pub(in crate::gateway) logs_body: bool,
}

/// The protocols whose errors the caller of an agent reads from their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct ReadErrors {
    /// The request is one of JSON-RPC.
    pub(in crate::gateway) json_rpc: bool,
    /// The agent has a card of A2A, whose HTTP binding has errors in the form of `google.rpc.Status`.
    pub(in crate::gateway) a2a: bool,
}

/// How to treat a response.
#[derive(Debug)]
pub(in crate::gateway) enum ResponseVerdict {
    /// Pass it to the caller unchanged.
    Pass,
    /// Pass it to the caller unchanged, and record the failure that it reports in its protocol's own form.
    PassError(Fault),
    /// It is a failure; the caller gets this fault instead.
    Fault(Fault),
}

impl AgentResponse<'_> {
    /// Returns whether an error with this body passes unread: its caller speaks the protocol, and the operator lets
    /// callers read agents' errors.
    pub(super) fn passes_error(&self, body: &Map<String, Value>) -> bool {
        let is_read = (self.read_errors.json_rpc && is_json_rpc(body))
            || (self.read_errors.a2a && is_a2a_error(body, self.status.as_u16()));
        is_read && *self.error_details != ErrorDetails::None
    }

    /// Returns the body if it is a complete plain text.
    pub(super) fn plain_text(&self) -> Option<&str> {
        let is_plain = media_type_essence(self.headers).eq_ignore_ascii_case(b"text/plain");
        std::str::from_utf8(self.body).ok().filter(|text| self.complete && is_plain && !text.trim().is_empty())
    }
}

/// The JSON object that a response's body is, with any content type; parsed once, where it is first asked for.
pub(super) struct JsonObjectBody<'a> {
    response: &'a AgentResponse<'a>,
    object: OnceCell<Option<Map<String, Value>>>,
}

impl<'a> JsonObjectBody<'a> {
    pub(super) fn of(response: &'a AgentResponse<'a>) -> Self {
        Self { response, object: OnceCell::new() }
    }

    /// Returns the object, if the body is complete and is one.
    pub(super) fn object(&self) -> Option<&Map<String, Value>> {
        let AgentResponse { body, complete, .. } = *self.response;
        let parse = || {
            let first_byte = body.iter().find(|b| !b.is_ascii_whitespace());
            let is_object = complete && first_byte == Some(&b'{');
            is_object.then(|| serde_json::from_slice(body).ok()).flatten()
        };
        self.object.get_or_init(parse).as_ref()
    }
}

/// Whether the body is JSON-RPC (also A2A over JSON-RPC), whose protocol has errors in the body.
pub(super) fn is_json_rpc(body: &Map<String, Value>) -> bool {
    body.get("jsonrpc").is_some_and(|version| version == "2.0")
}

/// Whether the body is an A2A REST error: `error` with a numeric code and one of the canonical status names.
pub(super) fn is_a2a_error(body: &Map<String, Value>, status: u16) -> bool {
    const NAMES: [&str; 16] = [
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let Some(error) = body.get("error").and_then(Value::as_object) else {
        return false;
    };
    let name = error.get("status").and_then(Value::as_str);
    error.get("code").and_then(Value::as_u64) == Some(u64::from(status))
        && name.is_some_and(|name| NAMES.contains(&name))
}
