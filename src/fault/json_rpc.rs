//! Requests of JSON-RPC 2.0, whose callers get errors of JSON-RPC (R92, R94).

use memchr::memmem;
use serde_json::Value;

/// Maximum length in bytes of a request id that is echoed.
const MAX_ID_LEN: usize = 256;

/// Returns the id of the JSON-RPC request in `body`, or null if the id is absent or unusable. Returns `None` if `body`
/// is not a JSON-RPC 2.0 request.
pub fn json_rpc_request_id(body: &[u8]) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct JsonRpcRequestId {
        jsonrpc: String,
        #[serde(default)]
        id: Value,
    }
    // Most bodies are not JSON-RPC, and this check is faster than the parser.
    if body.trim_ascii_start().first() != Some(&b'{') || memmem::find(body, b"\"jsonrpc\"").is_none() {
        return None;
    }
    let JsonRpcRequestId { jsonrpc, id } = serde_json::from_slice(body).ok()?;
    let is_usable = match &id {
        Value::String(id) => id.len() <= MAX_ID_LEN,
        id => id.is_number(),
    };
    let id = if is_usable { id } else { Value::Null };
    (jsonrpc == "2.0").then_some(id)
}
