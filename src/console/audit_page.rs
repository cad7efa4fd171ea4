//! The audit log: its newest entries, and whether its chain is intact.

use super::{console_context::ConsoleContext, console_page::Visitor, page_thread::run_blocking};
use crate::{
    admin::error_page,
    audit::{
        AuditAction, AuditLine, AuditLog, AuditOutcome, AuditPage, AuditQuery, ChainProof, ChainVerification,
        StoredEntry, list_files, measure_log, read_newest,
    },
    config::strip_os_error_codes,
    signing::{SigningKey, TrustedKeys},
    values::format_count,
    web_page::{Badge, Notice, bytes_text, count_text, facts, notice, pager, query_string, text_field, time_text},
};
use axum::{
    Extension, Router,
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use maud::{Markup, html};
use parking_lot::Mutex;
use serde::Deserialize;
use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::sync::Semaphore;

const AUDIT_PATH: &str = "/console/audit";
/// Maximum number of entries of a page.
const PAGE_ROWS: usize = 100;
/// How long a verification may take.
const VERIFICATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the routes of the audit log.
pub(super) fn routes() -> Router<ConsoleContext> {
    Router::new()
        .route(AUDIT_PATH, get(show_log))
        .route("/console/audit/verify", post(verify_log))
        .layer(Extension(Arc::new(Verifications { running: Arc::new(Semaphore::new(1)), last: Mutex::default() })))
}

/// The verifications of the chain: one at once, and the result of the last.
struct Verifications {
    running: Arc<Semaphore>,
    last: Mutex<Option<VerifiedLog>>,
}

/// The result of a verification.
#[derive(Clone)]
struct VerifiedLog {
    at: SystemTime,
    took: Duration,
    /// `None` if it took too long.
    result: Result<Option<ChainProof>, String>,
}

#[derive(Deserialize)]
struct LogQuery {
    #[serde(default)]
    action: String,
    #[serde(default)]
    actor: String,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    before: String,
    #[serde(default)]
    done: String,
}

impl LogQuery {
    fn to_audit_query(&self) -> AuditQuery {
        let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        AuditQuery {
            before: self.before.parse().ok(),
            action: text(&self.action),
            actor: text(&self.actor),
            outcome: text(&self.outcome),
            limit: PAGE_ROWS,
        }
    }
}

async fn show_log(
    State(context): State<ConsoleContext>,
    Extension(verifications): Extension<Arc<Verifications>>,
    Query(query): Query<LogQuery>,
    visitor: Visitor,
) -> Response {
    let Some(log) = context.gateway.audit_log.clone() else {
        let file_name = &context.source.config_in_force().file_name;
        let content = html! {
            div .page-head { h1 { "Audit log" } }
            (notice(Notice::Warning, &html! {
                p { "No change is recorded. Set " code { "audit: {file: audit.log}" } " in " code { (file_name) } " and start the gateway again." }
            }))
        };
        return visitor.page("Audit log", AUDIT_PATH, &content);
    };
    let (audit_query, file) = (query.to_audit_query(), log.file().to_owned());
    let checked = Arc::clone(&log);
    let read = move || (read_newest(&file, &audit_query), measure_log(&file), checked.require_writable().is_ok());
    let (page, size, is_writable) = match run_blocking(read).await {
        Ok(read) => read,
        Err(fault) => return error_page(&fault),
    };
    let size = size.map(|size| html! { (bytes_text(size.bytes)) " in " (format_count(size.files, "file")) });
    let content = html! {
        div .page-head { h1 { "Audit log" } p { (file_name(log.file())) @if let Ok(size) = &size { ", " (size) } } }
        @if !is_writable {
            (notice(Notice::Bad, &html! { p { "The log cannot be written: entries wait in memory (the gateway's log says why)." } }))
        }
        (verification_section(&visitor, &query, verifications.last.lock().as_ref()))
        (filter_form(&query))
        section .card {
            h2 { "Entries" }
            p .muted { "The newest first, as they were written: with pseudonyms where the log has them." }
            @match &page {
                Ok(page) => { (entry_table(page)) (page_links(&query, page)) }
                Err(why) => { (notice(Notice::Bad, &html! { p { "The log cannot be read: " (strip_os_error_codes(&why.to_string())) } })) }
            }
        }
    };
    visitor.page("Audit log", AUDIT_PATH, &content)
}

fn file_name(file: &Path) -> String {
    file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn filter_form(query: &LogQuery) -> Markup {
    let outcomes = [AuditOutcome::Done, AuditOutcome::Refused].map(AuditOutcome::name);
    let actions = AuditAction::ALL.iter().map(|action| action.name());
    html! {
        form .fields method="get" action=(AUDIT_PATH) role="search" {
            (choice("action", "Action", actions, &query.action))
            (text_field("actor", "Actor", &query.actor))
            (choice("outcome", "Outcome", outcomes.into_iter(), &query.outcome))
            button type="submit" { "Show" }
        }
    }
}

fn choice(name: &str, label: &str, values: impl Iterator<Item = &'static str>, selected: &str) -> Markup {
    html! {
        .field {
            label for={ "field-" (name) } { (label) }
            select id={ "field-" (name) } name=(name) {
                option value="" { "any" }
                @for value in values { option value=(value) selected[value == selected] { (value) } }
            }
        }
    }
}

fn entry_table(page: &AuditPage) -> Markup {
    html! {
        @if page.lines.is_empty() {
            p {
                @if page.next.is_some() { "No entry among those that were read is of this kind. Older ones follow on the next page." }
                @else { "No entry is of this kind. " a href=(AUDIT_PATH) { "Show all entries" } }
            }
        } @else {
            .table-scroll tabindex="0" {
                table {
                    caption .visually-hidden { "Entries of the audit log" }
                    thead {
                        tr {
                            th scope="col" .number { "Line" }
                            th scope="col" { "Time" }
                            th scope="col" { "Actor" }
                            th scope="col" { "Action" }
                            th scope="col" { "Subject" }
                            th scope="col" { "Outcome" }
                            th scope="col" { "Detail" }
                        }
                    }
                    tbody { @for line in &page.lines { (entry_row(line)) } }
                }
            }
        }
    }
}

fn entry_row(line: &AuditLine) -> Markup {
    match line {
        AuditLine::Entry(entry) => html! {
            tr {
                th scope="row" .number { (entry.sequence) }
                td .nowrap { (time_of(&entry.time)) }
                td { (entry.actor) @if let Some(address) = &entry.address { " " small { "from " (address) } } }
                td { code { (entry.action) } }
                td { (entry.subject) @if let Some(caller) = &entry.caller { " " small { "of " (caller) } } }
                td { (outcome_badge(entry)) }
                td { (entry.detail.as_deref().unwrap_or_default()) @if let Some(id) = &entry.request_id { " " small { "request " (id) } } }
            }
        },
        AuditLine::Broken(file) => html! {
            tr { th scope="row" { (Badge { notice: Notice::Bad, text: "broken" }) } td colspan="6" { "A line of " (file) " is not an entry of an audit log." } }
        },
    }
}

fn time_of(text: &str) -> String {
    OffsetDateTime::parse(text, &Rfc3339).map_or_else(|_| text.to_owned(), |at| time_text(at.into()))
}

fn outcome_badge(entry: &StoredEntry) -> Badge<'_> {
    let notice = if entry.outcome == AuditOutcome::Done.name() { Notice::Good } else { Notice::Warning };
    Badge { notice, text: &entry.outcome }
}

fn page_links(query: &LogQuery, page: &AuditPage) -> Markup {
    let link = |before: &str| {
        let parameters =
            [("action", &*query.action), ("actor", &*query.actor), ("outcome", &*query.outcome), ("before", before)];
        format!("{AUDIT_PATH}{}", query_string(&parameters))
    };
    let first = (!query.before.is_empty()).then(|| link(""));
    let next = page.next.map(|next| link(&next.to_string()));
    pager(first.as_deref(), next.as_deref())
}

fn verification_section(visitor: &Visitor, query: &LogQuery, last: Option<&VerifiedLog>) -> Markup {
    html! {
        section .card {
            h2 { "Chain" }
            @if query.done == "busy" { (notice(Notice::Neutral, &html! { p { "A verification is in progress: load the page again in a while." } })) }
            @match last {
                None => { p { "The chain was not verified since the gateway started." } }
                Some(last) => { (verification_result(last)) }
            }
            form method="post" action="/console/audit/verify" {
                (visitor.csrf_field())
                button type="submit" { "Verify the chain" }
                " " span .hint { "Reads the whole log, for at most " (VERIFICATION_TIMEOUT.as_secs()) " seconds." }
            }
        }
    }
}

fn verification_result(last: &VerifiedLog) -> Markup {
    let when = html! { (time_text(last.at)) ", in " (last.took.as_millis()) " ms" };
    match &last.result {
        Err(why) => notice(Notice::Bad, &html! { p { strong { "The chain is broken: " } (why) } p { (when) } }),
        Ok(None) => notice(
            Notice::Warning,
            &html! {
                p { "The verification took too long and ended without a result (" code { "gatepost audit verify" } " has no bound)." }
                p { (when) }
            },
        ),
        Ok(Some(proof)) => html! {
            (notice(Notice::Good, &html! { p { strong { "The chain is intact." } } }))
            (facts([
                ("Verified", Some(when)),
                ("Lines", Some(html! { (count_text(proof.lines)) " in " (format_count(proof.files, "file")) ", " (proof.first_sequence) " to " (proof.last.sequence) })),
                ("Last line", Some(html! { code { (proof.last.sequence) ":" (proof.last.hash) } })),
                ("Signed", proof.signed_up_to.map(|sequence| html! { "up to line " (sequence) })),
                ("In the anchor", proof.anchored_up_to.map(|sequence| html! { "up to line " (sequence) })),
            ]))
            @if !proof.unproven.is_empty() {
                (notice(Notice::Neutral, &html! { @for what in &proof.unproven { p { (what) } } }))
            }
        },
    }
}

async fn verify_log(
    State(context): State<ConsoleContext>,
    Extension(verifications): Extension<Arc<Verifications>>,
) -> Response {
    let Some(log) = context.gateway.audit_log.clone() else { return Redirect::to(AUDIT_PATH).into_response() };
    let Ok(permit) = Arc::clone(&verifications.running).try_acquire_owned() else {
        return Redirect::to(&format!("{AUDIT_PATH}?done=busy")).into_response();
    };
    let key = context.gateway.config.load().directory.signing_key.clone();
    // The verification of a client that left goes on, and counts until its end.
    let verified = run_blocking(move || {
        let _permit = permit;
        verify(&log, key.as_deref())
    });
    let verified = verified.await;
    match verified {
        Ok(verified) => {
            *verifications.last.lock() = Some(verified);
            Redirect::to(AUDIT_PATH).into_response()
        }
        Err(fault) => error_page(&fault),
    }
}

/// Verifies the chain as `gatepost audit verify` does. Blocks.
fn verify(log: &AuditLog, key: Option<&SigningKey>) -> VerifiedLog {
    let (at, started) = (SystemTime::now(), Instant::now());
    let keys = key.map(|key| TrustedKeys::from_jwks(&key.jwks())).transpose();
    let files = list_files(log.file()).map_err(|why| format!("the folder cannot be read: {why}"));
    let result = keys.and_then(|keys| Ok((keys, files?))).and_then(|(keys, files)| {
        let verification =
            ChainVerification { keys, known_line: None, anchor_file: log.anchor_file().map(Path::to_owned) };
        verification.verify_until(&files, Some(started + VERIFICATION_TIMEOUT))
    });
    VerifiedLog { at, took: started.elapsed(), result }
}
