//! The session of a call, so that all calls of a session reach one endpoint (R76).

use crate::{
    agent::AgentId,
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    gateway::header_names::{MCP_SESSION_ID, SESSION_ID},
    transport,
};
use http::{HeaderMap, HeaderName};

/// Headers that identify a session: the caller's own (R76), and MCP's.
const SESSION_HEADERS: [HeaderName; 2] = [SESSION_ID, MCP_SESSION_ID];

/// The query parameter that identifies a session.
const SESSION_PARAMETER: &str = "sessionId";

/// The longest session id, in characters.
const MAX_SESSION_ID: usize = 256;

/// Returns the hash of the caller's session: the session that the caller names in a header or in the query, or that an
/// agent named (MCP). The hash covers the caller: two callers never share a session.
///
/// # Errors
/// `InvalidInput` for a malformed session id in a header.
pub(super) fn session_hash(headers: &HeaderMap, query: Option<&str>, caller: &Caller) -> Result<Option<u64>> {
    let mut session_hash = None;
    for name in SESSION_HEADERS {
        let Some(value) = headers.get(&name) else { continue };
        let id = value.as_bytes();
        if !(1..=MAX_SESSION_ID).contains(&id.len()) || !id.iter().all(u8::is_ascii_graphic) {
            let message = format!("{name} is not a session id (1 to {MAX_SESSION_ID} visible ASCII characters)");
            return Err(Fault::new(FaultCode::InvalidInput, message));
        }
        session_hash = session_hash.or_else(|| Some(hash_session(caller, id)));
    }
    Ok(session_hash.or_else(|| Some(hash_session(caller, session_in_query(query?)?.as_bytes()))))
}

fn session_in_query(query: &str) -> Option<&str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut session_ids = pairs.filter(|(name, value)| *name == SESSION_PARAMETER && AgentId::is_valid(value));
    session_ids.next().map(|(_, id)| id)
}

fn hash_session(caller: &Caller, id: &[u8]) -> u64 {
    transport::stable_hash(&[caller.id.as_bytes(), id])
}
