//! Payloads that the bridge publishes: agent statuses and task errors. An error payload contains a code and a
//! redacted sentence, but not the detail for the log (R117, R132, R133).

use crate::fault::{Fault, FaultCode, public_message};
use serde_json::{Map, Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Error codes of the protocol (R115).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskErrorCode {
    ToolExecutionFailed,
    InvalidInput,
    PipelineDepthExceeded,
    InternalError,
}

impl TaskErrorCode {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ToolExecutionFailed => "tool_execution_failed",
            Self::InvalidInput => "invalid_input",
            Self::PipelineDepthExceeded => "pipeline_depth_exceeded",
            Self::InternalError => "internal_error",
        }
    }
}

/// Error of a task, as the conversation receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskError {
    pub(super) code: TaskErrorCode,
    pub(super) message: String,
}

impl TaskError {
    pub(super) fn new(code: TaskErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Translates a fault of the gateway into an error of the protocol. Faults about the bridge's own key or grants
    /// become an internal error, because the sender of the task cannot correct them.
    pub(super) fn from_fault(fault: &Fault) -> Self {
        let code = match fault.code() {
            FaultCode::AgentError | FaultCode::AgentUnavailable | FaultCode::Timeout | FaultCode::PaymentRequired => {
                TaskErrorCode::ToolExecutionFailed
            }
            FaultCode::Unauthorized | FaultCode::PermissionDenied | FaultCode::NotFound => {
                return Self::new(TaskErrorCode::InternalError, "The agent cannot be called at the moment");
            }
            FaultCode::RateLimited => {
                return Self::new(TaskErrorCode::InternalError, "Too many tasks; try again later");
            }
            FaultCode::Overloaded => {
                return Self::new(TaskErrorCode::InternalError, "The gateway is overloaded; try again later");
            }
            FaultCode::Internal => return Self::new(TaskErrorCode::InternalError, "The task failed"),
            _ => TaskErrorCode::InvalidInput,
        };
        // A schema violation tells the sender what to correct; it describes only the input.
        let text = match fault.violations().first() {
            Some(first) if !first.pointer.is_empty() => {
                format!("{} ({}: {})", fault.message(), first.pointer, first.message)
            }
            Some(first) => format!("{} ({})", fault.message(), first.message),
            None => fault.message().to_owned(),
        };
        let text = public_message(&text).or_else(|| public_message(fault.message()));
        Self::new(code, text.as_deref().unwrap_or(fault.code().row().title))
    }

    /// Serializes the error as a message of the protocol (R115).
    pub(super) fn payload(&self, task: Option<&str>) -> Vec<u8> {
        json!({"error": {"code": self.code.name(), "message": self.message}, "task_id": task}).to_string().into_bytes()
    }
}

/// Details that an available agent publishes in its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusDetails {
    /// Description of the agent; empty if unknown.
    pub description: String,
    /// Names of the capabilities.
    pub capabilities: Vec<String>,
}

/// Serializes the status of an agent (R113, R114): available with `details`, unavailable without.
pub(super) fn status_payload(agent: &str, details: Option<&StatusDetails>) -> Vec<u8> {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).ok();
    let now = now.and_then(|now| now.format(&Rfc3339).ok()).unwrap_or_default();
    let mut fields = Map::new();
    fields.insert("agent_id".to_owned(), agent.into());
    fields.insert("status".to_owned(), if details.is_some() { "available" } else { "unavailable" }.into());
    fields.insert("timestamp".to_owned(), now.into());
    if let Some(details) = details {
        if !details.description.is_empty() {
            fields.insert("description".to_owned(), details.description.as_str().into());
        }
        fields.insert("capabilities".to_owned(), details.capabilities.as_slice().into());
    }
    Value::Object(fields).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r113_r114_a_status_has_its_fields_and_a_utc_timestamp() {
        let details = StatusDetails { description: "Echoes".to_owned(), capabilities: vec!["echo".to_owned()] };
        for (details, availability) in [(Some(&details), "available"), (None, "unavailable")] {
            let status: Value = serde_json::from_slice(&status_payload("a", details)).unwrap();
            assert_eq!((&status["agent_id"], &status["status"]), (&json!("a"), &json!(availability)));
            let time = status["timestamp"].as_str().unwrap();
            assert!(time.ends_with('Z') && OffsetDateTime::parse(time, &Rfc3339).is_ok(), "{time}");
            assert_eq!(status.get("capabilities").is_some(), details.is_some());
        }
    }

    #[test]
    fn r115_every_fault_code_maps_to_a_code_of_the_protocol() {
        for code in FaultCode::ALL {
            let error = TaskError::from_fault(&Fault::new(*code, "something is wrong"));
            let payload: Value = serde_json::from_slice(&error.payload(Some("t"))).unwrap();
            assert!(!payload["error"]["message"].as_str().unwrap().is_empty());
            assert_eq!(payload["task_id"], "t");
        }
        let code_for = |code| TaskError::from_fault(&Fault::new(code, "no")).code;
        assert_eq!(code_for(FaultCode::InvalidInput), TaskErrorCode::InvalidInput);
        assert_eq!(code_for(FaultCode::CapabilityNotFound), TaskErrorCode::InvalidInput);
        assert_eq!(code_for(FaultCode::Timeout), TaskErrorCode::ToolExecutionFailed);
        assert_eq!(code_for(FaultCode::Unauthorized), TaskErrorCode::InternalError);
        assert_eq!(code_for(FaultCode::Overloaded), TaskErrorCode::InternalError);
    }

    #[test]
    fn r117_r132_r133_error_payloads_reveal_no_internals() {
        for internal_text in [
            "open /srv/app/key.pem",
            "Traceback (most recent call last)",
            "dial 10.0.0.7:9000",
            "key sk-abc123def456ghi789jkl0",
        ] {
            let fault = Fault::new(FaultCode::AgentError, internal_text.to_owned()).with_detail(internal_text);
            let text = String::from_utf8(TaskError::from_fault(&fault).payload(None)).unwrap();
            assert!(!text.contains(internal_text), "{text}");
        }
    }
}
