//! Faults in the shape that OpenAI's clients read. The status decides what they do: 429 and 503 are tried again.

use super::{conversation::PARAMETER_MEMBER, json_object::with_member};
use crate::fault::{Blame, Fault, FaultCode};
use serde_json::{Value, json};

/// Returns the body of a fault.
pub(in crate::gateway) fn to_openai_error(fault: &Fault, request_id: &str) -> Value {
    let kind = match fault.code() {
        FaultCode::Unauthorized => "authentication_error",
        FaultCode::PermissionDenied => "permission_error",
        FaultCode::RateLimited => "rate_limit_error",
        code if code.row().blame == Blame::Caller => "invalid_request_error",
        _ => "server_error",
    };
    let parameter = fault.extra_members().find(|(name, _)| *name == PARAMETER_MEMBER);
    let parameter = parameter.map_or(Value::Null, |(_, name)| name.clone());
    let code = match fault.code() {
        FaultCode::Unauthorized => "invalid_api_key",
        FaultCode::NotFound => "model_not_found",
        FaultCode::RateLimited => "rate_limit_exceeded",
        code => code.row().name,
    };
    let violations: Vec<Value> = fault
        .violations()
        .iter()
        .map(|violation| json!({"pointer": violation.pointer, "message": violation.message}))
        .collect();
    let message = fault.message();
    let error = json!({"message": message, "type": kind, "param": parameter, "code": code, "request_id": request_id});
    let error = if violations.is_empty() { error } else { with_member(error, "violations", violations) };
    let timeout = fault.extra_members().find(|(name, _)| *name == "timeout");
    json!({"error": timeout.map_or(error.clone(), |(name, timeout)| with_member(error, name, timeout.clone()))})
}

#[cfg(test)]
mod tests {
    use super::*;

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
