//! The sources of agents: their state, polls at once, and the confirmation of a loss of agents that is held back.

use super::{console_context::ConsoleContext, console_page::Visitor, page_thread::build_page};
use crate::{
    admin::{ChangeAuthor, ChangeResult, OperatorRole, SourceRow, error_page, make_recorded_change},
    audit::AuditAction,
    fault::{Fault, FaultCode},
    values::format_count,
    web_page::{Badge, Notice, count_text, duration_text, notice, query_string},
};
use axum::{
    Form,
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde::Deserialize;
use std::{sync::Arc, time::Duration};

/// The path of the list.
pub(super) const SOURCES_PATH: &str = "/console/sources";
/// The path of polls at once.
pub(super) const REFRESH_PATH: &str = "/console/sources/refresh";
/// The path of the confirmation of a loss.
pub(super) const CONFIRM_PATH: &str = "/console/sources/confirm";

/// What the list says after a form was sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Outcome {
    done: String,
}

/// The source that a page or a form is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChosenSource {
    source: String,
    /// Number of agents whose loss the operator read.
    agents: usize,
}

/// Lists the sources.
pub(super) async fn list_sources(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Query(outcome): Query<Outcome>,
) -> Response {
    build_page(move || {
        let sources = context.admin.list_sources();
        let may_change = visitor.operator.require(OperatorRole::Operator).is_ok();
        let content = html! {
            div .page-head { h1 { "Sources" } p { (format_count(sources.len(), "source")) " of agents, in the order of precedence" } }
            (outcome_notice(&outcome.done))
            section #sources data-refresh="5" aria-label="Sources" {
                @if sources.is_empty() {
                    p { "There are no sources: no agents can be called. Add a file, a folder or a registry to agents.sources, or the section registry." }
                } @else {
                    (source_table(&sources, may_change.then_some(&visitor)))
                }
            }
            @if !may_change { p .muted { "Polling a source and accepting a loss need the role operator." } }
        };
        visitor.page("Sources", SOURCES_PATH, &content)
    })
    .await
}

fn outcome_notice(done: &str) -> Markup {
    let (kind, text) = match done {
        "refreshed" => (Notice::Good, "The poll has started. The table shows its result."),
        "confirmed" => (Notice::Good, "The loss was accepted. The agents are gone."),
        "nothing" => (Notice::Neutral, "No loss is held back any more: a poll, or another operator, decided before."),
        "changed" => (
            Notice::Warning,
            "The number of agents has changed since you read it. Read the new one before you accept it.",
        ),
        _ => return html! {},
    };
    notice(kind, &html! { p { (text) } })
}

/// Returns the table; `visitor` is an operator who may change something.
fn source_table(sources: &[SourceRow], visitor: Option<&Visitor>) -> Markup {
    html! {
        .card .table-scroll tabindex="0" { table {
            caption { "An earlier source wins an id that several sources have." }
            thead { tr {
                th scope="col" { "Source" } th scope="col" { "Kind" } th scope="col" .number { "Agents" }
                th scope="col" { "Last read" } th scope="col" { "State" } th scope="col" { "What to know" }
                @if visitor.is_some() { th scope="col" { "Actions" } }
            } }
            tbody {
                @for source in sources {
                    tr {
                        th scope="row" { (source.name) }
                        td { (source.kind) @if source.required { " " (badge(Notice::Neutral, "required")) } }
                        td .number { (count_text(source.agents as u64)) }
                        td .nowrap { (age_text(source)) }
                        td { (state_badges(source)) }
                        td { (remarks(source)) }
                        @if let Some(visitor) = visitor { td { (actions(source, visitor)) } }
                    }
                }
            }
        } }
    }
}

fn badge(notice: Notice, text: &str) -> Badge<'_> {
    Badge { notice, text }
}

fn age_text(source: &SourceRow) -> String {
    match source.age_seconds {
        Some(0) => "now".to_owned(),
        Some(seconds) => format!("{} ago", duration_text(Duration::from_secs(seconds))),
        None if source.read => "from disk".to_owned(),
        None => "never".to_owned(),
    }
}

fn state_badges(source: &SourceRow) -> Markup {
    let states = [
        (!source.read, Notice::Bad, "not read yet"),
        (source.stale, Notice::Bad, "stale: its agents are not served"),
        (source.from_last_known_good, Notice::Warning, "from the last known good"),
        (source.withheld.is_some(), Notice::Warning, "loss held back"),
        (source.error.is_some(), Notice::Bad, "last poll failed"),
        (source.documents_with_findings > 0, Notice::Warning, "documents with findings"),
    ];
    let mut shown = states.into_iter().filter(|(applies, ..)| *applies).peekable();
    html! {
        @if shown.peek().is_none() { (badge(Notice::Good, "read")) }
        @for (_, kind, text) in shown { (badge(kind, text)) " " }
    }
}

fn remarks(source: &SourceRow) -> Markup {
    html! {
        @if let Some(error) = &source.error { div { "Error: " (error) } }
        @if let Some(lost) = source.withheld {
            div { "The last poll would remove " (format_count(lost, "agent")) " of " (source.agents) ". The loss guard holds this back." }
        } @else if let Some(warning) = source.warning.as_ref() {
            div { (warning) }
        }
        @if source.documents_with_findings > 0 {
            details {
                summary { (format_count(source.documents_with_findings, "document")) " with findings" }
                ul { @for finding in &source.document_findings { li { (finding) } } }
            }
        }
        @if source.unsupported_documents > 0 {
            details {
                summary { (format_count(source.unsupported_documents, "document")) " of what the gateway does not call" }
                ul { @for reason in &source.unsupported { li { (reason) } } }
            }
        }
    }
}

fn actions(source: &SourceRow, visitor: &Visitor) -> Markup {
    html! {
        form .inline method="post" action=(REFRESH_PATH) {
            (visitor.csrf_field())
            input type="hidden" name="source" value=(source.name);
            button type="submit" aria-label={ "Poll now: " (source.name) } { "Poll now" }
        }
        @if let Some(lost) = source.withheld {
            " "
            a .button href={ (CONFIRM_PATH) (query_string(&[("source", &source.name)])) } {
                "Accept the loss of " (format_count(lost, "agent"))
            }
        }
    }
}

/// Polls a source at once.
pub(super) async fn refresh_source(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    author: ChangeAuthor,
    Form(chosen): Form<ChosenSource>,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Operator) {
        return error_page(&fault);
    }
    let entry = author.audit_entry(AuditAction::SourceRefreshed, chosen.source.clone());
    let (log, admin) = (context.admin.audit_log(), Arc::clone(&context.admin));
    let poll = tokio::task::spawn_blocking(move || admin.refresh_source(&chosen.source));
    let was_polled = make_recorded_change(log, entry, poll, |polled| match polled {
        Ok(true) => ChangeResult::Made,
        Ok(false) => unknown_source(),
        Err(_) => ChangeResult::Refused("the poll could not be started".to_owned()),
    });
    match was_polled.await {
        Some(Ok(true)) => Redirect::to("/console/sources?done=refreshed").into_response(),
        Some(Ok(false)) => error_page(&unknown_source_fault()),
        Some(Err(_)) | None => error_page(&Fault::new(FaultCode::Internal, "The poll could not be started")),
    }
}

/// Asks before a loss is accepted.
pub(super) async fn ask_to_confirm(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Query(chosen): Query<ChosenSource>,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Operator) {
        return error_page(&fault);
    }
    build_page(move || {
        let sources = context.admin.list_sources();
        let Some(source) = sources.iter().find(|source| source.name == chosen.source) else {
            return error_page(&unknown_source_fault());
        };
        let Some(lost) = source.withheld else {
            return Redirect::to("/console/sources?done=nothing").into_response();
        };
        visitor.page("Accept a loss of agents", SOURCES_PATH, &confirm_content(source, lost, &visitor))
    })
    .await
}

fn confirm_content(source: &SourceRow, lost: usize, visitor: &Visitor) -> Markup {
    html! {
        div .page-head { h1 { "Accept the loss of " (format_count(lost, "agent")) "?" } }
        (notice(Notice::Warning, &html! {
            p { "The last poll of " strong { (source.name) } " no longer has " (lost) " of its " (format_count(source.agents, "agent")) "." }
        }))
        section .card {
            h2 { "What will happen" }
            ul {
                li { "The gateway removes these agents at once: callers get 404 for them, and the directory lists them no more." }
                li { "Calls in progress end as usual." }
                li { "An agent comes back as soon as a poll finds it again." }
                li { "The audit log has an entry with your name." }
            }
            p { "Without this the agents stay until polls over the time of the source's loss_guard.confirm_after agree, or until one finds the agents again." }
            form method="post" action=(CONFIRM_PATH) {
                (visitor.csrf_field())
                input type="hidden" name="source" value=(source.name);
                input type="hidden" name="agents" value=(lost);
                button .danger type="submit" { "Accept the loss of " (format_count(lost, "agent")) }
                " " a .button href=(SOURCES_PATH) { "Keep the agents" }
            }
        }
    }
}

/// How a confirmation ended.
enum Confirmation {
    Accepted,
    /// No loss is held back.
    NothingWithheld,
    /// Another number of agents would be lost.
    OtherLoss,
    UnknownSource,
}

/// Accepts a loss that is held back, if it is still the one that the operator read.
pub(super) async fn confirm_loss(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    author: ChangeAuthor,
    Form(chosen): Form<ChosenSource>,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Operator) {
        return error_page(&fault);
    }
    let entry = author.audit_entry(AuditAction::SourceLossConfirmed, chosen.source.clone());
    let (log, admin) = (context.admin.audit_log(), Arc::clone(&context.admin));
    let confirm = tokio::task::spawn_blocking(move || {
        let sources = admin.list_sources();
        match sources.iter().find(|source| source.name == chosen.source).map(|source| source.withheld) {
            None => Confirmation::UnknownSource,
            Some(Some(lost)) if lost != chosen.agents => Confirmation::OtherLoss,
            Some(_) => match admin.confirm_agent_loss(&chosen.source) {
                Some(true) => Confirmation::Accepted,
                Some(false) => Confirmation::NothingWithheld,
                None => Confirmation::UnknownSource,
            },
        }
    });
    let confirmed = make_recorded_change(log, entry, confirm, |confirmed| match confirmed {
        Ok(Confirmation::Accepted) => ChangeResult::Made,
        Ok(Confirmation::NothingWithheld) => ChangeResult::Refused("no loss is held back".to_owned()),
        Ok(Confirmation::OtherLoss) => ChangeResult::Refused("another number of agents would be lost".to_owned()),
        Ok(Confirmation::UnknownSource) => unknown_source(),
        Err(_) => ChangeResult::Refused("the loss could not be confirmed".to_owned()),
    });
    match confirmed.await {
        Some(Ok(Confirmation::Accepted)) => Redirect::to("/console/sources?done=confirmed").into_response(),
        Some(Ok(Confirmation::NothingWithheld)) => Redirect::to("/console/sources?done=nothing").into_response(),
        Some(Ok(Confirmation::OtherLoss)) => Redirect::to("/console/sources?done=changed").into_response(),
        Some(Ok(Confirmation::UnknownSource)) => error_page(&unknown_source_fault()),
        Some(Err(_)) | None => error_page(&Fault::new(FaultCode::Internal, "The loss could not be confirmed")),
    }
}

fn unknown_source() -> ChangeResult {
    ChangeResult::Refused("status 404".to_owned())
}

fn unknown_source_fault() -> Fault {
    Fault::new(FaultCode::NotFound, "There is no source with this name")
}
