//! Protocols that the gateway does not speak itself: agents of such a protocol are called through their own API, which a
//! rule lets pass.

use serde_json::{Map, Value};

/// Member of a document with the protocol.
pub const PROTOCOL_MEMBER: &str = "protocol";
/// Its value for servers of the Model Context Protocol.
pub const MCP_PROTOCOL: &str = "mcp";

/// A protocol that the gateway passes on, and does not speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentProtocol {
    /// The Model Context Protocol over Streamable HTTP.
    Mcp,
}

impl AgentProtocol {
    /// Returns the protocol that a document names. Other values have no meaning here (R103).
    pub(super) fn of_document(fields: &Map<String, Value>) -> Option<Self> {
        (fields.get(PROTOCOL_MEMBER)?.as_str()? == MCP_PROTOCOL).then_some(Self::Mcp)
    }

    /// Returns the protocol as documents write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => MCP_PROTOCOL,
        }
    }
}
