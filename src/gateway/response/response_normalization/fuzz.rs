//! Entry point for fuzzing: responses of agents.

use super::{AgentResponse, ErrorDetails, ReadErrors, ResponseVerdict, classify_response};
use crate::{agent::DeclaredMembers, fault::ErrorFormat};
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// Classifies a response: its status on the first line, its content type on the second, then its body. A status of an
/// error is no result, and a failure has a body of JSON.
pub fn check_agent_responses(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let (Some(status), Some(content_type), Some(body)) = (lines.next(), lines.next(), lines.next()) else { return };
    let Ok(status) = StatusCode::from_bytes(status) else { return };
    let Ok(content_type) = HeaderValue::from_bytes(content_type) else { return };
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type)]);
    let pointer = ErrorDetails::Pointer("/error/message".to_owned());
    for error_details in [&ErrorDetails::Message, &ErrorDetails::All, &ErrorDetails::None, &pointer] {
        let response = AgentResponse {
            status,
            headers: &headers,
            body,
            complete: true,
            declared_members: DeclaredMembers::default(),
            credential_sent: true,
            has_session: true,
            read_errors: ReadErrors { json_rpc: true, a2a: true },
            error_details,
            logs_body: true,
        };
        match classify_response(&response) {
            ResponseVerdict::Pass => assert!(status.is_success(), "{status} is a result"),
            ResponseVerdict::PassError(fault) | ResponseVerdict::Fault(fault) => {
                for format in [ErrorFormat::Error, ErrorFormat::Problem] {
                    let body = fault.to_body(format, "request");
                    assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok(), "a failure is not JSON");
                }
                assert!(fault.http_status() >= 400, "a failure has the status {}", fault.http_status());
            }
        }
    }
}
