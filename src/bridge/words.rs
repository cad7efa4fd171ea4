//! What the bridge publishes: statuses, answers, failures, and tasks for the next agent. No failure leaves here with more
//! than a code and a sentence for whoever reads the conversation (R117, R132, R133).

use crate::fault::{Code, Fault, public_text};
use serde_json::{Map, Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The protocol's codes (R115).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ToolExecutionFailed,
    InvalidInput,
    PipelineDepthExceeded,
    InternalError,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ToolExecutionFailed => "tool_execution_failed",
            Self::InvalidInput => "invalid_input",
            Self::PipelineDepthExceeded => "pipeline_depth_exceeded",
            Self::InternalError => "internal_error",
        }
    }
}

/// Why a task failed, as the conversation reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A fault of the gateway's in the protocol's words. What concerns the bridge's own standing with the gateway is
    /// nothing that a conversation could mend.
    pub(super) fn of(fault: &Fault) -> Self {
        let kind = match fault.code() {
            Code::AgentError | Code::AgentUnavailable | Code::Timeout => Kind::ToolExecutionFailed,
            Code::Unauthorized | Code::PermissionDenied | Code::NotFound => {
                return Self::new(Kind::InternalError, "the agent cannot be called here now");
            }
            Code::RateLimited => return Self::new(Kind::InternalError, "too many tasks, try again later"),
            Code::Overloaded => return Self::new(Kind::InternalError, "too busy, try again later"),
            Code::Internal => return Self::new(Kind::InternalError, "the task failed"),
            _ => Kind::InvalidInput,
        };
        // A violation of the schema says what to change; it speaks of the input alone.
        let told = match fault.broken().first() {
            Some(first) if !first.pointer.is_empty() => {
                format!("{} ({}: {})", fault.message(), first.pointer, first.message)
            }
            Some(first) => format!("{} ({})", fault.message(), first.message),
            None => fault.message().to_owned(),
        };
        let told = public_text(&told).or_else(|| public_text(fault.message()));
        Self::new(kind, told.unwrap_or(fault.code().row().title))
    }

    /// The message on the wire (R115).
    pub(super) fn payload(&self, task: Option<&str>) -> Vec<u8> {
        json!({"error": {"code": self.kind.name(), "message": self.message}, "task_id": task}).to_string().into_bytes()
    }
}

/// What an agent says of itself besides whether it is available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// What it does; empty where nothing is known.
    pub description: String,
    /// What it can do, in words.
    pub capabilities: Vec<String>,
}

/// The status of an agent (R113, R114); with a card where it is available.
pub(super) fn status(agent: &str, card: Option<&Card>) -> Vec<u8> {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).ok();
    let now = now.and_then(|now| now.format(&Rfc3339).ok()).unwrap_or_default();
    let mut fields = Map::new();
    fields.insert("agent_id".to_owned(), agent.into());
    fields.insert("status".to_owned(), if card.is_some() { "available" } else { "unavailable" }.into());
    fields.insert("timestamp".to_owned(), now.into());
    if let Some(card) = card {
        if !card.description.is_empty() {
            fields.insert("description".to_owned(), card.description.as_str().into());
        }
        fields.insert("capabilities".to_owned(), card.capabilities.as_slice().into());
    }
    Value::Object(fields).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r113_r114_a_status_has_its_fields_and_a_time_with_z() {
        let card = Card { description: "Echoes".to_owned(), capabilities: vec!["echo".to_owned()] };
        for (card, word) in [(Some(&card), "available"), (None, "unavailable")] {
            let status: Value = serde_json::from_slice(&status("a", card)).unwrap();
            assert_eq!((&status["agent_id"], &status["status"]), (&json!("a"), &json!(word)));
            let time = status["timestamp"].as_str().unwrap();
            assert!(time.ends_with('Z') && OffsetDateTime::parse(time, &Rfc3339).is_ok(), "{time}");
            assert_eq!(status.get("capabilities").is_some(), card.is_some());
        }
    }

    #[test]
    fn r115_every_code_becomes_one_of_the_protocols() {
        for code in Code::ALL {
            let failure = Failure::of(&Fault::new(*code, "something is wrong"));
            let payload: Value = serde_json::from_slice(&failure.payload(Some("t"))).unwrap();
            assert!(!payload["error"]["message"].as_str().unwrap().is_empty());
            assert_eq!(payload["task_id"], "t");
        }
        let of = |code| Failure::of(&Fault::new(code, "no")).kind;
        assert_eq!(of(Code::InvalidInput), Kind::InvalidInput);
        assert_eq!(of(Code::CapabilityNotFound), Kind::InvalidInput);
        assert_eq!(of(Code::Timeout), Kind::ToolExecutionFailed);
        assert_eq!(of(Code::Unauthorized), Kind::InternalError);
        assert_eq!(of(Code::Overloaded), Kind::InternalError);
    }

    #[test]
    fn r117_r132_r133_no_failure_tells_of_the_inside() {
        for inside in [
            "open /srv/app/key.pem",
            "Traceback (most recent call last)",
            "dial 10.0.0.7:9000",
            "key sk-abc123def456ghi789jkl0",
        ] {
            let fault = Fault::new(Code::AgentError, inside.to_owned()).detail(inside);
            let told = String::from_utf8(Failure::of(&fault).payload(None)).unwrap();
            assert!(!told.contains(inside), "{told}");
        }
    }
}
