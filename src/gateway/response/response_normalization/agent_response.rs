//! An agent's response, as far as it was read, and how to treat it.

use super::ErrorDetails;
use crate::fault::Fault;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value};

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
    /// Whether the operation's output schema declares a property `error`: such a body is a result.
    pub(in crate::gateway) declares_error: bool,
    /// Whether the request carried a credential of the gateway.
    pub(in crate::gateway) credential_sent: bool,
    /// Whether the caller named a session.
    pub(in crate::gateway) has_session: bool,
    /// Which parts of an error the caller reads.
    pub(in crate::gateway) error_details: &'a ErrorDetails,
    /// Whether the log has the body of an error, which may repeat the caller's input.
    pub(in crate::gateway) logs_body: bool,
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
    /// Parses the body if it is a complete JSON object, with any content type.
    pub(super) fn parse_complete_object(&self) -> Option<Map<String, Value>> {
        let first_byte = self.body.iter().find(|b| !b.is_ascii_whitespace());
        if !self.complete || first_byte != Some(&b'{') {
            return None;
        }
        serde_json::from_slice(self.body).ok()
    }

    /// Returns the body if it is a complete plain text.
    pub(super) fn plain_text(&self) -> Option<&str> {
        let media = self.headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let is_plain = media.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/plain"));
        std::str::from_utf8(self.body).ok().filter(|text| self.complete && is_plain && !text.trim().is_empty())
    }
}

/// Whether the body is JSON-RPC (also A2A over JSON-RPC), whose protocol has errors in the body.
pub(super) fn is_json_rpc(body: &Map<String, Value>) -> bool {
    body.get("jsonrpc").is_some_and(|version| version == "2.0")
}
