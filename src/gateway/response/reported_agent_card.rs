//! The card that an A2A agent itself returns (`GetExtendedAgentCard`): its addresses are replaced by the gateway's, as in
//! the documents of the directory.

use super::CompleteReply;
use crate::{directory::AgentDirectory, gateway::route::Route};
use bytes::Bytes;
use http::header;
use memchr::memmem::{self, Finder};
use serde_json::Value;
use std::sync::LazyLock;

/// Every version of a card requires this member; most replies have none.
static SKILLS_MEMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"skills\""));

/// Returns whether a body may be an agent's card.
pub(super) fn may_be_agent_card(body: &[u8]) -> bool {
    SKILLS_MEMBER.find(body).is_some()
}

/// Returns whether the beginning of a JSON body is that of a JSON-RPC response.
pub(super) fn begins_json_rpc(beginning: &[u8]) -> bool {
    memmem::find(beginning, b"\"jsonrpc\"").is_some()
}

/// Replaces the addresses of a reply that is a card of its agent: the result of a JSON-RPC call, or, of an agent that
/// speaks A2A, the whole body.
pub(in crate::gateway) fn redact_reported_card(
    directory: &AgentDirectory,
    route: &Route,
    base_url: &str,
    reply: &mut CompleteReply,
) {
    if !may_be_agent_card(&reply.body) {
        return;
    }
    let Ok(mut body) = serde_json::from_slice::<Value>(&reply.body) else { return };
    let is_json_rpc = body.get("jsonrpc").is_some();
    let card = match body.get_mut("result") {
        Some(result) if is_json_rpc => result,
        _ if route.has_agent_card => &mut body,
        _ => return,
    };
    if !is_agent_card(card) {
        return;
    }
    directory.redact_agent_card(&route.agent, base_url, card);
    reply.body = Bytes::from(body.to_string());
    // They describe the agent's bytes.
    reply.headers.remove(header::ETAG);
    for name in ["content-digest", "repr-digest", "digest", "signature", "signature-input"] {
        reply.headers.remove(name);
    }
}

fn is_agent_card(value: &Value) -> bool {
    let has_interface =
        ["url", "supportedInterfaces", "additionalInterfaces"].iter().any(|name| value.get(name).is_some());
    has_interface && value.get("skills").is_some_and(Value::is_array) && value.get("name").is_some_and(Value::is_string)
}
