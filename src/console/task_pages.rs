//! The tasks: how many there are, the newest, and the page of one. Inputs and results are the callers', and no page shows
//! them.

use super::{console_context::ConsoleContext, console_page::Visitor};
use crate::{
    admin::{ClientAddress, OperatorRole, error_page},
    agent::caller_of_owner_key,
    audit::{AuditAction, AuditEntry},
    fault::{Fault, FaultCode},
    store::{TaskCounts, TaskPage, TaskStateCount},
    task::{TaskDetails, TaskManager, TaskRow, TaskState, no_such_task},
    telemetry::{AccessLog, redact_agent_text},
    values::percent_encode,
    web_page::{Badge, Notice, count_text, facts, notice, pager, query_string, text_field, time_ago, time_text},
};
use axum::{
    Extension, Router,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use maud::{Markup, html};
use serde::Deserialize;
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};
use time::OffsetDateTime;

const TASKS_PATH: &str = "/console/tasks";
/// Maximum number of rows of a list.
const PAGE_ROWS: usize = 100;
/// How long a page waits for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the routes of tasks.
pub(super) fn routes() -> Router<ConsoleContext> {
    Router::new()
        .route(TASKS_PATH, get(list_tasks))
        .route("/console/tasks/{id}", get(show_task))
        .route("/console/tasks/{id}/cancel", post(cancel_task))
}

/// Runs an operation of the store on the runtime of calls, to which its connections belong.
async fn ask_store<T: Send + 'static>(
    context: &ConsoleContext,
    operation: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    let timed_out = || Fault::new(FaultCode::Timeout, "The task store did not answer within 5 seconds");
    let failed = || Fault::new(FaultCode::Internal, "The page failed (the gateway's log says why)");
    // An operation that takes longer goes on, so that a change that was made is recorded.
    let answer = tokio::time::timeout(STORE_TIMEOUT, context.calls.spawn(operation)).await;
    answer.map_err(|_| timed_out())?.map_err(|_| failed())?
}

fn manager(context: &ConsoleContext) -> Option<Arc<TaskManager>> {
    context.gateway.config.load().tasks.clone()
}

#[derive(Clone, Deserialize)]
struct ListQuery {
    #[serde(default)]
    state: String,
    #[serde(default)]
    agent: String,
    /// The creation of the last task of the page before, in microseconds since 1970, and its id.
    #[serde(default)]
    after: String,
}

impl ListQuery {
    fn to_page(&self) -> TaskPage {
        let text = |text: &str| Some(text.trim()).filter(|text| !text.is_empty()).map(Arc::from);
        let after = self.after.split_once('-').and_then(|(micros, id)| {
            let nanos = micros.parse::<i128>().ok()?.checked_mul(1_000)?;
            Some((OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?, Arc::from(id)))
        });
        let state = TaskState::ALL.into_iter().find(|state| state.as_str() == self.state);
        // One more than the page has: whether others follow.
        TaskPage {
            after,
            agent: text(&self.agent),
            state: state.map(|state| state.as_str().into()),
            limit: PAGE_ROWS + 1,
        }
    }
}

async fn list_tasks(
    State(context): State<ConsoleContext>,
    Query(query): Query<ListQuery>,
    visitor: Visitor,
) -> Response {
    let Some(tasks) = manager(&context) else {
        let content = html! {
            div .page-head { h1 { "Tasks" } }
            (notice(Notice::Neutral, &html! {
                p { "Tasks are off: the gateway answers every call at once. The section " code { "tasks" } " of the configuration turns them on." }
            }))
        };
        return visitor.page("Tasks", TASKS_PATH, &content);
    };
    let page = query.to_page();
    let read = ask_store(&context, async move { Ok((tasks.count().await?, tasks.list(&page).await?)) }).await;
    let access_log = &context.gateway.access_log;
    let content = html! {
        div .page-head { h1 { "Tasks" } p { "Of all gateways that share the store" } }
        @match &read {
            Err(fault) => { (store_problem(fault)) (filter_form(&query)) }
            Ok(((counts, states), rows)) => {
                (count_tiles(counts, states))
                (filter_form(&query))
                section .card {
                    h2 { "Newest tasks" }
                    (task_table(rows.get(..PAGE_ROWS).unwrap_or(rows), access_log))
                    @if rows.is_empty() { (empty_list(&query)) }
                    (page_links(&query, rows))
                }
            }
        }
    };
    visitor.page("Tasks", TASKS_PATH, &content)
}

fn store_problem(fault: &Fault) -> Markup {
    notice(Notice::Bad, &html! { p { (fault.message()) } })
}

fn count_tiles(counts: &TaskCounts, states: &[TaskStateCount]) -> Markup {
    html! {
        dl .tiles {
            @for TaskStateCount { state, count } in states {
                .tile { dt { @if state.is_empty() { "of an earlier version" } @else { (state) } } dd { (count_text(*count)) } }
            }
            .tile { dt { "running in a gateway" } dd { (count_text(counts.running)) } }
            .tile { dt { "webhook deliveries pending" } dd { (count_text(counts.pending_callbacks)) } }
        }
    }
}

fn filter_form(query: &ListQuery) -> Markup {
    html! {
        form .fields method="get" action=(TASKS_PATH) role="search" {
            .field {
                label for="field-state" { "State" }
                select id="field-state" name="state" {
                    option value="" { "any" }
                    @for state in TaskState::ALL {
                        option value=(state.as_str()) selected[query.state == state.as_str()] { (state.as_str()) }
                    }
                }
            }
            (text_field("agent", "Agent", &query.agent))
            button type="submit" { "Show" }
        }
    }
}

fn empty_list(query: &ListQuery) -> Markup {
    html! {
        p {
            @if query.state.is_empty() && query.agent.is_empty() && query.after.is_empty() {
                "There are no tasks. A call with " code { "Prefer: respond-async" } " becomes one."
            } @else {
                "No task has this state and this agent. " a href=(TASKS_PATH) { "Show all tasks" }
            }
        }
    }
}

fn page_links(query: &ListQuery, rows: &[TaskRow]) -> Markup {
    let link = |after: &str| {
        format!("{TASKS_PATH}{}", query_string(&[("state", &query.state), ("agent", &query.agent), ("after", after)]))
    };
    let first = (!query.after.is_empty()).then(|| link(""));
    let last = rows.get(PAGE_ROWS).and_then(|_| rows.get(PAGE_ROWS - 1));
    let next = last.map(|row| {
        let created = row.overview.as_ref().map_or(0, |overview| overview.created.unix_timestamp_nanos() / 1_000);
        link(&format!("{created}-{}", row.id))
    });
    pager(first.as_deref(), next.as_deref())
}

fn state_badge(state: TaskState) -> Badge<'static> {
    let notice = match state {
        TaskState::Working => Notice::Neutral,
        TaskState::Completed => Notice::Good,
        TaskState::Failed => Notice::Bad,
        TaskState::Canceled => Notice::Warning,
    };
    Badge { notice, text: state.as_str() }
}

fn task_table(rows: &[TaskRow], access_log: &AccessLog) -> Markup {
    html! {
        @if !rows.is_empty() {
            .table-scroll tabindex="0" {
                table {
                    caption .visually-hidden { "Tasks, the newest first" }
                    thead {
                        tr {
                            th scope="col" { "Task" }
                            th scope="col" { "Agent" }
                            th scope="col" { "Operation" }
                            th scope="col" { "Owner" }
                            th scope="col" { "State" }
                            th scope="col" { "Started" }
                            th scope="col" { "Ended" }
                            th scope="col" { "Webhook" }
                        }
                    }
                    tbody { @for row in rows { (task_row(row, access_log)) } }
                }
            }
        }
    }
}

fn task_row(row: &TaskRow, access_log: &AccessLog) -> Markup {
    let overview = row.overview.as_ref();
    let unknown = || html! { span .muted { "unknown" } };
    html! {
        tr {
            th scope="row" { a href={ (TASKS_PATH) "/" (row.id) } { code { (row.id) } } }
            td { @if let Some(overview) = overview { (agent_link(&overview.agent)) } @else { (unknown()) } }
            td { @if let Some(overview) = overview { (overview.operation) } @else { (unknown()) } }
            td { (owner_text(access_log, &row.owner)) }
            td { @if let Some(overview) = overview { (state_badge(overview.state)) } @else { (unknown()) } }
            td .nowrap { @if let Some(overview) = overview { (at(overview.created)) } @else { (unknown()) } }
            td .nowrap { @if let Some(ended) = overview.and_then(|overview| overview.ended()) { (at(ended)) } }
            td { @if row.callback_due.is_some() { "delivery pending" } }
        }
    }
}

fn agent_link(agent: &str) -> Markup {
    html! { a href={ "/console/agents/" (percent_encode(agent)) } { (agent) } }
}

fn at(time: OffsetDateTime) -> Markup {
    let time = SystemTime::from(time);
    html! { span title=(time_text(time)) { (time_ago(time)) } }
}

/// Returns the owner of a task as the access log names the caller.
fn owner_text(access_log: &AccessLog, owner: &str) -> String {
    if let Some((name, address)) = owner.split_once(" at ")
        && let Ok(address) = address.parse::<IpAddr>()
        && name == crate::auth::ANONYMOUS
    {
        let address = access_log.logged_address(address);
        return address.map_or_else(|| name.to_owned(), |address| format!("{name} at {address}"));
    }
    access_log.logged_caller(&caller_of_owner_key(owner)).into_owned()
}

#[derive(Deserialize)]
struct TaskQuery {
    #[serde(default)]
    done: String,
}

async fn show_task(
    State(context): State<ConsoleContext>,
    Path(id): Path<String>,
    Query(query): Query<TaskQuery>,
    visitor: Visitor,
) -> Response {
    let Some(tasks) = manager(&context) else { return error_page(&no_such_task()) };
    let details = match ask_store(&context, async move { tasks.inspect(&id).await }).await {
        Ok(details) => details,
        Err(fault) => return error_page(&fault),
    };
    let TaskDetails { row, request_id, expires, events, callback_attempts, error } = &details;
    let overview = row.overview.as_ref();
    let is_working = overview.is_some_and(|overview| overview.state == TaskState::Working);
    let callback = callback_attempts.map(|attempts| match row.callback_due {
        Some(_) => html! { "delivery pending, failed attempts: " (attempts) },
        None => html! { "no delivery pending, failed attempts: " (attempts) },
    });
    let content = html! {
        div .page-head { h1 { "Task " (row.id) } p { a href=(TASKS_PATH) { "All tasks" } } }
        (done_notice(&query.done))
        section .card {
            h2 { "Task" }
            (facts([
                ("State", overview.map(|overview| html! { (state_badge(overview.state)) })),
                ("Agent", overview.map(|overview| agent_link(&overview.agent))),
                ("Operation", overview.map(|overview| html! { (overview.operation) }).filter(|_| overview.is_some_and(|overview| !overview.operation.is_empty()))),
                ("Owner", Some(html! { (owner_text(&context.gateway.access_log, &row.owner)) })),
                ("Request", Some(html! { code { (request_id) } })),
                ("Started", overview.map(|overview| html! { (time_text(overview.created.into())) })),
                ("Ended", overview.and_then(|overview| overview.ended()).map(|ended| html! { (time_text(ended.into())) })),
                ("Deleted", Some(html! { (time_text((*expires).into())) })),
                ("Events", Some(html! { @match events { Some(count) => (count_text(*count)), None => "not in the memory of this gateway" } })),
                ("Webhook", callback),
            ]))
            p .muted { "The input and the result are the caller's and may be personal data: this page does not show them." }
        }
        @if let Some(error) = error {
            section .card {
                h2 { "Error" }
                (facts([
                    ("Code", Some(html! { code { (error.code) } })),
                    ("Message", Some(html! { (redact_agent_text(&error.message)) })),
                ]))
            }
        }
        @if is_working && visitor.operator.role >= OperatorRole::Operator {
            form .card method="post" action={ (TASKS_PATH) "/" (row.id) "/cancel" } {
                (visitor.csrf_field())
                p { "A canceled task ends at once, and its caller reads that it was canceled. The agent may have done its work already." }
                button .danger type="submit" { "Cancel the task" }
            }
        }
    };
    visitor.page("Task", TASKS_PATH, &content)
}

fn done_notice(done: &str) -> Markup {
    match done {
        "canceled" => notice(Notice::Good, &html! { p { "The task is canceled." } }),
        "ended" => notice(Notice::Neutral, &html! { p { "The task had ended before, and nothing changed." } }),
        _ => html! {},
    }
}

async fn cancel_task(
    State(context): State<ConsoleContext>,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    Path(id): Path<String>,
    visitor: Visitor,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Operator) {
        return error_page(&fault);
    }
    let Some(tasks) = manager(&context) else { return error_page(&no_such_task()) };
    let mut entry = AuditEntry::new(AuditAction::TaskCanceled, visitor.operator.audit_actor(), id.as_str());
    entry.address = Some(address);
    let (log, subject) = (context.gateway.audit_log.clone(), id.clone());
    let canceled = ask_store(&context, async move {
        let was_working =
            tasks.inspect(&subject).await?.row.overview.is_some_and(|overview| overview.ended().is_none());
        let task = tasks.cancel_for_operator(&subject).await?;
        let is_canceled = was_working && task.state == TaskState::Canceled;
        if let Some(log) = log.filter(|_| is_canceled) {
            log.record_in_background(entry).await;
        }
        Ok(is_canceled)
    })
    .await;
    match canceled {
        Ok(is_canceled) => {
            let done = if is_canceled { "canceled" } else { "ended" };
            Redirect::to(&format!("{TASKS_PATH}/{}?done={done}", percent_encode(&id))).into_response()
        }
        Err(fault) => error_page(&fault),
    }
}
