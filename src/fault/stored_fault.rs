//! A fault as a store keeps it, so that any gateway can repeat it to the caller.

use super::{CallProgress, Fault, FaultCode, Violation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The parts of a fault that its caller receives or the log repeats. It leaves out the detail, which only the gateway that
/// saw the failure logs, and the rule, which is one of that gateway's configuration.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StoredFault {
    code: String,
    status: u16,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    violations: Vec<Violation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    members: Vec<(String, Value)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<StoredProgress>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum StoredProgress {
    NotSent,
    PossiblySent,
}

impl From<&Fault> for StoredFault {
    fn from(fault: &Fault) -> Self {
        let inner = &*fault.0;
        Self {
            code: inner.code.row().name.to_owned(),
            status: inner.status,
            message: inner.message.to_string(),
            log_message: inner.log_message.as_ref().map(ToString::to_string),
            retry_after_ms: inner.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            violations: inner.violations.clone(),
            headers: fault.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            members: fault.extra_members().map(|(name, value)| (name.to_owned(), value.clone())).collect(),
            progress: inner.progress.map(|progress| match progress {
                CallProgress::NotSent => StoredProgress::NotSent,
                CallProgress::PossiblySent => StoredProgress::PossiblySent,
            }),
        }
    }
}

impl StoredFault {
    /// Returns the fault; `None` if this version does not know its code, or the code has no such status.
    pub fn into_fault(self) -> Option<Fault> {
        let code = FaultCode::from_name(&self.code)?;
        let row = code.row();
        if self.status != row.status && !row.other_statuses.contains(&self.status) {
            return None;
        }
        let mut fault = Fault::new(code, self.message);
        fault.0.status = self.status;
        fault.0.log_message = self.log_message.map(Into::into);
        fault.0.retry_after = self.retry_after_ms.map(Duration::from_millis);
        fault.0.violations = self.violations;
        fault.0.headers = self.headers.into_iter().map(|(name, value)| (name.into(), value)).collect();
        fault.0.extra_members = self.members.into_iter().map(|(name, value)| (name.into(), value)).collect();
        fault.0.progress = self.progress.map(|progress| match progress {
            StoredProgress::NotSent => CallProgress::NotSent,
            StoredProgress::PossiblySent => CallProgress::PossiblySent,
        });
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::ErrorFormat;
    use serde_json::json;

    #[test]
    fn a_stored_fault_tells_the_caller_the_same() {
        let violation = Violation::new("/a", "is missing");
        let fault = Fault::new(FaultCode::AgentError, "The agent failed")
            .with_status(500)
            .with_agent_message("card 4111".to_owned())
            .with_retry_after(Duration::from_millis(1_500))
            .with_header("Allow", "POST")
            .with_member("agent_error", json!({"code": 7}))
            .with_violations(vec![violation])
            .with_progress(CallProgress::PossiblySent)
            .with_detail("connection to 10.0.0.1 was reset");
        let text = serde_json::to_string(&StoredFault::from(&fault)).unwrap();
        assert!(!text.contains("10.0.0.1"), "{text}");
        let restored = serde_json::from_str::<StoredFault>(&text).unwrap().into_fault().unwrap();
        assert_eq!(restored.to_body(ErrorFormat::Problem, "id"), fault.to_body(ErrorFormat::Problem, "id"));
        assert_eq!(restored.http_status(), 500);
        assert!(restored.headers().eq(fault.headers()));
        assert_eq!((restored.log_message(), restored.detail()), (fault.log_message(), None));
        assert_eq!((restored.progress(), restored.retry_after_secs()), (fault.progress(), fault.retry_after_secs()));
    }

    #[test]
    fn a_fault_of_another_version_is_none() {
        for text in
            [r#"{"code":"Renamed","status":500,"message":"m"}"#, r#"{"code":"AgentError","status":200,"message":"m"}"#]
        {
            assert!(serde_json::from_str::<StoredFault>(text).unwrap().into_fault().is_none(), "{text}");
        }
        let unknown = r#"{"code":"AgentError","status":502,"message":"m","new":1}"#;
        assert!(serde_json::from_str::<StoredFault>(unknown).is_err());
    }
}
