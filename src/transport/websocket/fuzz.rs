//! Entry point for fuzzing: replies of agents over WebSocket.

use super::reply_message::{ReplyPart, parse_json_rpc, reports_failure};
use crate::agent::DeclaredMembers;
use bytes::Bytes;
use serde::de::IgnoredAny;

const ID: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// Reads a message of JSON-RPC: what it holds is JSON, and the reply is that to this call.
pub fn check_websocket_replies(data: &[u8]) {
    // The library refuses other text.
    let Ok(text) = std::str::from_utf8(data) else { return };
    let line = Bytes::copy_from_slice(text.trim_ascii().as_bytes());
    let is_json = |bytes: &Bytes| serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
    let _ = reports_failure(&line, DeclaredMembers::default());
    match parse_json_rpc(&line, ID) {
        Ok(Some(ReplyPart::Last(output))) => {
            // The id may be written with escapes.
            assert!(text.contains(ID) || text.contains('\\'), "the reply to another call");
            assert!(is_json(&output), "a result is not JSON");
        }
        Ok(Some(ReplyPart::Item(_, item))) => {
            assert!(is_json(&item), "an item is not JSON");
        }
        Ok(Some(ReplyPart::Failure(status, body))) => {
            assert!(!status.is_success() && is_json(&body), "a failure is not JSON");
        }
        Ok(Some(ReplyPart::End) | None) | Err(_) => {}
    }
}
