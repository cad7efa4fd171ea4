//! Refusals before the body is read, to callers that speak JSON-RPC (R92): their clients read errors of JSON-RPC only.
//! The caller is recognised by its body where that arrives with the head, else by its head. Neither the agent's document
//! nor its existence decides, because a caller without a credential must not learn of them.

use super::{call::Call, header_names::MCP_SESSION_ID};
use crate::http_server::{BodyState, HttpSession};
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, Method, header};
use std::time::Duration;
use tokio::time::Instant;

/// The most bytes of a refused body that are read. A session that is kept alive would discard as much.
const MAX_BODY: usize = 64 << 10;
/// How long the body of a refused request may take.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// Header fields that only clients of MCP and A2A send.
const PROTOCOL_HEADERS: [HeaderName; 3] =
    [MCP_SESSION_ID, HeaderName::from_static("mcp-protocol-version"), HeaderName::from_static("a2a-version")];

/// Records whether the caller of a request that is refused speaks JSON-RPC, and the id of its request if that is known;
/// without the id the error has `null` (JSON-RPC 2.0 §5).
pub(super) async fn record_refused_json_rpc(session: &mut HttpSession, call: &mut Call) {
    // Requests for documents state a version of A2A too.
    if matches!(session.head().method, Method::GET | Method::HEAD) || call.json_rpc_id().is_some() {
        return;
    }
    if call.buffered_input.get().is_none() {
        read_refused_body(session, call).await;
    }
    call.expects_json_rpc = names_json_rpc(&session.head().headers);
}

async fn read_refused_body(session: &mut HttpSession, call: &mut Call) {
    let headers = &session.head().headers;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let may_read = !headers.contains_key(header::EXPECT) && length.is_none_or(|length| length <= MAX_BODY);
    if !may_read || session.body_state() != BodyState::Pending || session.body_bytes_read() > 0 {
        return;
    }
    let deadline = Instant::now() + MAX_WAIT;
    let mut body = BytesMut::new();
    while let Ok(chunk) = session.read_body_chunk(deadline).await {
        match chunk {
            Some(chunk) if body.len() + chunk.len() <= MAX_BODY => body.extend_from_slice(&chunk),
            Some(_) => return,
            None => {
                drop(call.buffered_input.set(body.freeze()));
                return;
            }
        }
    }
}

/// Returns whether a request head is one of JSON-RPC.
fn names_json_rpc(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    ["application/json-rpc", "application/jsonrpc"].iter().any(|name| media.eq_ignore_ascii_case(name))
        || PROTOCOL_HEADERS.iter().any(|name| headers.contains_key(name))
}
