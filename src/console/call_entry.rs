//! An entry of the access log with all its members.

use super::explanation_view::{agent_link, dry_run_path, scalar_text};
use maud::{Markup, html};
use serde_json::{Map, Value};

/// The members of an entry in the order of the log, with what they are called here.
const LABELS: [(&str, &str); 25] = [
    ("time", "Time"),
    ("request_id", "Request id"),
    ("peer", "Client address"),
    ("method", "Method"),
    ("path", "Path"),
    ("query_bytes", "Bytes of the query"),
    ("protocol", "Protocol"),
    ("agent", "Agent"),
    ("operation", "Operation"),
    ("caller", "Caller"),
    ("credential", "Credential"),
    ("status", "Status"),
    ("code", "Code"),
    ("blame", "Blame"),
    ("bytes_in", "Bytes received"),
    ("bytes_out", "Bytes sent"),
    ("duration_ms", "Duration in ms"),
    ("upstream_duration_ms", "Of which agent, in ms"),
    ("attempts", "Attempts"),
    ("message", "Message"),
    ("detail", "Detail"),
    ("user_agent", "User agent"),
    ("trace_id", "Trace id"),
    ("aborted", "Ended early"),
    ("shadow_denials", "Would be refused by rules in shadow mode"),
];

/// Returns the section of the page that shows an entry.
pub(super) fn entry_section(entry: &Map<String, Value>) -> Markup {
    let text = |name: &str| entry.get(name).and_then(scalar_text).unwrap_or_default();
    let others = entry.keys().map(String::as_str).filter(|name| LABELS.iter().all(|(known, _)| known != name));
    let others = others.map(|name| (name, name));
    let caller = text("caller");
    let assumed = if caller.starts_with("key:") { &*caller } else { "" };
    let dry_run = dry_run_path(&[("method", &text("method")), ("path", &text("path")), ("as", assumed)]);
    html! {
        section .card {
            h2 { "Entry of the access log" }
            dl .facts {
                @for (name, label) in LABELS.into_iter().chain(others) {
                    @if let Some(value) = entry.get(name) {
                        dt { (label) }
                        dd {
                            @if name == "agent" { (agent_link(&text(name))) }
                            @else { (scalar_text(value).unwrap_or_else(|| value.to_string())) }
                        }
                    }
                }
            }
            p { a href=(dry_run) { "Explain a call like this one" } }
        }
    }
}
