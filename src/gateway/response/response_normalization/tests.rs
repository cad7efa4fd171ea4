//! Tables of agent responses and what callers get for them; no response reveals an agent's internals.

use super::*;
use crate::{agent::DeclaredMembers, fault::Fault};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use serde_json::{Value, json};

struct ResponseCase {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    complete: bool,
    declared_members: DeclaredMembers,
    credential_sent: bool,
    has_session: bool,
    read_errors: ReadErrors,
    error_details: ErrorDetails,
    logs_body: bool,
}

fn response(status: u16, body: impl AsRef<[u8]>) -> ResponseCase {
    ResponseCase {
        status,
        headers: HeaderMap::new(),
        body: body.as_ref().to_vec(),
        complete: true,
        declared_members: DeclaredMembers::default(),
        credential_sent: true,
        has_session: false,
        read_errors: ReadErrors { json_rpc: true, a2a: true },
        error_details: ErrorDetails::default(),
        logs_body: true,
    }
}

impl ResponseCase {
    fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        self
    }

    fn verdict(&self) -> ResponseVerdict {
        let status = StatusCode::from_u16(self.status).unwrap();
        let Self { headers, body, complete, declared_members, .. } = self;
        classify_response(&AgentResponse {
            status,
            headers,
            body,
            complete: *complete,
            declared_members: *declared_members,
            credential_sent: self.credential_sent,
            has_session: self.has_session,
            read_errors: self.read_errors,
            error_details: &self.error_details,
            logs_body: self.logs_body,
        })
    }

    #[track_caller]
    fn fault(&self) -> Fault {
        match self.verdict() {
            ResponseVerdict::Fault(fault) => fault,
            passed => panic!("{} {}: {passed:?}", self.status, String::from_utf8_lossy(&self.body)),
        }
    }

    #[track_caller]
    fn assert_passes(&self) {
        if let ResponseVerdict::Fault(fault) = self.verdict() {
            panic!("{} {}: {fault}", self.status, String::from_utf8_lossy(&self.body));
        }
    }
}

#[track_caller]
fn assert_fault(case: &ResponseCase, status: u16, code: &str) -> Fault {
    let fault = case.fault();
    let actual = (fault.http_status(), fault.code().row().name);
    assert_eq!(actual, (status, code), "{} {}", case.status, String::from_utf8_lossy(&case.body));
    fault
}

const HTML: &str = "<html><body><h1>502 Bad Gateway</h1>nginx/1.22 on db-7.internal</body></html>";

#[test]
fn r38_r91_every_status_with_an_unreadable_body_maps_to_a_fault() {
    let table = [
        (300, 502, "AgentError"),
        (301, 502, "AgentError"),
        (304, 502, "AgentError"),
        (307, 502, "AgentError"),
        (400, 400, "InvalidInput"),
        (401, 502, "AgentError"),
        (402, 402, "PaymentRequired"),
        (403, 502, "AgentError"),
        (404, 502, "AgentError"),
        (405, 502, "AgentError"),
        (406, 406, "NotAcceptable"),
        (407, 502, "AgentError"),
        (408, 504, "Timeout"),
        (409, 409, "Conflict"),
        (410, 502, "AgentError"),
        (411, 502, "AgentError"),
        (413, 413, "PayloadTooLarge"),
        (415, 415, "UnsupportedMediaType"),
        (418, 502, "AgentError"),
        (422, 422, "InvalidInput"),
        (429, 429, "RateLimited"),
        (431, 502, "AgentError"),
        (451, 502, "AgentError"),
        (499, 502, "AgentError"),
        (500, 500, "AgentError"),
        (501, 502, "AgentError"),
        (502, 502, "AgentError"),
        (503, 503, "AgentUnavailable"),
        (504, 504, "Timeout"),
        (505, 502, "AgentError"),
        (507, 502, "AgentError"),
        (599, 502, "AgentError"),
    ];
    for (status, expected_status, code) in table {
        for body in ["", HTML, "Internal Server Error", "{}", "[]", "null", "{\"a\":", "\u{0}"] {
            let fault = assert_fault(&response(status, body), expected_status, code);
            assert!(fault.detail().unwrap().starts_with(&format!("the agent responded with status {status}")));
            assert!(!fault.message().contains("nginx"));
        }
    }
}

#[test]
fn r37_an_agents_own_code_takes_precedence_where_it_fits_the_status() {
    let with_code = |status, code: &str| response(status, json!({"error": {"code": code, "message": "m"}}).to_string());
    let table = [
        (400, "InvalidInput", 400, "InvalidInput"),
        (400, "CapabilityNotFound", 404, "CapabilityNotFound"),
        (404, "NotFound", 404, "CapabilityNotFound"),
        (404, "InvalidInput", 400, "InvalidInput"),
        (400, "conflict", 409, "Conflict"),
        (418, "PAYLOAD_TOO_LARGE", 413, "PayloadTooLarge"),
        (500, "AgentUnavailable", 503, "AgentUnavailable"),
        (500, "Timeout", 504, "Timeout"),
        (503, "AgentError", 502, "AgentError"),
        (500, "Overloaded", 503, "AgentUnavailable"),
        (502, "Internal", 502, "AgentError"),
        (500, "InvalidInput", 500, "AgentError"),
        (400, "Timeout", 400, "InvalidInput"),
        (400, "AgentError", 400, "InvalidInput"),
        (400, "Unauthorized", 400, "InvalidInput"),
        (400, "RateLimited", 400, "InvalidInput"),
        (500, "RateLimited", 500, "AgentError"),
        (409, "PermissionDenied", 409, "Conflict"),
        (401, "InvalidInput", 502, "AgentError"),
        (403, "PermissionDenied", 403, "PermissionDenied"),
        (429, "InvalidInput", 429, "RateLimited"),
        (404, "model_not_found", 404, "CapabilityNotFound"),
        (405, "MethodNotAllowed", 502, "AgentError"),
    ];
    for (status, code, expected_status, expected_code) in table {
        assert_fault(&with_code(status, code), expected_status, expected_code);
    }
}

#[test]
fn r91_a_missing_operation_is_distinguished_from_a_missing_endpoint() {
    let agent_bodies = [
        "{\"detail\":\"Not Found\"}",
        "{\"type\":\"about:blank\",\"title\":\"Not Found\",\"status\":404}",
        "{\"error\":{\"message\":\"no such tool\"}}",
    ];
    for body in agent_bodies {
        assert_fault(&response(404, body), 404, "CapabilityNotFound");
        assert_fault(&response(410, body), 404, "CapabilityNotFound");
    }
    let router_bodies = [
        "{\"message\":\"no Route matched with those values\"}",
        "{\"timestamp\":1,\"status\":404,\"error\":\"Not Found\",\"path\":\"/x\"}",
        "404 page not found",
    ];
    for body in router_bodies {
        assert_fault(&response(404, body), 502, "AgentError");
    }
}

#[test]
fn r4_an_agents_refusal_of_the_gateways_credential_is_an_agent_error() {
    let bodies = [
        json!({"error": {"code": "Unauthorized", "message": "bad token"}}),
        json!({"detail": "Not authenticated"}),
        json!({"jsonrpc": "2.0", "error": {"code": -32001, "message": "no"}, "id": 1}),
        json!({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no"}}),
    ];
    for status in [401, 403, 407] {
        for body in &bodies {
            let case = response(status, body.to_string()).with_header("www-authenticate", "Bearer realm=\"inner\"");
            let fault = assert_fault(&case, 502, "AgentError");
            assert_eq!(fault.message(), "The agent refused the gateway's credential");
            assert!(fault.headers().next().is_none() && fault.detail().unwrap().contains("realm"));
        }
    }
}

#[test]
fn r4_a_refusal_is_of_the_gateways_credential_only_where_one_was_sent() {
    let without_credential = |status, body: &str| ResponseCase { credential_sent: false, ..response(status, body) };
    let detail = "{\"detail\":\"Not authenticated\"}";
    let fault = assert_fault(&without_credential(401, detail), 502, "AgentError");
    assert_eq!(fault.message(), "The agent requires a credential, and the gateway has none for it");
    for body in ["", HTML, detail, "{\"error\":{\"code\":\"content_policy\",\"message\":\"Not allowed here\"}}"] {
        assert_fault(&without_credential(403, body), 403, "PermissionDenied");
    }
    let policy = "{\"error\":{\"code\":\"content_policy\",\"message\":\"This topic is not allowed\"}}";
    let fault = assert_fault(&response(403, policy), 403, "PermissionDenied");
    assert_eq!(fault.message(), "This topic is not allowed");
}

#[test]
fn r91_an_agents_own_4xx_keep_their_meaning() {
    let message = |status| json!({"error": {"message": format!("reason {status}")}}).to_string();
    for (status, code) in [
        (402, "PaymentRequired"),
        (403, "PermissionDenied"),
        (404, "CapabilityNotFound"),
        (409, "Conflict"),
        (422, "InvalidInput"),
        (429, "RateLimited"),
    ] {
        let case = response(status, message(status)).with_header("retry-after", "7");
        let fault = assert_fault(&case, status, code);
        assert_eq!(fault.message(), format!("reason {status}"));
        assert_eq!(fault.retry_after_secs(), (status == 429).then_some(7));
    }
    for body in ["", HTML, "Session not found"] {
        let ended_session = ResponseCase { has_session: true, ..response(404, body) };
        assert_fault(&ended_session, 404, "CapabilityNotFound");
    }
}

#[test]
fn r32_an_honest_reason_reaches_the_caller() {
    let reason = "This model's maximum context length is 8192 tokens";
    let openai = json!({"error": {"message": reason, "type": "invalid_request_error", "param": "messages",
        "code": "context_length_exceeded"}});
    assert_eq!(response(400, openai.to_string()).fault().message(), reason);
    let text = response(400, reason).with_header("content-type", "text/plain; charset=utf-8");
    assert_eq!(text.fault().message(), reason);
    assert_eq!(response(400, reason).fault().message(), "The agent refused the input");
    let html = response(400, HTML).with_header("content-type", "text/html");
    assert_eq!(html.fault().message(), "The agent refused the input");
}

#[test]
fn error_details_select_what_the_caller_reads_of_an_error() {
    let body = json!({"error": {"message": "too long", "code": "too_long", "trace": "at /srv/app/main.py:3"},
        "reason": {"text": "8192 tokens at most"}, "host": "10.0.0.7:80", "retry": true})
    .to_string();
    let with = |status, error_details| ResponseCase { error_details, ..response(status, &body) }.fault();
    assert_eq!(with(400, ErrorDetails::Message).message(), "too long");
    assert_eq!(with(500, ErrorDetails::Message).message(), "The agent failed");
    assert_eq!(with(400, ErrorDetails::None).message(), "The agent refused the input");
    let pointer = || ErrorDetails::Pointer("/reason/text".to_owned());
    for status in [400, 500] {
        assert_eq!(with(status, pointer()).message(), "8192 tokens at most");
    }
    assert_eq!(with(400, ErrorDetails::Pointer("/host".to_owned())).message(), "The agent refused the input");
    let all = with(500, ErrorDetails::All);
    assert_eq!(all.message(), "too long");
    let object = all.to_error_object("r");
    let expected = json!({"error": {"message": "too long", "code": "too_long", "trace": "[redacted]"},
        "reason": {"text": "8192 tokens at most"}, "host": "[redacted]", "retry": true});
    assert_eq!(object["error"]["agent_error"], expected);
    assert!(ErrorDetails::Pointer("message".to_owned()).problem().is_some());
}

#[test]
fn r131_the_log_has_no_body_of_an_agents_error_unless_the_operator_asks_for_it() {
    let body = json!({"error": {"message": "'my medical record' is too long", "code": "too_long"}}).to_string();
    let silent = ResponseCase { logs_body: false, ..response(422, &body) }.fault();
    assert_eq!(silent.message(), "'my medical record' is too long");
    assert_eq!(silent.log_message(), "The agent refused the input");
    let detail = silent.detail().unwrap();
    assert_eq!(detail, format!("the agent responded with status 422, error: too_long, body: {} bytes", body.len()));
    let reported = json!({"success": false, "message": "'my medical record' is too long"}).to_string();
    let reported = ResponseCase { logs_body: false, ..response(200, &reported) }.fault();
    let detail = reported.detail().unwrap();
    assert!(detail.starts_with("the agent responded with status 200 and reported a failure in the body"), "{detail}");
    assert!(!reported.to_string().contains("medical") && !silent.to_string().contains("medical"));
    assert!(response(422, &body).fault().detail().unwrap().contains("medical"));
}

#[test]
fn r131_a_secret_is_redacted_before_the_logged_text_is_cut() {
    let secret = "kTq7-an-agents-credential-that-is-longer-than-its-place";
    crate::values::register_secret(secret);
    let challenge = format!("Bearer {}{secret}", "x".repeat(170));
    let location = format!("/{}{secret}", "x".repeat(180));
    let body = format!("{}{secret}", "y".repeat(2030));
    let responses = [
        response(401, "").with_header("www-authenticate", &challenge),
        response(302, "").with_header("location", &location),
        response(500, &body),
        // What secrets at the beginning shorten the text by is filled with redacted text.
        response(500, secret.repeat(100) + &body),
    ];
    for case in responses {
        let detail = case.fault().detail().unwrap().to_owned();
        assert!(!detail.contains("kTq7"), "{detail}");
        assert!(detail.contains("[red") || detail.contains("yyy"), "{detail}");
    }
}

#[test]
fn a_redirect_is_not_followed_and_its_target_is_only_logged() {
    let fault = assert_fault(
        &response(302, "{\"jsonrpc\":\"2.0\"}").with_header("location", "http://10.0.0.7/login"),
        502,
        "AgentError",
    );
    assert!(!fault.message().contains("10.0.0.7") && fault.detail().unwrap().contains("http://10.0.0.7/login"));
}

#[test]
fn r32_the_agents_message_is_kept_where_the_caller_can_correct_the_call() {
    let bodies = [
        json!({"error": {"code": "InvalidInput", "message": "text must not be empty"}}),
        json!({"error": "text must not be empty"}),
        json!({"detail": "text must not be empty"}),
        json!({"title": "Bad", "detail": "text must not be empty"}),
        json!({"title": "text must not be empty"}),
        json!({"message": "text must not be empty"}),
        json!({"errors": [{"message": "text must not be empty"}]}),
        json!({"detail": {"error": "text must not be empty"}}),
        json!({"error": "bad_request", "message": "text must not be empty"}),
    ];
    for body in bodies {
        for status in [400, 409, 422] {
            assert_eq!(response(status, body.to_string()).fault().message(), "text must not be empty", "{body}");
        }
        assert_eq!(response(500, body.to_string()).fault().message(), "The agent failed", "{body}");
        assert!(response(500, body.to_string()).fault().detail().unwrap().contains("must not be empty"));
    }
    let truncated = ResponseCase { complete: false, ..response(400, "{\"error\":\"text must not be empty\"}") };
    assert_eq!(truncated.fault().message(), "The agent refused the input");
}

#[test]
fn r117_messages_that_reveal_internals_are_withheld() {
    let leaks = [
        "KeyError at /srv/app/main.py line 12",
        "cannot reach db-7:5432",
        "Traceback (most recent call last)",
        "key sk-abc123def456ghi789 refused",
        "a\nb",
    ];
    for leak in leaks {
        let bodies = [
            json!({"error": {"code": "InvalidInput", "message": leak, "details": [{"pointer": "/a", "message": leak}]}}),
            json!({"detail": leak}),
            json!({"detail": [{"loc": ["body", "a"], "msg": leak}]}),
            json!({"title": "t", "detail": leak}),
        ];
        for body in bodies {
            let fault = assert_fault(&response(400, body.to_string()), 400, "InvalidInput");
            assert!(
                !fault.message().contains(leak)
                    && fault.violations().iter().all(|violation| violation.message == "is not valid")
            );
        }
    }
}

#[test]
fn r32_error_lists_become_violations_with_pointers() {
    let bodies = [
        json!({"detail": [{"loc": ["body", "items", 0, "a/b~c"], "msg": "Field required", "type": "missing"}]}),
        json!({"error": {"code": "InvalidInput", "message": "m", "details": [{"pointer": "/items/0/a~1b~0c", "message": "Field required"}]}}),
        json!({"title": "Bad", "errors": [{"pointer": "#/items/0/a~1b~0c", "detail": "Field required"}]}),
    ];
    for body in bodies {
        let fault = assert_fault(&response(422, body.to_string()), 422, "InvalidInput");
        let [violation] = fault.violations() else { panic!("{body}: {:?}", fault.violations()) };
        assert_eq!(
            (violation.pointer.as_str(), violation.message.as_str()),
            ("/items/0/a~1b~0c", "Field required"),
            "{body}"
        );
    }
    let many: Vec<Value> = (0..100).map(|at| json!({"loc": ["body", at], "msg": "no"})).collect();
    assert_eq!(response(422, json!({"detail": many}).to_string()).fault().violations().len(), 20);
    let malformed = json!({"detail": [1, null, {}, {"loc": 1, "msg": "no"}, {"loc": [{}], "msg": "no"}, {"loc": [], "msg": "no"}, {"loc": ["x".repeat(300)], "msg": "no"}]});
    assert_eq!(response(422, malformed.to_string()).fault().violations().len(), 3);
}

#[test]
fn r35_retry_after_is_accepted_in_both_forms_and_bounded() {
    let wait = |status, value: &str| response(status, "").with_header("retry-after", value).fault().retry_after_secs();
    assert_eq!(wait(429, "7"), Some(7));
    assert_eq!(wait(503, " 7 "), Some(7));
    assert_eq!(wait(503, "0"), Some(1));
    assert_eq!(wait(429, "999999999"), Some(86_400));
    assert_eq!(wait(429, "99999999999999999999999999"), Some(86_400));
    assert_eq!(wait(429, "Sun, 06 Nov 1994 08:49:37 GMT"), Some(1));
    assert_eq!(wait(429, "Sunday, 06-Nov-94 08:49:37 GMT"), Some(1));
    assert_eq!(wait(429, "Fri, 31 Dec 9999 23:59:59 GMT"), Some(86_400));
    for value in ["-1", "soon", "1.5", "", "Sunday, 06-Nov-1994 08:49:37 GMT"] {
        assert_eq!(wait(429, value), None, "{value}");
    }
    assert_eq!(wait(500, "7"), None);
    let with_agent_clock = response(503, "")
        .with_header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
        .with_header("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT");
    assert_eq!(with_agent_clock.fault().retry_after_secs(), Some(60));
}

#[track_caller]
fn assert_embedded_errors(table: &[(Value, u16, &str)]) {
    for (body, status, code) in table {
        for agent_status in [200, 201, 202] {
            let case = response(agent_status, body.to_string());
            let case = case.with_header("content-type", "application/json; charset=utf-8");
            assert!(may_embed_error(&case.body), "{body}");
            let fault = assert_fault(&case, *status, code);
            let leaks = fault.message().contains("boom") || fault.message().contains("KeyError");
            assert!(!leaks, "{body}");
        }
    }
}

#[test]
fn r40_an_error_object_with_a_2xx_status_is_a_failure_with_the_agents_code_if_allowed() {
    let with_code = |code: &str| json!({"error": {"code": code, "message": "m"}});
    assert_embedded_errors(&[
        (with_code("internal_error"), 502, "AgentError"),
        (with_code("InvalidInput"), 400, "InvalidInput"),
        (with_code("NotFound"), 404, "CapabilityNotFound"),
        (with_code("Unauthorized"), 502, "AgentError"),
        (with_code("RateLimited"), 502, "AgentError"),
        (json!({"error": {"code": "AgentUnavailable"}, "task_id": "t"}), 503, "AgentUnavailable"),
        (json!({"error": {"message": "boom", "type": "x"}, "request_id": "r"}), 502, "AgentError"),
    ]);
}

#[test]
fn r40_other_formats_of_embedded_errors_are_failures() {
    assert_embedded_errors(&[
        (json!({"error": "KeyError: 'x'"}), 502, "AgentError"),
        (json!({"error": "boom", "result": null, "status": "error"}), 502, "AgentError"),
        (json!({"success": false, "error": "boom", "input": {"a": 1}}), 502, "AgentError"),
        (json!({"status": "failed", "error": {"message": "m"}, "output": "half"}), 502, "AgentError"),
        (json!({"error": true, "message": "boom"}), 502, "AgentError"),
        (json!({"__error__": {"error": "ValueError", "message": "boom"}}), 502, "AgentError"),
        (json!({"errors": [{"message": "boom"}], "data": null}), 502, "AgentError"),
        (json!({"errors": [{"message": "boom"}], "extensions": {}}), 502, "AgentError"),
    ]);
}

#[test]
fn r40_a_body_that_states_a_failure_is_one_whatever_its_form() {
    assert_embedded_errors(&[
        (json!({"success": false}), 502, "AgentError"),
        (json!({"success": false, "message": "boom"}), 502, "AgentError"),
        (json!({"success": false, "data": null, "message": "boom"}), 502, "AgentError"),
        (json!({"success": false, "data": {}, "results": [], "output": "", "reason": "boom"}), 502, "AgentError"),
        (json!({"success": false, "errors": [{"message": "boom"}]}), 502, "AgentError"),
        (json!({"success": false, "code": "InvalidInput", "message": "m"}), 400, "InvalidInput"),
        (json!({"success": false, "error_code": "timeout", "message": "boom"}), 504, "Timeout"),
        (json!({"success": false, "code": "Unauthorized", "message": "boom"}), 502, "AgentError"),
        (json!({"ok": false, "detail": "boom"}), 502, "AgentError"),
        (json!({"status": "failed", "message": "boom"}), 502, "AgentError"),
        (json!({"status": "failure", "result": null}), 502, "AgentError"),
        (json!({"status": "FAILED"}), 502, "AgentError"),
        (json!({"status": "Error", "message": "boom"}), 502, "AgentError"),
        (json!({"status": "error", "message": "boom", "request_id": "r"}), 502, "AgentError"),
        (json!({"status": "failed", "error": {"code": "Conflict", "message": "m"}}), 409, "Conflict"),
        (json!({"error": {"message": "boom"}, "data": {"step": 1}}), 502, "AgentError"),
        (json!({"error": {"code": "InvalidInput"}, "result": [1], "meta": {}}), 400, "InvalidInput"),
        (json!({"error": "boom", "data": {"rows": 3}}), 502, "AgentError"),
        (json!({"error": "boom", "result": 3}), 502, "AgentError"),
        (json!({"error": {"message": "boom"}, "data": null, "count": 0}), 502, "AgentError"),
    ]);
}

#[test]
fn r95_an_ambiguous_response_keeps_its_category() {
    let body = json!({"error": {"code": "AmbiguousResponse", "message": "Two documents are meant"}});
    for status in [200, 400, 409, 422] {
        let fault = assert_fault(&response(status, body.to_string()), 422, "AmbiguousResponse");
        assert_eq!(fault.message(), "Two documents are meant");
    }
    assert_fault(&response(500, body.to_string()), 500, "AgentError");
    let flat = json!({"success": false, "code": "ambiguous_response", "message": "m"}).to_string();
    assert_fault(&response(200, flat), 422, "AmbiguousResponse");
    let bodies = [
        json!({"code": "AmbiguousResponse", "message": "m"}),
        json!({"errorCode": "ambiguous-response", "message": "m"}),
        json!({"code": "AmbiguousResponse"}),
        json!({"type": "https://agent.example/problems/AmbiguousResponse", "title": "Two documents are meant"}),
        json!({"type": "https://agent.example/problems#ambiguous-response", "title": "T", "detail": "d"}),
        json!({"type": "urn:problem:AmbiguousResponse/", "status": 422}),
        json!({"type": "urn:problem:AmbiguousResponse", "detail": "d"}),
        json!({"type": "about:blank", "title": "Ambiguous Response"}),
        json!({"type": "https://agent.example/problems/InvalidInput", "title": "T", "code": "AmbiguousResponse"}),
    ];
    for body in bodies {
        for status in [400, 409, 422] {
            assert_fault(&response(status, body.to_string()), 422, "AmbiguousResponse");
        }
        assert_fault(&response(500, body.to_string()), 500, "AgentError");
    }
    // A reason that is no category, and codes that an agent may not name, leave the status's meaning.
    for problem in [json!({"title": "Unprocessable"}), json!({"type": "https://a.example/rate-limited", "title": "T"})]
    {
        assert_fault(&response(422, problem.to_string()), 422, "InvalidInput");
        assert_fault(&response(409, problem.to_string()), 409, "Conflict");
    }
    let coded = json!({"error": {"code": "AmbiguousResponse"}}).to_string();
    assert_eq!(response(422, coded).fault().message(), "The agent found more than one answer to the request");
}

#[test]
fn r33_a_result_that_mentions_an_error_passes() {
    let results = [
        json!({}),
        json!({"result": 1}),
        json!({"error": null}),
        json!({"error": null, "result": 1}),
        json!({"error": false}),
        json!({"error": ""}),
        json!({"error": {}}),
        json!({"error": 0.25, "value": 3}),
        json!({"error": "none found", "results": []}),
        json!({"error": {"message": "m"}, "output": "x"}),
        json!({"success": true, "error": "deprecated"}),
        json!({"errors": []}),
        json!({"errors": [{"message": "m"}], "data": {"a": 1}}),
        json!({"errors": ["a"]}),
        json!({"errors": [{"line": 1}]}),
        json!({"errors": [{"message": "typo"}], "score": 0.5}),
        json!({"nested": {"error": {"code": "x", "message": "y"}}}),
        json!([{"error": {"code": "x", "message": "y"}}]),
        json!("error"),
        json!({"__error__": null}),
        json!({"a": "error", "b": "\"error\""}),
        json!({"success": false, "score": 0.25}),
        json!({"success": false, "matches": []}),
        json!({"success": false, "data": {"rows": 3}, "message": "partial"}),
        json!({"success": "false", "message": "m"}),
        json!({"success": 0, "message": "m"}),
        json!({"success": true, "message": "m"}),
        json!({"success": true, "error": "old API", "data": {"a": 1}}),
        json!({"ok": false, "valid_until": "2030-01-01"}),
        json!({"ok": null}),
        json!({"status": "failed", "job": "build-17", "message": "exit code 1"}),
        json!({"status": "failed", "task_id": "t-1", "message": "exit code 1"}),
        json!({"status": "failed", "run_id": "r-1"}),
        json!({"status": "error", "http": {"code": 503}}),
        json!({"status": {"state": "failed"}}),
        json!({"status": "no error"}),
        json!({"status": "completed", "error": {"message": "a warning"}, "result": [1]}),
        json!({"status": "COMPLETED", "error": {"message": "a warning"}, "result": [1]}),
        json!({"error": {"code": 404, "message": "m"}, "data": null}),
        json!({"error": null, "data": {"a": 1}}),
        json!({"error": {}, "result": {"a": 1}}),
        json!({"error": 0.25, "data": [1]}),
        json!([{"success": false, "message": "m"}]),
        json!({"result": {"success": false, "message": "m"}}),
    ];
    for body in results {
        response(200, body.to_string()).with_header("content-type", "application/json").assert_passes();
    }
    let declared_members = DeclaredMembers::of_schema(&json!({"properties": {"error": {}, "success": {}, "ok": {}}}));
    for body in ["{\"error\":\"a grammar mistake\"}", "{\"success\":false}", "{\"ok\":false,\"message\":\"m\"}"] {
        response(200, body).fault();
        ResponseCase { declared_members, ..response(200, body) }.assert_passes();
    }
    let undeclared_status = ResponseCase { declared_members, ..response(200, "{\"status\":\"failed\"}") };
    undeclared_status.fault();
    for (media, body) in [
        ("text/event-stream", "{\"error\":\"x\"}"),
        ("text/plain", "{\"error\":\"x\"}"),
        ("application/x-ndjson", "{\"a\""),
        ("image/png", "{"),
    ] {
        response(200, body).with_header("content-type", media).assert_passes();
    }
    response(200, "").assert_passes();
    response(204, "").assert_passes();
    ResponseCase { complete: false, ..response(200, "{\"error\":{\"code\":\"x\"") }.assert_passes();
}

#[test]
fn r92_r94_json_rpc_and_a2a_errors_pass_and_are_recorded_as_failures_of_the_agent() {
    let bodies = [
        json!({"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid"}, "id": null}),
        json!({"jsonrpc": "2.0", "result": {}, "id": 1}),
    ];
    for body in bodies {
        for status in [200, 400, 404, 500, 503] {
            response(status, body.to_string()).assert_passes();
        }
    }
    let failed = json!({"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid"}, "id": 1});
    match response(200, failed.to_string()).verdict() {
        ResponseVerdict::PassError(fault) => {
            assert_eq!(fault.code(), crate::fault::FaultCode::AgentError);
            assert!(fault.detail().unwrap().contains("body: {"));
        }
        other => panic!("{other:?}"),
    }
    let a2a_error =
        |code: u64, name: &str| json!({"error": {"code": code, "status": name, "message": "m"}}).to_string();
    response(404, a2a_error(404, "NOT_FOUND")).assert_passes();
    response(400, a2a_error(400, "INVALID_ARGUMENT")).assert_passes();
    response(200, a2a_error(404, "NOT_FOUND")).assert_passes();
    assert_fault(&response(500, a2a_error(404, "NOT_FOUND")), 500, "AgentError");
    assert_fault(&response(400, a2a_error(400, "NO_SUCH_STATUS")), 400, "InvalidInput");
    assert_fault(&response(500, "{\"jsonrpc\":\"1.0\"}"), 500, "AgentError");
}

#[test]
fn r41_errors_of_a_protocol_pass_only_to_callers_that_speak_it_and_never_where_errors_are_withheld() {
    let internals = "Traceback: File \"/srv/app/db.py\" postgres://svc:hunter2pass@10.1.2.3/db";
    let rpc = |code: i64| json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": internals}}).to_string();
    let google = |code: u16, name: &str| {
        let details = json!([{"@type": "type.googleapis.com/google.rpc.DebugInfo", "stackEntries": ["/srv/app/db.py:33"], "detail": internals}]);
        json!({"error": {"code": code, "message": internals, "status": name, "details": details}}).to_string()
    };
    let nobody = ReadErrors::default();
    let both = ReadErrors { json_rpc: true, a2a: true };
    let cases = [
        (200, rpc(-32603)),
        (400, rpc(-32602)),
        (500, rpc(-32603)),
        (200, google(500, "INTERNAL")),
        (400, google(400, "INVALID_ARGUMENT")),
        (403, google(403, "PERMISSION_DENIED")),
        (429, google(429, "RESOURCE_EXHAUSTED")),
        (500, google(500, "INTERNAL")),
        (503, google(503, "UNAVAILABLE")),
    ];
    for (status, body) in &cases {
        for (read_errors, error_details) in [
            (nobody, ErrorDetails::Message),
            (nobody, ErrorDetails::All),
            (nobody, ErrorDetails::None),
            (both, ErrorDetails::None),
        ] {
            let withheld = error_details == ErrorDetails::None && *status != 200;
            let case = ResponseCase { read_errors, error_details, ..response(*status, body) };
            // A success with google's object is a result for callers of A2A, who read it themselves.
            if *status == 200 && read_errors == both && body.contains("INTERNAL") {
                continue;
            }
            let fault = case.fault();
            let shown = String::from_utf8(fault.to_body(crate::fault::ErrorFormat::Error, "request")).unwrap();
            for internal in ["Traceback", "db.py", "hunter2pass", "10.1.2.3"] {
                assert!(!shown.contains(internal), "{status} {withheld}: {shown}");
            }
        }
    }
    // One protocol opens no other.
    let json_rpc = ReadErrors { json_rpc: true, a2a: false };
    let a2a = ReadErrors { json_rpc: false, a2a: true };
    ResponseCase { read_errors: json_rpc, ..response(500, rpc(-32603)) }.assert_passes();
    ResponseCase { read_errors: a2a, ..response(500, google(500, "INTERNAL")) }.assert_passes();
    ResponseCase { read_errors: json_rpc, ..response(500, google(500, "INTERNAL")) }.fault();
    ResponseCase { read_errors: a2a, ..response(500, rpc(-32603)) }.fault();
    // Results pass to everyone.
    let result = json!({"jsonrpc": "2.0", "id": 1, "result": {"n": 1}}).to_string();
    ResponseCase { read_errors: nobody, ..response(200, result) }.assert_passes();
}

#[test]
fn the_fields_that_google_s_error_names_are_violations_and_its_debug_info_is_none() {
    let body = json!({"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT", "details": [
        {"@type": "type.googleapis.com/google.rpc.DebugInfo", "detail": "a detail for developers"},
        {"@type": "type.googleapis.com/google.rpc.BadRequest",
         "fieldViolations": [{"field": "city", "description": "is required"}]},
    ]}});
    let fault = ResponseCase { read_errors: ReadErrors::default(), ..response(400, body.to_string()) }.fault();
    let violations: Vec<_> =
        fault.violations().iter().map(|each| (each.pointer.as_str(), each.message.as_str())).collect();
    assert_eq!(violations, [("/city", "is required")]);
}

#[test]
fn r40_truncated_json_is_a_failure() {
    for body in ["{\"a\": 1", "{\"a\": \"b", "{\"a\": [1, 2}", "[1, 2", "{\"a\": \"\\\"", "{", "{\"a\\"] {
        assert_fault(&response(200, body).with_header("content-type", "application/json"), 502, "AgentError");
        ResponseCase { complete: false, ..response(200, body) }.assert_passes();
        assert_eq!(may_embed_error(body.as_bytes()), body.starts_with('{'), "{body}");
    }
}

#[test]
fn only_the_top_level_decides_whether_a_body_is_buffered() {
    for clean in [
        "",
        " ",
        "[]",
        "[{\"error\":1}]",
        "{}",
        "{\"a\":\"error\"}",
        "{\"a\":{\"error\":1}}",
        "{\"a\":[\"error\",{\"errors\":1}],\"b\":\"\\\"error\"}",
        "hello",
        "12",
        "data: {\"error\":1}",
        "{\"success\":true,\"ok\":null,\"status\":\"completed\",\"a\":{\"success\":false}}",
        "{\"status\":{\"state\":\"failed\"}}",
    ] {
        assert!(!may_embed_error(clean.as_bytes()), "{clean}");
    }
    for suspect in [
        "{\"error\":null}",
        " {\"a\":[{}],\n\"errors\" : 1}",
        "{\"a\":\"}\",\"__error__\":1}",
        "{\"\\u0065rror\":1}",
        "{\"success\" : false}",
        "{\"a\":1,\"ok\":f",
        "{\"status\":",
        "{\"status\":\"fai",
        "{\"status\":\"\\u0066ailed\"}",
        "{\"status\":\"failed\"}",
        "{\"a\":1,\"error\":{",
    ] {
        assert!(may_embed_error(suspect.as_bytes()), "{suspect}");
    }
}

#[test]
fn the_logged_detail_is_bounded() {
    let long = response(500, "é".repeat(1 << 20)).with_header("location", &"x".repeat(10_000));
    assert!(long.fault().detail().unwrap().len() < 4096);
    let deep = format!("{}1{}", "{\"error\":".repeat(5_000), "}".repeat(5_000));
    assert_fault(&response(500, &deep), 500, "AgentError");
    response(200, deep).with_header("content-type", "application/json").assert_passes();
}

proptest! {
    #[test]
    fn r41_arbitrary_bytes_never_panic_and_never_leak(status in 200_u16..600, body in proptest::collection::vec(any::<u8>(), 0..200), complete: bool) {
        let case = ResponseCase { complete, ..response(status, &body) };
        may_embed_error(&body);
        match case.verdict() {
            ResponseVerdict::Pass | ResponseVerdict::PassError(_) => prop_assert!(status < 300),
            ResponseVerdict::Fault(fault) => prop_assert!((400..600).contains(&fault.http_status())),
        }
    }

    #[test]
    fn r117_a_secret_anywhere_in_an_error_never_reaches_the_caller(status in 300_u16..600, shape in 0_usize..8) {
        let secret = "sk-9f8e7d6c5b4a39281706f5e4 at /srv/agent/app.py";
        let body = [
            json!({"error": {"code": "InvalidInput", "message": secret}}), json!({"error": {"code": secret, "message": secret}}), json!({"error": secret}),
            json!({"detail": secret}), json!({"detail": [{"loc": ["body", "a"], "msg": secret}]}), json!({"title": secret, "detail": secret}),
            json!({"message": secret}), json!({"errors": [{"message": secret}]}),
        ];
        let fault = response(status, body[shape].to_string()).fault();
        let bytes = fault.to_body(crate::fault::ErrorFormat::Error, "r");
        prop_assert!(!String::from_utf8_lossy(&bytes).contains("sk-9f8e"));
        prop_assert!(fault.detail().unwrap().contains("sk-9f8e"));
    }

    #[test]
    fn the_scan_agrees_with_a_parser(body in json_object()) {
        let text = body.to_string();
        let has_error_member = body.as_object().is_some_and(|body| body.iter().any(|(name, value)| match name.as_str() {
            "error" | "errors" | "__error__" => true,
            "success" | "ok" => *value == false,
            "status" => ["error", "failed", "failure"].iter().any(|status| value == status),
            _ => false,
        }));
        let escaped = text.contains('\\');
        prop_assert!(escaped || may_embed_error(text.as_bytes()) == has_error_member, "{}", text);
    }
}

fn json_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\{},\\[\\]:]{0,8}".prop_map(Value::from),
        Just(Value::from("failed"))
    ];
    let name = prop_oneof![
        Just("error".to_owned()),
        Just("errors".to_owned()),
        Just("ok".to_owned()),
        Just("status".to_owned()),
        "[a-z]{0,6}"
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
