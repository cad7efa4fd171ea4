//! Explanations on pages: why a past call was refused, and what would become of a call. The texts are those of the JSON
//! interface, which redacts them.

use super::{
    console_context::ConsoleContext,
    console_page::Visitor,
    explanation_view::{decision_list, explanation},
    page_thread::build_page,
};
use crate::{
    admin::{OperatorRole, error_page},
    fault::{Fault, FaultCode, Result},
    telemetry::redact,
    web_page::{Notice, notice, text_field},
};
use axum::{
    Form,
    extract::{Query, State, rejection::FormRejection},
    http::StatusCode,
    response::Response,
};
use bytes::Bytes;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

/// The path of the page.
pub(super) const EXPLAIN_PATH: &str = "/console/explain";

/// Maximum bytes of the form of a dry run, as with `POST /explain`.
pub(super) const MAX_FORM_BYTES: usize = 4 << 20;

/// Maximum characters of a request id: those of callers have 128 at most.
const MAX_ID_CHARS: usize = 128;

/// What the page shows: a past call, or values of the form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ExplainQuery {
    /// The id of a past call.
    request: String,
    method: String,
    path: String,
    #[serde(rename = "as")]
    caller: String,
}

/// The form of a dry run.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DryRun {
    method: String,
    path: String,
    #[serde(rename = "as")]
    caller: String,
    /// One field a line.
    headers: String,
    body: String,
}

/// Shows the forms, and why a past call was refused.
pub(super) async fn show_explain(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Query(query): Query<ExplainQuery>,
) -> Response {
    build_page(move || {
        let ExplainQuery { request, method, path, caller } = query;
        let request: String = request.trim().chars().take(MAX_ID_CHARS).collect();
        let content = html! {
            (page_head())
            section .card aria-labelledby="past" {
                h2 #past { "A past call" }
                (past_call_form(&request))
                @if !request.is_empty() { (decision_list(&context.admin.find_decisions(&request))) }
            }
            (dry_run_section(&visitor, &DryRun { method, path, caller, ..DryRun::default() }))
        };
        visitor.page("Explain", EXPLAIN_PATH, &content)
    })
    .await
}

fn page_head() -> Markup {
    html! { div .page-head { h1 { "Explain" } p { "Why a call is refused, by which rule, and where the rule is written" } } }
}

fn past_call_form(request: &str) -> Markup {
    html! {
        form method="get" action=(EXPLAIN_PATH) {
            .fields {
                (text_field("request", "Request id (X-Request-ID of the response)", request))
                button type="submit" { "Find" }
            }
        }
    }
}

fn dry_run_section(visitor: &Visitor, run: &DryRun) -> Markup {
    let method = if run.method.is_empty() { "POST" } else { &run.method };
    let caller = if run.caller.is_empty() { "anonymous" } else { &run.caller };
    html! {
        section .card aria-labelledby="dry-run" {
            h2 #dry-run { "A dry run" }
            @if visitor.operator.require(OperatorRole::Operator).is_ok() {
                p .muted { "The call passes the same checks as a real one. Limits are not charged, and the agent is not called." }
                form method="post" action=(EXPLAIN_PATH) {
                    (visitor.csrf_field())
                    .fields {
                        (text_field("method", "Method", method))
                        (text_field("path", "Path and query", &run.path))
                        (text_field("as", "As: key:ID, anonymous, or empty with a credential below", caller))
                    }
                    .field {
                        label for="field-headers" { "Header fields, one a line " span .hint { "Name: value" } }
                        textarea #field-headers name="headers" spellcheck="false" { (shown_headers(&run.headers)) }
                    }
                    .field {
                        label for="field-body" { "Body" }
                        textarea #field-body name="body" spellcheck="false" { (run.body) }
                    }
                    button .primary type="submit" { "Explain" }
                }
            } @else {
                p { "A dry run assumes callers, and needs the role operator." }
            }
        }
    }
}

/// Returns the header fields for the form. A page repeats no credential: the operator enters it again.
fn shown_headers(headers: &str) -> String {
    let lines = headers.lines().map(|line| redact(line));
    lines.filter(|line| !line.contains("[redacted]")).collect::<Vec<_>>().join("\n")
}

/// Explains what would become of a call.
pub(super) async fn explain_call(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    form: std::result::Result<Form<DryRun>, FormRejection>,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Operator) {
        return error_page(&fault);
    }
    let Ok(Form(run)) = form else {
        return error_page(&Fault::new(FaultCode::InvalidInput, "The form cannot be read"));
    };
    let explained = match to_json(&run) {
        // On the runtime of calls, whose stores and issuers it asks.
        Ok(body) => context.calls.spawn(context.admin.explain(Bytes::from(body.to_string()))).await,
        Err(fault) => Ok(Err(fault)),
    };
    let explained = explained.unwrap_or_else(|_| Err(Fault::new(FaultCode::Internal, "The explanation failed")));
    build_page(move || dry_run_page(&visitor, &run, explained)).await
}

fn dry_run_page(visitor: &Visitor, run: &DryRun, explained: Result<Value>) -> Response {
    let status = match &explained {
        Ok(_) => StatusCode::OK,
        Err(fault) => StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let content = html! {
        (page_head())
        @match &explained {
            Ok(value) => (explanation(value)),
            Err(fault) => (notice(Notice::Bad, &html! { p { "The call cannot be explained: " (fault.message()) } })),
        }
        (dry_run_section(visitor, run))
        section .card aria-labelledby="past" { h2 #past { "A past call" } (past_call_form("")) }
    };
    let mut response = visitor.page("Explain", EXPLAIN_PATH, &content);
    *response.status_mut() = status;
    response
}

/// Returns the request to explain, as `POST /explain` takes it.
///
/// # Errors
/// A line of the header fields has no name.
fn to_json(run: &DryRun) -> Result<Value> {
    let lines = run.headers.lines().map(str::trim).filter(|line| !line.is_empty());
    let fields: Option<Vec<[&str; 2]>> =
        lines.map(|line| line.split_once(':').map(|(name, value)| [name.trim(), value.trim()])).collect();
    // The message does not repeat the line, which may be a credential.
    let fields = fields.ok_or_else(|| {
        Fault::new(FaultCode::InvalidInput, "A line of the header fields has no colon (write Name: value)")
    })?;
    let mut request =
        json!({"method": run.method.trim(), "path": run.path.trim(), "headers": fields, "body": run.body});
    let caller = run.caller.trim();
    if let Some(members) = request.as_object_mut().filter(|_| !caller.is_empty()) {
        members.insert("as".to_owned(), caller.into());
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_becomes_the_request_that_the_json_interface_takes() {
        let run = DryRun {
            method: " POST ".to_owned(),
            path: "/agents/a/invoke".to_owned(),
            caller: "key:team-a".to_owned(),
            headers: "Accept: application/json\r\n\r\nX-Time: 10:30\r\n".to_owned(),
            body: "{}".to_owned(),
        };
        let expected = json!({"as": "key:team-a", "method": "POST", "path": "/agents/a/invoke", "body": "{}",
            "headers": [["Accept", "application/json"], ["X-Time", "10:30"]]});
        assert_eq!(to_json(&run).unwrap(), expected);
        let without = to_json(&DryRun { caller: " ".to_owned(), ..run }).unwrap();
        assert!(without.get("as").is_none(), "the credential is in the header fields");
    }

    #[test]
    fn a_header_line_without_a_name_is_refused_without_repeating_it() {
        let run = DryRun { headers: "hunter2hunter2".to_owned(), ..DryRun::default() };
        let fault = to_json(&run).unwrap_err();
        assert!(!fault.message().contains("hunter2"), "{fault}");
    }

    #[test]
    fn the_form_repeats_no_credential() {
        let headers =
            "Accept: text/html\nX-API-Key: gp_Ab12Cd34Ef56_0123456789abcdefXYZ\nAuthorization: Bearer abcdef123456789";
        assert_eq!(shown_headers(headers), "Accept: text/html");
    }
}
