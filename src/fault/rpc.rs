//! JSON-RPC 2.0: the form of a fault for whoever spoke it (R92, R94).

use super::{Code, Fault};
use serde_json::{Map, Value, json};

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
    (jsonrpc == "2.0").then(|| if fits { id } else { Value::Null })
}

impl Fault {
    /// `{"jsonrpc":"2.0","id":…,"error":{"code","message","data"}}`; `data` is the error object of every other form.
    pub fn rpc(&self, id: &Value, request_id: &str) -> Value {
        let mut data = Map::new();
        data.insert("code".into(), self.code().row().name.into());
        data.insert("status".into(), self.http_status().into());
        self.extras(&mut data);
        data.insert("request_id".into(), request_id.into());
        json!({
            "jsonrpc": "2.0",
            "id": id,
            "error": {"code": self.rpc_code(), "message": self.message(), "data": data},
        })
    }

    /// One of the codes that the protocol reserves, or -32000, which it leaves to servers; `data.code` tells the rest
    /// apart.
    fn rpc_code(&self) -> i32 {
        match self.code() {
            Code::InvalidInput => -32602,
            Code::CapabilityNotFound | Code::MethodNotAllowed => -32601,
            Code::Internal => -32603,
            _ => -32000,
        }
    }
}
