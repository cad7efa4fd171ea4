//! Faults in the shape that OpenAI's clients read. Their SDKs make a call again, up to three times in all, after 408, 409,
//! 429 and every status from 500 on, unless a header forbids it. The header is always there: a call that the agent may
//! have executed is not made again.

use super::{conversation::PARAMETER_MEMBER, json_object::with_member};
use crate::{
    fault::{Blame, CallProgress, Fault, FaultCode},
    gateway::{header_names::IDEMPOTENT_REPLAYED, path_router::OPENAI_CODE_MEMBER},
};
use http::HeaderName;
use serde_json::{Value, json};

/// Says to OpenAI's SDKs whether they make the call again, whatever its status is.
pub(in crate::gateway) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Returns whether the same call may succeed later and is certainly not executed twice: the gateway did not send it
/// (`is_sent`), or the agent did not receive it or refused it. The stored fault of an earlier call with the same key stays;
/// while that call is in progress, another one with its key waits for its outcome.
pub(in crate::gateway) fn should_retry(fault: &Fault, is_sent: bool) -> bool {
    let is_stored = fault.headers().any(|(name, _)| name.eq_ignore_ascii_case(IDEMPOTENT_REPLAYED.as_str()));
    let is_unsent = !is_sent && fault.progress() != Some(CallProgress::PossiblySent);
    let is_in_progress = is_unsent && fault.code() == FaultCode::Conflict && fault.retry_after_secs().is_some();
    let may_succeed = fault.code().row().retryable && (is_unsent || fault.is_never_executed());
    !is_stored && (may_succeed || is_in_progress)
}

/// Returns the body of a fault.
pub(in crate::gateway) fn to_openai_error(fault: &Fault, request_id: &str) -> Value {
    let kind = match fault.code() {
        FaultCode::Unauthorized => "authentication_error",
        FaultCode::PermissionDenied => "permission_error",
        FaultCode::RateLimited => "rate_limit_error",
        code if code.row().blame == Blame::Caller => "invalid_request_error",
        _ => "server_error",
    };
    let member = |name: &str| fault.extra_members().find(|(own, _)| *own == name).map(|(_, value)| value);
    let parameter = member(PARAMETER_MEMBER).cloned().unwrap_or_default();
    let code = match fault.code() {
        _ if member(OPENAI_CODE_MEMBER).is_some() => {
            member(OPENAI_CODE_MEMBER).and_then(Value::as_str).unwrap_or_default()
        }
        FaultCode::Unauthorized => "invalid_api_key",
        FaultCode::NotFound => "model_not_found",
        FaultCode::RateLimited => "rate_limit_exceeded",
        code => code.row().name,
    };
    let violations: Vec<Value> = fault.violations().iter().map(|violation| json!(violation)).collect();
    let message = fault.message();
    let error = json!({"message": message, "type": kind, "param": parameter, "code": code, "request_id": request_id});
    let error = if violations.is_empty() { error } else { with_member(error, "violations", violations) };
    let error = match member("timeout") {
        Some(timeout) => with_member(error, "timeout", timeout.clone()),
        None => error,
    };
    json!({ "error": error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_calls_that_no_agent_executed_are_made_again() {
        let new = |code| Fault::new(code, "Why");
        for (fault, is_sent, retries) in [
            (new(FaultCode::RateLimited), false, true),
            (new(FaultCode::Overloaded), false, true),
            (new(FaultCode::Timeout).with_status(408), false, true),
            // The agent refused it.
            (new(FaultCode::AgentUnavailable), true, true),
            (new(FaultCode::RateLimited), true, true),
            (new(FaultCode::Timeout).with_progress(CallProgress::NotSent), true, true),
            (new(FaultCode::Timeout), true, false),
            (new(FaultCode::AgentUnavailable).with_progress(CallProgress::PossiblySent), true, false),
            (new(FaultCode::AgentError), true, false),
            (new(FaultCode::AgentError).with_status(500), true, false),
            (new(FaultCode::AgentError).with_progress(CallProgress::NotSent), true, false),
            (new(FaultCode::Internal), false, false),
            (new(FaultCode::Conflict), false, false),
            // The first call with the key is in progress.
            (new(FaultCode::Conflict).with_retry_after(Duration::from_secs(1)), false, true),
            (new(FaultCode::Conflict).with_retry_after(Duration::from_secs(1)), true, false),
            (new(FaultCode::InvalidInput), false, false),
            (new(FaultCode::Timeout).with_header("Idempotent-Replayed", "true"), false, false),
        ] {
            assert_eq!(should_retry(&fault, is_sent), retries, "{fault:?}, sent: {is_sent}");
        }
    }

    #[test]
    fn every_fault_has_a_type_and_a_code() {
        for code in FaultCode::ALL {
            let error = to_openai_error(&Fault::new(*code, "Why"), "id");
            let error = &error["error"];
            assert_eq!(
                (&error["message"], &error["param"], &error["request_id"]),
                (&json!("Why"), &Value::Null, &json!("id"))
            );
            assert!(error["type"].as_str().is_some_and(|kind| kind.ends_with("_error")), "{code:?}");
            assert!(error["code"].is_string());
        }
        let named = Fault::new(FaultCode::InvalidInput, "n").with_member(PARAMETER_MEMBER, json!("n"));
        assert_eq!(to_openai_error(&named, "id")["error"]["param"], "n");
    }
}
