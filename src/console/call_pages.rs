//! The most recent calls, from the lines of the access log that the gateway keeps in memory: the list, and the page of
//! one request id. The lines are redacted, and name callers as the log does.

use super::{
    call_entry::entry_section, console_context::ConsoleContext, console_page::Visitor, explanation_view::decision_list,
    page_thread::build_page,
};
use crate::{
    fault::{Blame, FaultCode},
    telemetry::{RecentLine, RecentLines},
    values::format_count,
    web_page::{
        Badge, Notice, count_text, duration_text, notice, pager, query_string, select_field, text_field, time_text,
    },
};
use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// The path of the list.
pub(super) const CALLS_PATH: &str = "/console/calls";

/// The path of the calls with one request id.
pub(super) const CALL_PATH: &str = "/console/call";

/// The query of that page.
#[derive(Deserialize)]
pub(super) struct CallQuery {
    #[serde(default)]
    id: String,
}

/// Calls on one page.
const PAGE_ROWS: usize = 100;

/// Calls on the page of one request id: callers choose ids, so that any number may have one.
const MAX_WITH_ID: usize = 20;

/// Codes of calls without a fault.
const CODES_WITHOUT_FAULT: [&str; 2] = ["ok", "aborted"];

/// Which calls are listed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallFilter {
    /// Part of the agent's id.
    agent: String,
    /// Part of the caller's name.
    caller: String,
    code: String,
    blame: String,
    /// Part of the request id.
    request: String,
    /// Only calls before the one with this number.
    before: String,
    /// `off`, unless the list is kept up to date.
    live: String,
}

impl CallFilter {
    fn admits(&self, call: &LoggedCall) -> bool {
        let is_part = |part: &str, text: &str| text.contains(part.trim());
        let is_equal = |chosen: &str, text: &str| chosen.is_empty() || chosen == text;
        is_part(&self.agent, &call.agent)
            && is_part(&self.caller, &call.caller)
            && is_part(&self.request, &call.request_id)
            && is_equal(&self.code, &call.code)
            && is_equal(&self.blame, &call.blame)
    }

    fn is_live(&self) -> bool {
        self.live != "off" && self.before.is_empty()
    }

    /// Returns a link to the list with this filter.
    fn link(&self, before: &str, live: &str) -> String {
        let query = query_string(&[
            ("agent", &self.agent),
            ("caller", &self.caller),
            ("code", &self.code),
            ("blame", &self.blame),
            ("request", &self.request),
            ("before", before),
            ("live", live),
        ]);
        format!("{CALLS_PATH}{query}")
    }
}

/// What the list shows of a call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LoggedCall {
    time: String,
    request_id: String,
    method: String,
    path: String,
    agent: String,
    operation: String,
    caller: String,
    status: u16,
    code: String,
    blame: String,
    duration_ms: f64,
    upstream_duration_ms: Option<f64>,
    message: String,
}

impl LoggedCall {
    fn parse(line: RecentLine<'_>) -> Option<Self> {
        serde_json::from_slice(line.json).ok()
    }
}

/// The calls of one page of the list.
#[derive(Debug, Default)]
struct CallPage {
    calls: Vec<LoggedCall>,
    /// The number before which the next page begins, if there is one.
    next_before: Option<u64>,
}

impl CallPage {
    fn select(lines: &RecentLines, filter: &CallFilter) -> Self {
        let before = filter.before.parse().unwrap_or(u64::MAX);
        let mut page = Self::default();
        let mut last_number = None;
        for line in lines.newest_first().filter(|line| line.number < before) {
            let Some(call) = LoggedCall::parse(line).filter(|call| filter.admits(call)) else { continue };
            if page.calls.len() == PAGE_ROWS {
                page.next_before = last_number;
                break;
            }
            last_number = Some(line.number);
            page.calls.push(call);
        }
        page
    }
}

/// Lists the calls.
pub(super) async fn list_calls(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Query(filter): Query<CallFilter>,
) -> Response {
    build_page(move || {
        let content = match context.gateway.access_log.recent_calls().lines() {
            Some(lines) => list_content(&lines, &filter),
            None => html! { div .page-head { h1 { "Calls" } } (nothing_kept()) },
        };
        visitor.page("Calls", CALLS_PATH, &content)
    })
    .await
}

fn nothing_kept() -> Markup {
    notice(
        Notice::Neutral,
        &html! {
            p { "No calls are kept: these pages show the lines of the access log, and " code { "access_log.output" } " is "
                code { "off" } ". Set it to stdout, stderr or the path of a file, and restart the gateway." }
        },
    )
}

fn list_content(lines: &RecentLines, filter: &CallFilter) -> Markup {
    let page = CallPage::select(lines, filter);
    let is_live = filter.is_live();
    html! {
        div .page-head {
            h1 { "Calls" }
            p {
                @if is_live { "The list is kept up to date. " a .button href=(filter.link("", "off")) { "Pause" } }
                @else { "The list is paused. " a .button href=(filter.link("", "")) { "Resume" } }
            }
        }
        (filter_form(filter))
        section #calls .card aria-label="Calls" data-refresh=[is_live.then_some("2")] {
            (list_summary(lines))
            @if page.calls.is_empty() { (empty_list(lines, filter)) }
            @else {
                (call_table(&page.calls))
                (pager(
                    (!filter.before.is_empty()).then(|| filter.link("", "off")).as_deref(),
                    page.next_before.map(|before| filter.link(&before.to_string(), "off")).as_deref(),
                ))
            }
        }
    }
}

fn filter_form(filter: &CallFilter) -> Markup {
    let codes = CODES_WITHOUT_FAULT.into_iter().chain(FaultCode::ALL.iter().map(|code| code.row().name));
    let blames = [Blame::Caller, Blame::Agent, Blame::Gateway].map(Blame::as_str);
    html! {
        form method="get" action=(CALLS_PATH) role="search" {
            .fields {
                (text_field("agent", "Agent", &filter.agent))
                (text_field("caller", "Caller", &filter.caller))
                (select_field("code", "Code", &filter.code, codes))
                (select_field("blame", "Blame", &filter.blame, blames))
                (text_field("request", "Request id", &filter.request))
                @if filter.live == "off" { input type="hidden" name="live" value="off"; }
                button type="submit" { "Filter" }
                a .button href=(CALLS_PATH) { "Clear" }
            }
        }
    }
}

/// Says how many calls there are, and since when.
fn list_summary(lines: &RecentLines) -> Markup {
    let mut kept = 0_u64;
    let mut oldest = None;
    for line in lines.newest_first() {
        kept += 1;
        oldest = Some(line);
    }
    let since = match oldest.and_then(LoggedCall::parse).filter(|_| !lines.is_complete) {
        Some(call) => shown_time(&call.time),
        None => time_text(lines.since),
    };
    html! {
        p .muted {
            "The gateway has the last " (count_text(kept)) @if kept == 1 { " call" } @else { " calls" } ", since " (since) "."
            @if !lines.is_complete { " Older ones are in the access log only." }
        }
    }
}

fn empty_list(lines: &RecentLines, filter: &CallFilter) -> Markup {
    html! {
        @if lines.newest_first().next().is_none() {
            p { "No call has ended since the gateway started. A call appears here when it ends." }
        } @else if filter.before.is_empty() {
            p { "None of these calls matches. " a href=(CALLS_PATH) { "Show all of them" } }
        } @else {
            p { "There are no older calls that match. " a href=(filter.link("", "off")) { "Back to the newest" } }
        }
    }
}

fn call_table(calls: &[LoggedCall]) -> Markup {
    html! {
        .table-scroll tabindex="0" { table {
            caption { "Newest first, in UTC" }
            thead { tr {
                th scope="col" { "Time" } th scope="col" { "Agent" } th scope="col" { "Caller" }
                th scope="col" { "Request" } th scope="col" { "Result" }
                th scope="col" .number { "Duration" } th scope="col" .number { "Of which agent" }
            } }
            tbody { @for call in calls { (call_row(call)) } }
        } }
    }
}

fn call_row(call: &LoggedCall) -> Markup {
    html! {
        tr {
            td .nowrap { a href=(call_link(&call.request_id)) title=(call.request_id) { (shown_time(&call.time)) } }
            td {
                @if call.agent.is_empty() { span .muted { "none" } } @else { (call.agent) }
                @if !call.operation.is_empty() { div .muted { (call.operation) } }
            }
            td { @if call.caller.is_empty() { span .muted { "unknown" } } @else { (call.caller) } }
            td .wide { code { (call.method) " " (call.path) } }
            td .wide { (result_badge(call)) @if !call.message.is_empty() { div .muted { (call.message) } } }
            td .number { (millis_text(Some(call.duration_ms))) }
            td .number { (millis_text(call.upstream_duration_ms)) }
        }
    }
}

/// Returns the link to the page of a request id, which a caller may have chosen.
pub(super) fn call_link(request_id: &str) -> String {
    // In the query, because browsers resolve an id of dots in a path.
    format!("{CALL_PATH}{}", query_string(&[("id", request_id)]))
}

fn result_badge(call: &LoggedCall) -> Markup {
    let kind = match (&*call.code, &*call.blame) {
        ("ok", _) => Notice::Good,
        ("aborted", _) | (_, "caller") => Notice::Warning,
        _ => Notice::Bad,
    };
    let status = if call.status == 0 { String::new() } else { format!("{} ", call.status) };
    html! { (Badge { notice: kind, text: &format!("{status}{}", call.code) }) }
}

fn millis_text(millis: Option<f64>) -> String {
    let duration = millis.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok());
    duration.map(duration_text).unwrap_or_default()
}

/// Returns a time of the log without its `T` and `Z`.
fn shown_time(time: &str) -> String {
    time.trim_end_matches('Z').replacen('T', " ", 1)
}

/// Shows all calls with a request id, and why they were refused.
pub(super) async fn show_call(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Query(CallQuery { id: request_id }): Query<CallQuery>,
) -> Response {
    build_page(move || {
        let lines = context.gateway.access_log.recent_calls().lines();
        let entries = lines.as_ref().map(|lines| find_entries(lines, &request_id)).unwrap_or_default();
        let decisions = context.admin.find_decisions(&request_id);
        let is_found = !entries.is_empty() || !decisions.is_empty();
        let content = html! {
            div .page-head { h1 { "Call " (request_id) } p { a href=(CALLS_PATH) { "All calls" } } }
            @if lines.is_none() { (nothing_kept()) }
            @else if entries.is_empty() {
                (notice(Notice::Neutral, &html! {
                    p { "No call with this id is among the most recent ones. The access log may have it." }
                }))
            }
            @if entries.len() > 1 {
                p { (format_count(entries.len(), "call")) " have this id, the newest first: callers may choose the ids of their calls." }
            }
            @for entry in &entries { (entry_section(entry)) }
            section .card { h2 { "Why it was refused" } (decision_list(&decisions)) }
        };
        let mut response = visitor.page("Call", CALLS_PATH, &content);
        if !is_found {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response
    })
    .await
}

fn find_entries(lines: &RecentLines, request_id: &str) -> Vec<Map<String, Value>> {
    let entries = lines.newest_first().filter_map(|line| {
        let call = LoggedCall::parse(line).filter(|call| call.request_id == request_id)?;
        serde_json::from_slice(line.json).ok().filter(|_| !call.time.is_empty())
    });
    entries.take(MAX_WITH_ID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::RecentCalls;

    fn lines(entries: &[Value]) -> RecentLines {
        let calls = RecentCalls::default();
        calls.keep();
        let batch: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
        calls.record_lines(batch.as_bytes());
        calls.lines().unwrap()
    }

    fn entry(number: usize) -> Value {
        serde_json::json!({"time": format!("2026-08-01T12:00:00.{:03}Z", number % 1_000), "request_id": format!("r{number}"),
            "method": "POST", "path": "/agents/a/invoke", "agent": "a", "caller": "key:team-a", "status": 200, "code": "ok",
            "duration_ms": 1.5})
    }

    #[test]
    fn pages_follow_one_another_while_calls_arrive() {
        let mut entries: Vec<Value> = (0..250).map(entry).collect();
        let first = CallPage::select(&lines(&entries), &CallFilter::default());
        assert_eq!((first.calls.len(), &*first.calls[0].request_id, first.next_before), (100, "r249", Some(150)));
        entries.extend((250..300).map(entry));
        let filter = CallFilter { before: "150".to_owned(), ..CallFilter::default() };
        let second = CallPage::select(&lines(&entries), &filter);
        assert_eq!((&*second.calls[0].request_id, second.next_before), ("r149", Some(50)));
        let filter = CallFilter { before: "50".to_owned(), ..CallFilter::default() };
        let last = CallPage::select(&lines(&entries), &filter);
        assert_eq!((last.calls.len(), last.next_before), (50, None));
        let exact = CallPage::select(&lines(&entries[..100]), &CallFilter::default());
        assert_eq!((exact.calls.len(), exact.next_before), (100, None), "there is no empty page after the last");
    }

    #[test]
    fn every_filter_bounds_the_list_and_several_apply_together() {
        let refused = serde_json::json!({"time": "t", "request_id": "other", "caller": "key:team-b", "code": "NotFound",
            "blame": "caller", "status": 404});
        let lines = lines(&[entry(1), refused, entry(2)]);
        let ids = |filter: CallFilter| -> Vec<String> {
            CallPage::select(&lines, &filter).calls.into_iter().map(|call| call.request_id).collect()
        };
        let none = CallFilter::default;
        assert_eq!(ids(CallFilter { agent: "a".to_owned(), ..none() }), ["r2", "r1"]);
        assert_eq!(ids(CallFilter { caller: " team-b ".to_owned(), ..none() }), ["other"]);
        assert_eq!(ids(CallFilter { code: "ok".to_owned(), request: "1".to_owned(), ..none() }), ["r1"]);
        assert_eq!(ids(CallFilter { blame: "caller".to_owned(), ..none() }), ["other"]);
        assert!(ids(CallFilter { code: "NotFound".to_owned(), agent: "a".to_owned(), ..none() }).is_empty());
        assert_eq!(ids(CallFilter { before: "not a number".to_owned(), ..none() }).len(), 3);
    }

    #[test]
    fn the_list_is_refreshed_only_while_it_is_live_and_no_page_reloads_itself() {
        let lines = lines(&[entry(1)]);
        let live = list_content(&lines, &CallFilter::default()).into_string();
        assert!(live.contains(r#"data-refresh="2""#) && live.contains("Pause"), "{live}");
        let off = CallFilter { live: "off".to_owned(), agent: "a".to_owned(), ..CallFilter::default() };
        let before = CallFilter { before: "9".to_owned(), ..CallFilter::default() };
        for filter in [&off, &before] {
            let paused = list_content(&lines, filter).into_string();
            assert!(!paused.contains("data-refresh") && paused.contains("Resume"), "{paused}");
        }
        assert!(list_content(&lines, &off).into_string().contains("/console/calls?agent=a\""), "the filter stays");
        assert!(!live.contains("http-equiv"));
    }

    #[test]
    fn texts_of_callers_and_agents_are_escaped_and_ids_are_encoded() {
        let evil = "<script>alert('x')</script>";
        let call = serde_json::json!({"time": evil, "request_id": "../a?b#c/\"<", "method": evil, "path": evil,
            "agent": evil, "operation": evil, "caller": evil, "status": 502, "code": "AgentError", "blame": "agent",
            "duration_ms": 1.0, "message": evil, "user_agent": evil, "new_member": evil});
        let lines = lines(std::slice::from_ref(&call));
        let list = list_content(&lines, &CallFilter { agent: "<script>".to_owned(), ..CallFilter::default() });
        let found = find_entries(&lines, "../a?b#c/\"<");
        let page = format!("{}{}", list.into_string(), entry_section(&found[0]).into_string());
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("/console/call?id=..%2Fa%3Fb%23c%2F%22%3C\""), "{page}");
        assert!(page.contains("new_member") && page.contains("502 AgentError"), "{page}");
    }

    #[test]
    fn all_calls_with_an_id_are_found_up_to_a_bound() {
        let same = |number: usize| {
            let mut call = entry(number);
            call["request_id"] = "same".into();
            call
        };
        let lines = lines(&(0..30).map(same).chain([entry(31)]).collect::<Vec<_>>());
        let found = find_entries(&lines, "same");
        assert_eq!(found.len(), MAX_WITH_ID);
        assert_eq!(found[0]["time"], "2026-08-01T12:00:00.029Z");
        assert!(find_entries(&lines, "unknown").is_empty());
    }

    #[test]
    fn the_summary_says_how_many_calls_there_are_and_since_when() {
        let few = list_summary(&lines(&[entry(1)])).into_string();
        assert!(few.contains("last 1 call, since") && few.contains("UTC"), "{few}");
        let many = list_summary(&lines(&(0..2_500).map(entry).collect::<Vec<_>>())).into_string();
        assert!(many.contains("last 2\u{202f}000 calls, since 2026-08-01 12:00:00.500."), "{many}");
        let none = empty_list(&lines(&[]), &CallFilter::default()).into_string();
        assert!(none.contains("No call has ended"), "{none}");
    }
}
