//! The sections of an agent's page: its facts, its endpoints, its operations, and the calls that were refused or failed.

use super::{
    agent_pages::{authentication_text, source_text, state_badge},
    attention::agent_link,
    console_context::{ConfigInForce, ConsoleContext},
    document_view::DocumentView,
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentStatus, Operation},
    gateway::Route,
    telemetry::{redact, redact_agent_text},
    web_page::{count_text, duration_text, facts, query_string, time_text},
};
use maud::{Markup, html};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Maximum number of operations that are shown.
const MAX_OPERATIONS: usize = 50;

/// Maximum number of examples that are shown for one operation.
const MAX_EXAMPLES: usize = 3;

/// Maximum number of words of a list, such as tags, and of rules, that are shown.
const MAX_WORDS: usize = 50;

/// Returns what the gateway knows about the agent, and the settings in force for it.
pub(super) fn facts_section(context: &ConsoleContext, route: &Route, config: &ConfigInForce) -> Markup {
    let agent = route.agent();
    let text = |text: &str| (!text.trim().is_empty()).then(|| html! { (redact_agent_text(text)) });
    let publisher = agent.source.publisher().filter(|id| !id.is_empty());
    let publisher = publisher.map(|id| html! { (context.gateway.access_log.logged_caller(id)) });
    let scopes = &agent.authentication.scopes;
    let limits = route.limits();
    let rates: Vec<String> = limits.rates().iter().map(ToString::to_string).collect();
    let timeouts = route.upstream().timeouts();
    let rules = rules_for(agent, config);
    let concurrency =
        limits.max_concurrency().map_or_else(|| "no limit".to_owned(), |max| count_text(max.get().into()));
    html! {
        section .card {
            h2 { "Facts" }
            (facts([
                ("Id", Some(html! { code { (agent.id) } })),
                ("Description", text(&agent.description)),
                ("Version", agent.version.as_deref().and_then(text)),
                ("Deprecation", deprecation(&agent.status)),
                ("Source", Some(html! { (source_text(agent)) })),
                ("Published by", publisher),
                ("Publisher", agent.publisher.as_deref().and_then(text)),
                ("Authentication", Some(html! { (authentication_text(agent)) })),
                ("Scopes", (!scopes.is_empty()).then(|| html! { (scopes.join(", ")) })),
                ("Tags", word_list(&agent.tags)),
                ("Capabilities", word_list(&agent.capabilities)),
            ]))
            h3 { "Settings in force" }
            (facts([
                ("Timeouts", Some(html! {
                    "connect " (duration_text(timeouts.connect)) ", first byte " (duration_text(timeouts.first_byte))
                    ", idle " (duration_text(timeouts.idle)) ", total " (duration_text(timeouts.total))
                })),
                ("Rates", Some(html! { @if rates.is_empty() { "no limit" } @else { (rates.join(", ")) } })),
                ("Concurrency", Some(html! { (route.in_flight()) " in flight, at most " (concurrency) })),
                ("Adaptive limit", limits.adaptive_limit().map(|limit| html! { (limit) })),
                ("Rules", (!rules.is_empty()).then(|| html! { (rules.join(", ")) })),
            ]))
        }
    }
}

fn deprecation(status: &AgentStatus) -> Option<Markup> {
    let AgentStatus::Deprecated(deprecation) = status else { return None };
    Some(html! {
        "deprecated"
        @if let Some(since) = deprecation.deprecated_at.and_then(unix_time_text) { " since " (since) }
        @if let Some(sunset) = deprecation.sunset.and_then(unix_time_text) { ", withdrawn at " (sunset) }
        @if let Some(successor) = &deprecation.successor { ", replaced by " (agent_link(successor.as_str())) }
    })
}

fn unix_time_text(seconds: i64) -> Option<String> {
    let since_epoch = Duration::from_secs(u64::try_from(seconds).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since_epoch).map(time_text).filter(|text| !text.is_empty())
}

fn word_list(words: &[Arc<str>]) -> Option<Markup> {
    let shown = || words.iter().take(MAX_WORDS).map(|word| redact_agent_text(word)).collect::<Vec<_>>().join(", ");
    (!words.is_empty())
        .then(|| html! { (shown()) @if words.len() > MAX_WORDS { ", and " (words.len() - MAX_WORDS) " more" } })
}

/// Returns the rules of `agents.rules` that name the agent, with their lines.
fn rules_for(agent: &Agent, config: &ConfigInForce) -> Vec<String> {
    let rules = config.config.agents.rules.iter().enumerate();
    let matching = rules.filter(|(_, rule)| rule.agents.iter().any(|pattern| pattern.matches(agent.id.as_str())));
    let to_text = |(at, _)| {
        let path = format!("agents.rules[{at}]");
        match config.locations.locate(&path) {
            Some(line) => format!("{path} ({line})"),
            None => path,
        }
    };
    matching.map(to_text).take(MAX_WORDS).collect()
}

/// Returns the endpoints, with the states of their circuit breakers.
pub(super) fn endpoints_section(route: &Route) -> Markup {
    html! {
        section .card {
            h2 { "Endpoints" }
            div .table-scroll tabindex="0" {
                table {
                    caption { "A call goes to the endpoint with the fewest calls in flight. An open circuit breaker keeps calls away." }
                    thead { tr { @for name in ["Endpoint", "Transport", "Circuit breaker"] { th scope="col" { (name) } } } }
                    tbody {
                        @for (address, state) in route.endpoints() {
                            tr {
                                th scope="row" { code { (redact(address)) } }
                                td { (transport_of(address)) }
                                td { (state_badge(state)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn transport_of(address: &str) -> &'static str {
    address.parse::<AgentEndpoint>().map_or("–", |endpoint| endpoint.scheme().as_str())
}

/// Returns the operations, with their schemas and examples.
pub(super) fn operations_section(agent: &Agent, document: &Value, view: &mut DocumentView) -> Markup {
    let all = agent.operations.len();
    html! {
        section .card {
            h2 { "Operations" }
            @for (at, operation) in agent.operations.iter().enumerate().take(MAX_OPERATIONS) {
                (operation_part(operation, examples_of(document, at), view))
            }
            @if all > MAX_OPERATIONS { p .muted { (all - MAX_OPERATIONS) " more operations are in the document." } }
        }
    }
}

/// Returns the examples of an operation; those of a document without operations are at its top (R14).
fn examples_of(document: &Value, operation: usize) -> &[Value] {
    let listed = document.get("operations").and_then(Value::as_array).filter(|operations| !operations.is_empty());
    let owner = listed.map_or(Some(document), |operations| operations.get(operation));
    owner.and_then(|owner| owner.get("examples")?.as_array()).map(Vec::as_slice).unwrap_or_default()
}

fn operation_part(operation: &Operation, examples: &[Value], view: &mut DocumentView) -> Markup {
    let name = if operation.name.is_empty() { "invoke" } else { &*operation.name };
    let mut schema = |summary: &str, schema: Option<&Arc<Value>>| match schema {
        Some(schema) => view.show(summary, schema),
        None => html! { p .muted { (summary) ": not declared" } },
    };
    let (inputs, outputs) =
        (schema("Input schema", operation.inputs.as_ref()), schema("Output schema", operation.outputs.as_ref()));
    html! {
        h3 { (redact_agent_text(name)) }
        @if !operation.description.is_empty() { p { (redact_agent_text(&operation.description)) } }
        (inputs)
        (outputs)
        @for (at, example) in examples.iter().take(MAX_EXAMPLES).enumerate() {
            (view.show(&format!("Example {}", at + 1), example))
        }
    }
}

/// Returns the calls of the agent that were refused or failed.
pub(super) fn decisions_section(decisions: &[Value]) -> Markup {
    html! {
        section .card {
            h2 { "Refused and failed calls" }
            @if decisions.is_empty() {
                p {
                    "None is remembered. " code { "explain.recent_decisions" } " says how many are. Calls that may not know of the agent are found by their request id only."
                }
            } @else {
                div .table-scroll tabindex="0" {
                    table {
                        caption { "The newest, with the reason. Calls that may not know of the agent are not among them." }
                        thead {
                            tr {
                                @for name in ["Time (UTC)", "Caller", "Operation", "Verdict", "Reason"] { th scope="col" { (name) } }
                            }
                        }
                        tbody { @for decision in decisions { (decision_row(decision)) } }
                    }
                }
            }
        }
    }
}

/// Returns a time of RFC 3339 to the second.
fn shown_time(time: &str) -> String {
    time.get(..19).unwrap_or(time).replace('T', " ")
}

fn decision_row(decision: &Value) -> Markup {
    let member = |name: &str| decision.get(name).and_then(Value::as_str).unwrap_or_default();
    let or_dash = |text: &str| if text.is_empty() { "–".to_owned() } else { text.to_owned() };
    let (id, status) = (member("request_id"), decision.get("status").and_then(Value::as_u64).unwrap_or_default());
    html! {
        tr {
            td .nowrap { a title=(id) href={ "/console/explain" (query_string(&[("request", id)])) } { (shown_time(member("time"))) } }
            td { (or_dash(member("caller"))) }
            td { (or_dash(member("operation"))) }
            td { (member("verdict")) " at " (member("step").replace('_', " ")) ", " (status) }
            td .wide { (member("message")) }
        }
    }
}
