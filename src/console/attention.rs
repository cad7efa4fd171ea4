//! What needs the attention of an operator, as a list with links.

use super::{
    activity::window_text,
    activity_window::{AgentCalls, Interval},
    console_context::ConsoleContext,
};
use crate::{
    agent::AgentStatus,
    registry::SourceHealth,
    telemetry::{AuditEntryResult, CertificateKind, redact},
    transport::BreakerState,
    values::{format_count, unix_time},
    web_page::{Badge, Notice, attention_item, count_text, time_text},
};
use maud::{Markup, html};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// How many items of one kind are listed.
const MAX_ITEMS: usize = 10;

/// How long before its end a certificate or a key needs attention, in seconds.
const EXPIRATION_NOTICE: i64 = 14 * 24 * 3600;

const SOURCES: Link = Link { path: "/console/sources", label: "Sources" };
const CONFIGURATION: Link = Link { path: "/console/configuration", label: "Configuration" };
const REJECTED: Link = Link { path: "/console/rejected-documents", label: "Rejected documents" };
const FAILING_AGENTS: Link = Link { path: "/console/agents?state=failing", label: "Failing agents" };

/// A page that says more.
#[derive(Clone, Copy)]
struct Link {
    path: &'static str,
    label: &'static str,
}

/// The list, in the order in which an operator should look at it.
#[derive(Default)]
struct AttentionList(Vec<Markup>);

impl AttentionList {
    fn add(&mut self, notice: Notice, state: &str, content: &Markup) {
        self.0.push(attention_item(Badge { notice, text: state }, content));
    }

    fn add_text(&mut self, notice: Notice, state: &str, text: &str) {
        self.add(notice, state, &html! { (text) });
    }

    fn add_with_link(&mut self, notice: Notice, state: &str, text: &str, link: Link) {
        self.add(notice, state, &html! { (text) " " a href=(link.path) { (link.label) } });
    }

    /// Says that more items of a kind exist than are listed.
    fn add_rest(&mut self, count: usize, link: Link) {
        if let Some(rest) = count.checked_sub(MAX_ITEMS).filter(|rest| *rest > 0) {
            self.add_with_link(Notice::Neutral, "more", &format!("{rest} more."), link);
        }
    }
}

/// Returns the list of what needs attention. Looks at every agent.
pub(super) fn attention_list(context: &ConsoleContext, intervals: &[Interval]) -> Markup {
    let mut list = AttentionList::default();
    add_readiness(&mut list, context);
    add_sources(&mut list, &context.gateway.catalogue.source_health());
    add_agents(&mut list, context);
    add_expirations(&mut list, context);
    add_logs(&mut list, context, intervals);
    html! {
        @if list.0.is_empty() {
            p { (Badge { notice: Notice::Good, text: "all well" }) " Nothing needs attention." }
        } @else {
            ul .attention { @for item in &list.0 { (item) } }
        }
    }
}

fn add_readiness(list: &mut AttentionList, context: &ConsoleContext) {
    let health = context.admin.health();
    for reason in health.not_ready_reasons() {
        list.add_with_link(Notice::Bad, "not ready", &format!("The gateway is not ready: {reason}."), SOURCES);
    }
    if let Some(why) = &health.config_error {
        let text = format!("The changed configuration was rejected, and the previous one is in force: {}", redact(why));
        list.add_with_link(Notice::Bad, "configuration rejected", &text, CONFIGURATION);
    }
    if context.gateway.limits.is_shedding() {
        list.add_text(Notice::Bad, "overload", "The gateway refuses calls, because it has too much to do.");
    }
    for outage in &health.outages {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(outage.since).unwrap_or_default());
        let content = html! { (outage.describe()) " Since " (time_text(since)) "." };
        list.add(Notice::Bad, "service unavailable", &content);
    }
    let waiting = &context.source.config_in_force().waiting_for_restart;
    if !waiting.is_empty() {
        let text = format!("Changed settings take effect at the next start: {}.", waiting.join(", "));
        list.add_with_link(Notice::Warning, "restart", &text, CONFIGURATION);
    }
    for problem in health.problems.iter().take(MAX_ITEMS) {
        let text = format!("Cannot be read, and its previous agents are served: {}", redact(problem));
        list.add_with_link(Notice::Warning, "unreadable", &text, SOURCES);
    }
    list.add_rest(health.problems.len(), SOURCES);
    if health.rejected_documents > 0 {
        let text = match health.rejected_documents {
            1 => "One document is rejected; its agent cannot be called.".to_owned(),
            count => format!("{} documents are rejected; their agents cannot be called.", count_text(count as u64)),
        };
        list.add_with_link(Notice::Warning, "rejected", &text, REJECTED);
    }
}

fn add_sources(list: &mut AttentionList, sources: &[SourceHealth]) {
    let unhealthy: Vec<(&SourceHealth, String)> =
        sources.iter().filter_map(|source| Some((source, source.warning()?))).collect();
    for (source, warning) in unhealthy.iter().take(MAX_ITEMS) {
        let name = &source.name;
        match source.withheld_loss {
            Some(lost) => {
                let agents = source.agents;
                let text = format!("Source {name} would lose {lost} of {agents} agents, and waits for a confirmation.");
                list.add_with_link(Notice::Warning, "loss held back", &text, SOURCES);
            }
            None if source.stale => {
                list.add_with_link(Notice::Bad, "stale", &format!("Source {name}: {}.", redact(warning)), SOURCES);
            }
            None => {
                list.add_with_link(Notice::Warning, "source", &format!("Source {name}: {}.", redact(warning)), SOURCES);
            }
        }
    }
    list.add_rest(unhealthy.len(), SOURCES);
}

fn add_agents(list: &mut AttentionList, context: &ConsoleContext) {
    let snapshot = context.gateway.catalogue.snapshot();
    let has_open_breaker = |(_, state): (&str, BreakerState)| state != BreakerState::Closed;
    let mut open: Vec<&str> = snapshot
        .iter()
        .filter(|(_, route)| route.endpoints().any(has_open_breaker))
        .map(|(id, _)| id.as_str())
        .collect();
    open.sort_unstable();
    if !open.is_empty() {
        list.add(
            Notice::Bad,
            "circuit breaker",
            &html! {
                "Calls do not reach "
                @for (at, id) in open.iter().take(MAX_ITEMS).enumerate() {
                    @if at > 0 { ", " }
                    (agent_link(id))
                }
                @if let Some(rest) = open.len().checked_sub(MAX_ITEMS).filter(|rest| *rest > 0) {
                    ", and " (format_count(rest, "more agent"))
                }
                ": an endpoint failed several times in a row. "
                a href=(FAILING_AGENTS.path) { (FAILING_AGENTS.label) }
            },
        );
    }
    let (made_inactive, others): (HashMap<_, _>, HashMap<_, _>) =
        context.activity.called_agents().into_iter().partition(|(id, _)| {
            let agent = snapshot.get(id).map(|route| route.agent());
            agent.is_some_and(|agent| agent.status == AgentStatus::Inactive && !agent.is_unavailable)
        });
    // Their documents or owners say that they take no calls, so they fail none.
    for (id, calls) in sorted_by(made_inactive, |calls| calls.calls).iter().take(MAX_ITEMS) {
        let text = format!(" is inactive, and was called {} times in the last ", count_text(calls.calls));
        list.add(Notice::Neutral, "inactive", &html! { (agent_link(id)) (text) (window_text()) "." });
    }
    let failing = others.into_iter().filter(|(_, calls)| calls.failures > 0).collect();
    let failing = sorted_by(failing, |calls| calls.failures);
    for (id, calls) in failing.iter().take(MAX_ITEMS) {
        if snapshot.get(id).is_none() {
            continue;
        }
        list.add(
            Notice::Warning,
            "failures",
            &html! {
                (agent_link(id)) " failed " (count_text(calls.failures)) " of " (count_text(calls.calls))
                " calls in the last " (window_text()) "."
            },
        );
    }
    list.add_rest(failing.len(), FAILING_AGENTS);
}

/// Sorts agents by a number of their calls, the highest first.
fn sorted_by(agents: HashMap<Arc<str>, AgentCalls>, number: fn(&AgentCalls) -> u64) -> Vec<(Arc<str>, AgentCalls)> {
    let mut agents: Vec<(Arc<str>, AgentCalls)> = agents.into_iter().collect();
    agents.sort_unstable_by(|(one_id, one), (two_id, two)| {
        number(two).cmp(&number(one)).then_with(|| one_id.cmp(two_id))
    });
    agents
}

/// Returns a link to the page of an agent. Ids need no encoding in a path.
pub(super) fn agent_link(id: &str) -> Markup {
    html! { a href={ "/console/agents/" (id) } { (id) } }
}

fn add_expirations(list: &mut AttentionList, context: &ConsoleContext) {
    let metrics = &context.gateway.metrics;
    let now = i64::try_from(unix_time().as_secs()).unwrap_or(i64::MAX);
    let expiring = metrics.certificates().expiring_before(now.saturating_add(EXPIRATION_NOTICE));
    for certificate in expiring.iter().take(MAX_ITEMS) {
        let kind = match certificate.kind {
            CertificateKind::Listener => "of listener",
            CertificateKind::Upstream => "for agents in",
            CertificateKind::Issuer => "of an authority in",
        };
        add_expiration(list, &format!("A certificate {kind} {}", certificate.name), certificate.expires, now);
    }
    if let Some(rest) = expiring.len().checked_sub(MAX_ITEMS).filter(|rest| *rest > 0) {
        list.add_text(Notice::Warning, "more", &format!("{rest} more certificates expire soon."));
    }
    let next_key = metrics.keys().api_keys().next_expiration;
    if let Some(expires) = next_key.filter(|expires| *expires < now.saturating_add(EXPIRATION_NOTICE)) {
        add_expiration(list, "An API key", expires, now);
    }
}

fn add_expiration(list: &mut AttentionList, what: &str, expires: i64, now: i64) {
    let since_epoch = Duration::from_secs(u64::try_from(expires).unwrap_or_default());
    let at = SystemTime::UNIX_EPOCH.checked_add(since_epoch).map(time_text).unwrap_or_default();
    if expires <= now {
        list.add_text(Notice::Bad, "expired", &format!("{what} expired at {at}."));
    } else {
        list.add_text(Notice::Warning, "expires soon", &format!("{what} expires at {at}."));
    }
}

fn add_logs(list: &mut AttentionList, context: &ConsoleContext, intervals: &[Interval]) {
    let metrics = &context.gateway.metrics;
    let dropped: u64 = intervals.iter().map(|interval| interval.dropped_log_entries).sum();
    if dropped > 0 {
        let text = format!("Entries of the access log dropped in the last {}: {}.", window_text(), count_text(dropped));
        list.add_text(Notice::Warning, "access log", &text);
    }
    let lost = metrics.audit_entries(AuditEntryResult::Lost);
    if lost > 0 {
        let text = format!("Entries of the audit log lost since the start: {}.", count_text(lost));
        list.add_text(Notice::Bad, "audit log", &text);
    }
    let waiting = metrics.waiting_audit_entries();
    if waiting > 0 {
        let text = format!("Entries that wait, because the audit log cannot be written: {waiting}.");
        list.add_text(Notice::Bad, "audit log", &text);
    }
}
