//! JSON-RPC 2.0: the form of a fault for whoever spoke it (R92, R94).

use super::Fault;
use serde_json::{Value, json};

/// Bytes of an id that are repeated to its sender.
const LONGEST_ID: usize = 256;

/// The id of the JSON-RPC request in `body`: null where it has none that could be one. Nothing where `body` is no
/// JSON-RPC 2.0 request at all.
pub fn rpc_id(body: &[u8]) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct Request {
        jsonrpc: String,
        #[serde(default)]
        id: Value,
    }
    // Most bodies are none, and need not be read to be known as such.
    if body.trim_ascii_start().first() != Some(&b'{') || !body.windows(9).any(|seen| seen == b"\"jsonrpc\"") {
        return None;
    }
    let Request { jsonrpc, id } = serde_json::from_slice(body).ok()?;
    let fits = match &id {
        Value::String(id) => id.len() <= LONGEST_ID,
        id => id.is_number(),
    };
    let id = if fits { id } else { Value::Null };
    (jsonrpc == "2.0").then_some(id)
}

impl Fault {
    /// `{"jsonrpc":"2.0","id":…,"error":{…}}`, the answer to the request `id`.
    pub fn rpc(&self, id: &Value, request_id: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "error": self.rpc_error(request_id)})
    }
}
