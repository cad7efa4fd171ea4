//! Message formats of faults, for messages without a status line: the error object with the members of problem details
//! (R92, R93), and the error object of JSON-RPC 2.0 (R94).

use super::{Fault, FaultCode};
use serde_json::{Value, json};

impl FaultCode {
    /// Returns the JSON-RPC 2.0 error code (§5.1): the predefined code if one exists, otherwise a server-defined code.
    pub const fn json_rpc_code(self) -> i64 {
        match self {
            Self::InvalidInput => -32602,
            Self::CapabilityNotFound => -32601,
            Self::Internal => -32603,
            Self::Unauthorized => -32041,
            Self::PermissionDenied => -32043,
            Self::NotFound => -32044,
            Self::MethodNotAllowed => -32045,
            Self::NotAcceptable => -32046,
            Self::Conflict => -32049,
            Self::Gone => -32050,
            Self::PreconditionFailed => -32052,
            Self::PayloadTooLarge => -32053,
            Self::UnsupportedMediaType => -32055,
            Self::IdempotencyMismatch => -32062,
            Self::RateLimited => -32069,
            Self::AgentError => -32072,
            Self::AgentUnavailable => -32073,
            Self::Timeout => -32074,
            Self::Overloaded => -32075,
        }
    }
}

impl Fault {
    /// Returns `{"error":{…}}`, with the additional members `type`, `title`, `status` and `detail`.
    pub fn to_message_object(&self, request_id: &str) -> Value {
        let mut object = self.to_error_object(request_id);
        let problem = self.to_problem_details(request_id);
        for name in ["type", "title", "status", "detail"] {
            if let (Some(error), Some(value)) =
                (object.get_mut("error").and_then(Value::as_object_mut), problem.get(name))
            {
                error.insert(name.to_owned(), value.clone());
            }
        }
        object
    }

    /// Returns the `error` member of a JSON-RPC response, with problem details as its `data` (R90).
    pub fn to_json_rpc_error(&self, request_id: &str) -> Value {
        json!({"code": self.code().json_rpc_code(), "message": self.message(), "data": self.to_problem_details(request_id)})
    }
}
