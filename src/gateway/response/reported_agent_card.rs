//! The card that an A2A agent itself returns (`GetExtendedAgentCard`): a face of the agent like those of the directory,
//! so its addresses are replaced by the gateway's.

use super::CompleteReply;
use crate::{agent::Agent, directory::AgentDirectory};
use bytes::Bytes;
use http::{HeaderName, header};
use memchr::memmem::Finder;
use serde_json::Value;
use std::sync::LazyLock;

/// Every version of a card requires this member; most replies have none.
static SKILLS_MEMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"skills\""));

/// Returns whether a body may be an agent's card.
pub(super) fn may_be_agent_card(body: &[u8]) -> bool {
    SKILLS_MEMBER.find(body).is_some()
}

/// The faces of one agent, at the base URL of a caller.
pub(super) struct AgentFaces<'a> {
    pub(super) directory: &'a AgentDirectory,
    pub(super) agent: &'a Agent,
    /// Whether the agent has a card, so that it speaks A2A.
    pub(super) has_card: bool,
}

impl AgentFaces<'_> {
    /// Redacts the addresses of a reply that is the agent's card: the result of a JSON-RPC call, or, of an agent that
    /// speaks A2A, the whole body.
    pub(super) fn redact_card(&self, reply: &mut CompleteReply, base_url: &str) {
        let Ok(mut body) = serde_json::from_slice::<Value>(&reply.body) else { return };
        let is_json_rpc = body.get("jsonrpc").is_some();
        let card = match body.get_mut("result") {
            Some(result) if is_json_rpc => result,
            _ if self.has_card => &mut body,
            _ => return,
        };
        if !is_agent_card(card) {
            return;
        }
        self.directory.redact_agent_card(self.agent, base_url, card);
        reply.body = Bytes::from(body.to_string());
        // They describe the agent's bytes.
        for name in [header::ETAG, HeaderName::from_static("content-digest"), HeaderName::from_static("digest")] {
            reply.headers.remove(name);
        }
    }
}

fn is_agent_card(value: &Value) -> bool {
    let has_interface =
        ["url", "supportedInterfaces", "additionalInterfaces"].iter().any(|name| value.get(name).is_some());
    has_interface && value.get("skills").is_some_and(Value::is_array) && value.get("name").is_some_and(Value::is_string)
}
