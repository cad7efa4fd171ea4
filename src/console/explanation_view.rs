//! Explanations as tables: those of past calls, and those of dry runs. They read the JSON of the explanation.

use crate::web_page::{Badge, Notice, facts, notice, query_string};
use maud::{Markup, html};
use serde_json::Value;

/// Returns what is remembered of the calls with an id that were refused.
pub(super) fn decision_list(decisions: &[Value]) -> Markup {
    html! {
        @if decisions.is_empty() {
            p { "No refused or failed call with this id is remembered. Calls that succeed are not; explain.recent_decisions bounds how many are." }
        }
        @for decision in decisions { (decision_facts(decision)) }
    }
}

fn decision_facts(decision: &Value) -> Markup {
    let text = |name: &str| decision.get(name).and_then(scalar_text);
    let code = |name: &str| text(name).map(|text| html! { code { (text) } });
    let plain = |name: &str| text(name).map(|text| html! { (text) });
    let agent = text("agent").map(|agent| agent_link(&agent));
    html! {
        @if decision.get("configuration_changed_since").is_some() {
            (notice(Notice::Warning, &html! {
                p { "The configuration was changed since: the rule may have another index or line now." }
            }))
        }
        (facts([
            ("Verdict", Some(html! { (verdict_badge(decision)) })),
            ("Time", plain("time")),
            ("Code", Some(html! { (text("code").unwrap_or_default()) " (" (text("status").unwrap_or_default()) ")" })),
            ("Message", plain("message")),
            ("Detail", plain("detail")),
            ("Step", code("step")),
            ("Rule", code("rule")),
            ("Written", code("line")),
            ("Caller", plain("caller")),
            ("Agent", agent),
            ("Operation", plain("operation")),
            ("Request", text("method").map(|method| html! { code { (method) " " (text("path").unwrap_or_default()) } })),
            ("Duration", text("duration_ms").map(|millis| html! { (millis) " ms" })),
        ]))
    }
}

/// Returns the link to the page of an agent.
pub(super) fn agent_link(id: &str) -> Markup {
    html! { a href={ "/console/agents/" (crate::values::percent_encode(id).to_string()) } { (id) } }
}

/// Returns what a dry run found out.
pub(super) fn explanation(value: &Value) -> Markup {
    let text = |name: &str| value.get(name).and_then(scalar_text);
    let plain = |name: &str| text(name).map(|text| html! { (text) });
    let is_admitted = text("verdict").as_deref() == Some("admitted");
    let kind = if is_admitted { Notice::Good } else { Notice::Bad };
    html! {
        (notice(kind, &html! {
            p { strong { @if is_admitted { "The call would be admitted." } @else { "The call would be refused." } } }
            (facts([
                ("Status", plain("status")),
                ("Code", plain("code")),
                ("Message", plain("message")),
                ("Retry after", text("retry_after").map(|seconds| html! { (seconds) " s" })),
                ("Caller", plain("caller")),
                ("Tier", plain("tier")),
                ("Agent", text("agent").map(|agent| agent_link(&agent))),
                ("Operation", plain("operation")),
            ]))
        }))
        (table("Steps", "In the order of a call", items(value, "steps"), &STEP_COLUMNS))
        (table("Limits", "What would be left after the call", items(value, "limits"), &LIMIT_COLUMNS))
        (table("Violations", "Of the agent's contract", items(value, "violations"), &VIOLATION_COLUMNS))
        (table(
            "Violations that are not enforced",
            "The call passes in spite of them",
            items(value, "unenforced_violations"),
            &VIOLATION_COLUMNS,
        ))
        @if let Some(endpoint) = value.get("endpoint") {
            section .card { h2 { "Endpoint" } (member_facts(endpoint, &[("Address", "address"), ("Circuit breaker", "circuit_breaker")])) }
        }
        @if let Some(request) = value.get("request") { (request_section(request)) }
    }
}

/// A column of a table: its heading, and the member that it shows.
type Column = (&'static str, &'static str);

const STEP_COLUMNS: [Column; 5] =
    [("Step", "step"), ("Verdict", "verdict"), ("Rule", "rule"), ("Written", "line"), ("Detail", "detail")];
const LIMIT_COLUMNS: [Column; 8] = [
    ("Limit", "limit"),
    ("Verdict", "verdict"),
    ("Rule", "rule"),
    ("Written", "line"),
    ("Quota", "quota"),
    ("Left", "remaining"),
    ("Reset in s", "reset_seconds"),
    ("Window in s", "window_seconds"),
];
const VIOLATION_COLUMNS: [Column; 2] = [("Position", "pointer"), ("Violation", "message")];

fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns a table of objects; nothing if there are none.
fn table(title: &str, caption: &str, rows: &[Value], columns: &[Column]) -> Markup {
    html! {
        @if !rows.is_empty() {
            section .card {
                h2 { (title) }
                .table-scroll tabindex="0" { table {
                    caption { (caption) }
                    thead { tr { @for (heading, _) in columns { th scope="col" { (heading) } } } }
                    tbody {
                        @for row in rows { tr { @for (at, (_, name)) in columns.iter().enumerate() { (cell(row, name, at == 0)) } } }
                    }
                } }
            }
        }
    }
}

fn cell(row: &Value, name: &str, is_heading: bool) -> Markup {
    let text = row.get(name).and_then(scalar_text).unwrap_or_default();
    html! {
        @if is_heading { th scope="row" { code { @if text.is_empty() { "(the whole body)" } @else { (text) } } } }
        @else if name == "verdict" { td { (verdict_badge(row)) } }
        @else { td { (text) } }
    }
}

fn verdict_badge(row: &Value) -> Markup {
    let verdict = row.get("verdict").and_then(Value::as_str).unwrap_or_default();
    let kind = match verdict {
        "passed" | "admitted" => Notice::Good,
        "refused" | "failed" => Notice::Bad,
        _ => Notice::Neutral,
    };
    html! { (Badge { notice: kind, text: verdict }) }
}

fn member_facts(value: &Value, members: &[Column]) -> Markup {
    let rows = members
        .iter()
        .map(|(label, name)| (*label, value.get(*name).and_then(scalar_text).map(|text| html! { code { (text) } })));
    facts(rows)
}

fn request_section(request: &Value) -> Markup {
    html! {
        section .card {
            h2 { "What would be sent" }
            p .muted { "Credentials and what looks like a secret are [redacted]." }
            (member_facts(request, &[("Method", "method"), ("Path", "path"), ("Bytes of the body", "body_length")]))
            @let headers = items(request, "headers");
            @if !headers.is_empty() {
                .table-scroll tabindex="0" { table {
                    caption { "Header fields" }
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } } }
                    tbody {
                        @for field in headers {
                            tr {
                                th scope="row" { code { (field.get(0).and_then(scalar_text).unwrap_or_default()) } }
                                td { code { (field.get(1).and_then(scalar_text).unwrap_or_default()) } }
                            }
                        }
                    }
                } }
            }
        }
    }
}

/// Returns a single value as text.
pub(super) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the path of the form of a dry run with these values.
pub(super) fn dry_run_path(parameters: &[(&str, &str)]) -> String {
    format!("/console/explain{}", query_string(parameters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_part_of_an_explanation_is_shown_and_escaped() {
        let evil = "<script>alert(1)</script>";
        let value = json!({
            "verdict": "refused", "code": "InvalidInput", "status": 400, "message": evil, "retry_after": 3,
            "caller": evil, "agent": "a/b", "operation": "say",
            "steps": [
                {"step": "path", "verdict": "passed"},
                {"step": "input", "verdict": "refused", "rule": "contract", "line": "gatepost.yaml:7", "detail": evil},
            ],
            "limits": [{"limit": "caller", "verdict": "passed", "rule": "limits.per_caller", "quota": 10, "remaining": 9,
                "reset_seconds": 1, "window_seconds": 60}],
            "violations": [{"pointer": "", "message": evil}],
            "unenforced_violations": [{"pointer": "/a", "message": "is not a number"}],
            "endpoint": {"address": "https://a.example", "circuit_breaker": "closed"},
            "request": {"method": "POST", "path": "/x", "headers": [["x-a", evil]], "body_length": 2},
        });
        let page = explanation(&value).into_string();
        assert!(!page.contains("<script>"), "{page}");
        for text in [
            "would be refused",
            "400",
            "3 s",
            "/console/agents/a%2Fb",
            "gatepost.yaml:7",
            "limits.per_caller",
            "(the whole body)",
            "is not a number",
            "https://a.example",
            "closed",
            "x-a",
            "&lt;script&gt;",
        ] {
            assert!(page.contains(text), "{text}: {page}");
        }
    }

    #[test]
    fn an_explanation_without_parts_shows_the_verdict_only() {
        let page = explanation(&json!({"verdict": "admitted"})).into_string();
        assert!(page.contains("would be admitted") && !page.contains("<table"), "{page}");
    }
}
