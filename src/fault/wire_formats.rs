//! Wire formats of faults: the error object of AIDIP, problem details, and an event in a stream.

use super::Fault;
use serde_json::{Map, Value, json};

/// The format of an error response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorFormat {
    /// `{"error":{"code","message",…}}` (R36).
    #[default]
    Error,
    /// `application/problem+json` (R90, RFC 9457).
    Problem,
}

impl ErrorFormat {
    /// Returns the media type of the body.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Error => "application/json",
            Self::Problem => "application/problem+json",
        }
    }
}

impl Fault {
    /// Returns the body in `format`. `request_id` is the id of the call in the access log.
    pub fn to_body(&self, format: ErrorFormat, request_id: &str) -> Vec<u8> {
        let value = match format {
            ErrorFormat::Error => self.to_error_object(request_id),
            ErrorFormat::Problem => self.to_problem_details(request_id),
        };
        value.to_string().into_bytes()
    }

    /// Returns `{"error":{…}}`, which is also the form of a failed batch item (R36, R44).
    pub fn to_error_object(&self, request_id: &str) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), self.code().row().name.into());
        error.insert("message".into(), self.message().into());
        self.add_extra_members(&mut error);
        error.insert("request_id".into(), request_id.into());
        json!({ "error": error })
    }

    /// Returns problem details (RFC 9457) with the additional member `code`, as in the other formats.
    pub(super) fn to_problem_details(&self, request_id: &str) -> Value {
        let row = self.code().row();
        let mut problem = Map::new();
        problem.insert("type".into(), format!("urn:problem-type:gatepost:{}", row.name).into());
        problem.insert("title".into(), row.title.into());
        problem.insert("status".into(), self.http_status().into());
        problem.insert("detail".into(), self.message().into());
        problem.insert("instance".into(), format!("urn:gatepost:call:{request_id}").into());
        problem.insert("code".into(), row.name.into());
        self.add_extra_members(&mut problem);
        problem.insert("request_id".into(), request_id.into());
        Value::Object(problem)
    }

    /// Returns the event that ends a stream: `event: error`, or for the JSON-RPC request `json_rpc_id` an event with
    /// its response. Includes the empty line that terminates the event.
    pub fn to_event(&self, request_id: &str, json_rpc_id: Option<&Value>) -> String {
        match json_rpc_id {
            Some(id) => format!("data: {}\n\n", self.to_json_rpc_response(id, request_id)),
            None => format!("event: error\ndata: {}\n\n", self.to_error_object(request_id)),
        }
    }

    fn add_extra_members(&self, members: &mut Map<String, Value>) {
        if !self.violations().is_empty() {
            members.insert("details".into(), serde_json::to_value(self.violations()).unwrap_or_default());
        }
        if let Some(secs) = self.retry_after_secs() {
            members.insert("retry_after".into(), secs.into());
        }
        for (name, value) in self.extra_members() {
            members.insert((*name).into(), value.clone());
        }
    }
}
