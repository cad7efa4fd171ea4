//! JSON-RPC 2.0 error responses, for callers that sent JSON-RPC (R92, R94).

use super::Fault;
use serde_json::{Value, json};

/// Maximum length in bytes of a request id that is echoed.
const LONGEST_ID: usize = 256;

/// Returns the id of the JSON-RPC request in `body`: null if the id is absent or unusable. Returns `None` if `body` is
/// not a JSON-RPC 2.0 request.
pub fn rpc_id(body: &[u8]) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct Request {
        jsonrpc: String,
        #[serde(default)]
        id: Value,
    }
    // Most bodies are not JSON-RPC; this check avoids parsing them.
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
    /// Returns `{"jsonrpc":"2.0","id":…,"error":{…}}`, the response to the request `id`.
    pub fn rpc(&self, id: &Value, request_id: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "error": self.rpc_error(request_id)})
    }
}
