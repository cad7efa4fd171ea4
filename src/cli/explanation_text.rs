//! An explanation as a table for people.

use serde_json::Value;
use std::fmt::Write as _;

/// Formats what the admin listener answers: the explanation of a dry run, or the decisions about past calls.
pub(super) fn format_explanation(answer: &Value) -> String {
    let mut out = String::new();
    match answer.get("decisions").and_then(Value::as_array) {
        Some(decisions) => decisions.iter().for_each(|decision| write_decision(&mut out, decision)),
        None => write_explanation(&mut out, answer),
    }
    out
}

fn write_explanation(out: &mut String, answer: &Value) {
    write_verdict(out, answer);
    for name in ["caller", "tier", "agent", "operation"] {
        write_member(out, name, answer.get(name));
    }
    let mut rows = vec![["step", "verdict", "rule", "line", "detail"].map(str::to_owned)];
    // What comes after a refusal was not reached.
    let steps: Vec<&Value> = objects(answer, "steps").collect();
    let last = steps.iter().position(|step| text(step, "verdict") == "refused").unwrap_or(steps.len());
    let shown = steps.into_iter().take(last + 1);
    rows.extend(shown.map(|step| {
        [text(step, "step"), text(step, "verdict"), text(step, "rule"), text(step, "line"), step_detail(step)]
    }));
    write_table(out, "", &rows);
    let columns = ["limit", "verdict", "rule", "line", "remaining", "quota", "reset_seconds"];
    let mut rows = vec![columns.map(|name| name.replace('_', " "))];
    rows.extend(objects(answer, "limits").map(|limit| columns.map(|name| text(limit, name))));
    if rows.len() > 1 {
        write_table(out, "limits", &rows);
    }
    write_violations(out, "violations", answer);
    write_violations(out, "unenforced_violations", answer);
    if let Some(endpoint) = answer.get("endpoint") {
        let (address, breaker) = (text(endpoint, "address"), text(endpoint, "circuit_breaker"));
        let _ = writeln!(out, "\nendpoint  {address}  (circuit breaker {breaker})");
    }
    if let Some(request) = answer.get("request") {
        let _ = writeln!(out, "\n{} {}", text(request, "method"), text(request, "path"));
        for header in objects(request, "headers") {
            let part = |at: usize| header.get(at).and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(out, "{}: {}", part(0), part(1));
        }
        let _ = writeln!(out, "\n({} bytes of body)", text(request, "body_length"));
    }
}

fn write_decision(out: &mut String, decision: &Value) {
    write_verdict(out, decision);
    for name in ["time", "detail", "step", "rule", "line"] {
        write_member(out, name, decision.get(name));
    }
    if let Some(rule) = decision.get("applies_to") {
        let _ = writeln!(out, "{:<10} {}", "applies to", rule_with_line(rule));
    }
    for name in ["method", "path", "agent", "operation", "caller", "duration_ms"] {
        write_member(out, name, decision.get(name));
    }
    if decision.get("configuration_changed_since").is_some() {
        out.push_str("the configuration changed since: rule and line are those of the time of the call\n");
    }
    out.push('\n');
}

/// Returns the detail of a step, and what its rule applies to.
fn step_detail(step: &Value) -> String {
    let applies_to = step.get("applies_to").map(|rule| format!("applies to {}", rule_with_line(rule)));
    let detail = Some(text(step, "detail")).filter(|detail| !detail.is_empty());
    applies_to.into_iter().chain(detail).collect::<Vec<_>>().join("; ")
}

fn rule_with_line(rule: &Value) -> String {
    match rule.get("line") {
        Some(line) => format!("{} ({})", text(rule, "rule"), plain(line)),
        None => text(rule, "rule"),
    }
}

fn write_verdict(out: &mut String, answer: &Value) {
    let _ = write!(out, "{}", text(answer, "verdict"));
    if answer.get("code").is_some() {
        let _ = write!(out, ": {} {}", text(answer, "status"), text(answer, "code"));
    }
    if answer.get("message").is_some() {
        let _ = write!(out, " ({})", text(answer, "message"));
    }
    out.push('\n');
}

fn write_member(out: &mut String, name: &str, value: Option<&Value>) {
    if let Some(value) = value {
        let _ = writeln!(out, "{name:<10} {}", plain(value));
    }
}

fn write_violations(out: &mut String, name: &str, answer: &Value) {
    for (at, violation) in objects(answer, name).enumerate() {
        if at == 0 {
            let _ = writeln!(out, "\n{}", name.replace('_', " "));
        }
        let _ = writeln!(out, "  {:?}: {}", text(violation, "pointer"), text(violation, "message"));
    }
}

/// Writes rows in columns; the last column is as wide as it is.
fn write_table<const N: usize>(out: &mut String, title: &str, rows: &[[String; N]]) {
    let _ = writeln!(out, "{}{title}", if title.is_empty() { "" } else { "\n" });
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    for row in rows {
        let cells = row
            .iter()
            .enumerate()
            .map(|(column, cell)| format!("{cell:<width$}", width = width(column).unwrap_or_default()));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn objects<'a>(answer: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    answer.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(object: &Value, name: &str) -> String {
    object.get(name).map(plain).unwrap_or_default()
}

fn plain(value: &Value) -> String {
    // A text of an agent does not begin a line.
    value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_explanation_is_a_table_in_which_texts_begin_no_line() {
        let answer = json!({
            "verdict": "refused", "code": "NotFound", "status": 404, "message": "The agent was not found",
            "caller": "key:team-a",
            "steps": [
                {"step": "authentication", "verdict": "passed", "detail": "key:team-a\nrefused"},
                {"step": "authorization", "verdict": "refused", "rule": "access.denials[0]", "line": "gatepost.yaml:7"},
            ],
            "limits": [{"limit": "caller", "verdict": "passed", "rule": "limits.per_caller", "remaining": 3, "quota": 5}],
        });
        let text = format_explanation(&answer);
        assert!(text.starts_with("refused: 404 NotFound (The agent was not found)\n"), "{text}");
        assert!(text.contains("authorization   refused  access.denials[0]  gatepost.yaml:7"), "{text}");
        assert!(text.contains("caller  passed"), "{text}");
        assert!(text.contains("key:team-a\\nrefused"), "{text}");
    }

    #[test]
    fn a_past_refusal_names_its_step_and_rule() {
        let decision = json!({"verdict": "refused", "code": "RateLimited", "status": 429, "step": "rate_limits", "rule": "limits.per_caller", "line": "gatepost.yaml:3", "applies_to": {"rule": "limits.x", "line": "gatepost.yaml:4"}, "configuration_changed_since": true});
        let text = format_explanation(&json!({"decisions": [decision]}));
        assert!(text.starts_with("refused: 429 RateLimited\n"), "{text}");
        assert!(text.contains("rule       limits.per_caller\nline       gatepost.yaml:3\n"), "{text}");
        assert!(text.contains("applies to limits.x (gatepost.yaml:4)\n"), "{text}");
        assert!(text.contains("changed since"), "{text}");
    }
}
