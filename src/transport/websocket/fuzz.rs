//! Entry point for fuzzing: replies of agents over WebSocket.

use super::reply_message::{ReplyPart, parse_json_rpc, reports_failure};
use crate::agent::DeclaredMembers;
use bytes::Bytes;
use serde_json::Value;

const ID: &str = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff";

/// Reads a message of JSON-RPC: what it holds is JSON, and the reply is that to this call.
pub fn check_websocket_replies(data: &[u8]) {
    let line = Bytes::copy_from_slice(data.trim_ascii());
    let message = || serde_json::from_slice::<Value>(&line).unwrap_or_default();
    let _ = reports_failure(&line, DeclaredMembers::default());
    match parse_json_rpc(&line, ID) {
        Ok(Some(ReplyPart::Last(output))) => {
            assert!(message().get("id").is_some_and(|id| id == ID), "the reply to another call");
            assert!(serde_json::from_slice::<Value>(&output).is_ok(), "a result is not JSON");
        }
        Ok(Some(ReplyPart::Item(_, item))) => {
            assert!(serde_json::from_slice::<Value>(&item).is_ok(), "an item is not JSON");
        }
        Ok(Some(ReplyPart::Failure(status, body))) => {
            assert!(!status.is_success() && serde_json::from_slice::<Value>(&body).is_ok(), "a failure is not JSON");
        }
        Ok(Some(ReplyPart::End) | None) | Err(_) => {}
    }
}
