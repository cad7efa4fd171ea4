//! The first page: whether the gateway works, how much it does, and what needs attention.

use super::{
    activity::window_text,
    activity_window::{Interval, MAX_INTERVALS},
    attention::attention_list,
    console_context::ConsoleContext,
    console_page::{OVERVIEW_PATH, Visitor},
    page_thread::build_page,
};
use crate::{
    admin::GatewayHealth,
    telemetry::CallBlame,
    web_page::{Badge, Notice, chart, count_text, duration_text, rate_text},
};
use axum::{extract::State, response::Response};
use maud::{Markup, html};
use std::time::Duration;

/// Shows the first page.
pub(super) async fn show_overview(State(context): State<ConsoleContext>, visitor: Visitor) -> Response {
    build_page(move || {
        let intervals = context.activity.intervals();
        let content = html! {
            div .page-head { h1 { "Overview" } p { "Gatepost " (env!("CARGO_PKG_VERSION")) } }
            div #overview data-refresh="10" {
                (tiles(&context, &intervals))
                section .card {
                    h2 { "What needs attention" }
                    (attention_list(&context, &intervals))
                }
                (charts(&intervals))
            }
        };
        visitor.page("Overview", OVERVIEW_PATH, &content)
    })
    .await
}

fn tiles(context: &ConsoleContext, intervals: &[Interval]) -> Markup {
    let (health, durations) = (context.admin.health(), context.activity.recent_durations());
    let rate = intervals.last().map(|interval| rate_text(interval.per_second(interval.counts.calls())));
    let of_blame = |blame: CallBlame| -> u64 { intervals.iter().map(|interval| interval.counts.of(blame)).sum() };
    let quantile = |share: f64| durations.calls.quantile(share).map(duration_text);
    let own_time = durations.gateway.quantile(0.99).map(duration_text);
    let window = window_text();
    let errors = |blame| intervals.last().is_some().then(|| count_text(of_blame(blame)));
    html! {
        dl .tiles {
            (tile("Gateway", &html! { (readiness(&health)) }, ""))
            (value_tile("Calls", rate, "in the last 10 seconds"))
            (value_tile("Failed by agents", errors(CallBlame::Agent), &window))
            (value_tile("Failed by the gateway", errors(CallBlame::Gateway), &window))
            (value_tile("Refused: the caller's fault", errors(CallBlame::Caller), &window))
            (value_tile("Half of all calls within", quantile(0.5), "p50, last minute"))
            (value_tile("99 of 100 calls within", quantile(0.99), "p99, last minute"))
            (value_tile("The gateway's own time", own_time, "p99, last minute"))
            (value_tile("In flight", Some(count_text(context.gateway.metrics.calls_in_flight() as u64)), "calls now"))
            (tile("Agents", &html! {
                a href="/console/agents" { (count_text(health.agents.unwrap_or_default() as u64)) }
            }, "served"))
        }
    }
}

fn readiness(health: &GatewayHealth) -> Badge<'static> {
    if health.draining {
        Badge { notice: Notice::Warning, text: "draining" }
    } else if health.not_ready_reasons().is_empty() {
        Badge { notice: Notice::Good, text: "ready" }
    } else {
        Badge { notice: Notice::Bad, text: "not ready" }
    }
}

fn tile(name: &str, value: &Markup, note: &str) -> Markup {
    html! {
        div .tile { dt { (name) } dd { (value) @if !note.is_empty() { " " small .muted { (note) } } } }
    }
}

/// Returns a tile; without a value, it says so in words.
fn value_tile(name: &str, value: Option<String>, note: &str) -> Markup {
    match value {
        Some(value) => tile(name, &html! { (value) }, note),
        None => tile(name, &html! { small .muted { "no call yet" } }, ""),
    }
}

fn charts(intervals: &[Interval]) -> Markup {
    let per_second = |count: fn(&Interval) -> u64| -> Vec<f64> {
        intervals.iter().map(|interval| interval.per_second(count(interval))).collect()
    };
    let calls = per_second(|interval| interval.counts.calls());
    let failures = per_second(|interval| interval.counts.of(CallBlame::Agent) + interval.counts.of(CallBlame::Gateway));
    let durations: Vec<f64> = intervals
        .iter()
        .map(|interval| interval.counts.durations.quantile(0.99).unwrap_or(Duration::ZERO).as_secs_f64())
        .collect();
    let in_flight: Vec<f64> = intervals.iter().map(|interval| interval.in_flight as f64).collect();
    let highest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let slowest = duration_text(Duration::from_secs_f64(highest(&durations)));
    html! {
        div .columns {
            (chart_card("Calls", &calls, &rate_text(highest(&calls))))
            (chart_card("Failures of agents and of the gateway", &failures, &rate_text(highest(&failures))))
            (chart_card("Duration of 99 of 100 calls", &durations, &slowest))
            (chart_card("Calls in flight", &in_flight, &count_text(highest(&in_flight) as u64)))
        }
    }
}

/// Returns the values with zeros for the time before the start, so that every chart covers the whole window.
fn over_window(values: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0; MAX_INTERVALS.saturating_sub(values.len())];
    all.extend(values);
    all
}

/// Returns a chart with its highest value in words.
pub(super) fn chart_card(title: &str, values: &[f64], highest: &str) -> Markup {
    let window = window_text();
    html! {
        section .card {
            h2 { (title) }
            @if values.is_empty() {
                p .muted { "Counts begin ten seconds after the start." }
            } @else {
                (chart(&over_window(values), &format!("{title} in the last {window}: at most {highest}")))
                div .legend { span { (window) " ago" } span { "at most " (highest) } span { "now" } }
            }
        }
    }
}
