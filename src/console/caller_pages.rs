//! The callers and their API keys: the list, and the page of one caller.

use super::{
    caller_access::{CallerAccess, read_access},
    console_context::ConsoleContext,
    console_page::Visitor,
    key_forms,
    key_list::{KeyFilter, KeyPage, KeyPosition, KeyRow, KeyState, read_keys},
    key_view::{CALLERS_PATH, caller_path, key_caller_id, managed_keys, place_of, time_of},
    page_thread::run_blocking,
};
use crate::{
    admin::{OperatorRole, error_page},
    agent::AuthenticationMethod,
    auth::AccessConfig,
    values::{format_count, percent_encode},
    web_page::{Notice, count_text, facts, notice, pager, query_string, text_field, time_ago},
};
use axum::{
    Router,
    extract::{Path, Query, State},
    response::Response,
    routing::get,
};
use maud::{Markup, html};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::Arc, time::SystemTime};
use time::OffsetDateTime;

/// Maximum number of rows of a list.
const PAGE_ROWS: usize = 100;

/// Returns the routes of callers and keys.
pub(super) fn routes() -> Router<ConsoleContext> {
    Router::new()
        .route(CALLERS_PATH, get(list_callers))
        .route("/console/callers/{id}", get(show_caller))
        .merge(key_forms::routes())
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    after: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    done: String,
}

impl ListQuery {
    fn filter(&self) -> KeyFilter {
        let position = KeyPosition { caller: self.after.clone(), prefix: self.key.clone() };
        KeyFilter {
            text: self.q.trim().to_owned(),
            state: KeyState::from_query(&self.state),
            after: Some(position).filter(|position| !position.caller.is_empty()),
            limit: PAGE_ROWS,
            ..KeyFilter::default()
        }
    }
}

async fn list_callers(
    State(context): State<ConsoleContext>,
    Query(query): Query<ListQuery>,
    visitor: Visitor,
) -> Response {
    let config = context.source.config_in_force();
    let (keys, filter) = (managed_keys(&config.config), query.filter());
    let has_files = !keys.files.is_empty();
    let revocations = Arc::clone(&context.gateway.revocations);
    let page = match run_blocking(move || read_keys(&keys, &revocations, &filter)).await {
        Ok(page) => page,
        Err(fault) => return error_page(&fault),
    };
    let is_admin = visitor.operator.role >= OperatorRole::Admin;
    let content = html! {
        div .page-head {
            h1 { "Callers and keys" }
            p { (format_count(page.total, "API key")) ", " (count_text(page.selected as u64)) " selected" }
        }
        (done_notice(&query.done))
        (problem_notice(&page))
        @if !has_files { (missing_file_notice(&config.file_name)) }
        @else if is_admin { p { a .button .primary href="/console/keys/new" { "Create a key" } } }
        (filter_form(&query))
        section .card {
            h2 { "API keys" }
            (key_table(&page.rows, &TableView { has_callers: true, has_actions: is_admin }))
            @if page.rows.is_empty() { (empty_list(&query, page.total)) }
            (page_links(&query, &page))
        }
        (other_callers(&config.config.access))
    };
    visitor.page("Callers and keys", CALLERS_PATH, &content)
}

fn done_notice(done: &str) -> Markup {
    const RELOAD: &str = "The gateway reads the changed file within a second";
    let (kind, text) = match done {
        "disabled" => (Notice::Good, "The key is disabled."),
        "unrecorded" => {
            (Notice::Warning, "The key is disabled. The audit log cannot be written: the entry waits in memory.")
        }
        "unpublished" => {
            let text = "The key is disabled at this gateway. The other gateways learn of it when the shared state is available.";
            (Notice::Warning, text)
        }
        "already" => (Notice::Neutral, "The key was disabled before, and nothing changed."),
        _ => return html! {},
    };
    notice(kind, &html! { p { (text) " " (RELOAD) ", and refuses the key from then on." } })
}

fn problem_notice(page: &KeyPage) -> Markup {
    html! {
        @if !page.problems.is_empty() {
            (notice(Notice::Bad, &html! { ul { @for problem in &page.problems { li { (problem) } } } }))
        }
    }
}

fn missing_file_notice(config_file: &str) -> Markup {
    notice(
        Notice::Neutral,
        &html! {
            p {
                "No key file is configured, so that no key can be created here. Set "
                code { "auth.api_keys.files: [keys.jsonl]" } " in " code { (config_file) } "."
            }
        },
    )
}

fn filter_form(query: &ListQuery) -> Markup {
    html! {
        form .fields method="get" action=(CALLERS_PATH) role="search" {
            (text_field("q", "Caller, prefix, group or tier", &query.q))
            .field {
                label for="field-state" { "State" }
                select id="field-state" name="state" {
                    option value="" { "any" }
                    @for state in KeyState::ALL {
                        option value=(state.query_value()) selected[query.state == state.query_value()] { (state.word()) }
                    }
                }
            }
            button type="submit" { "Search" }
        }
    }
}

fn empty_list(query: &ListQuery, total: usize) -> Markup {
    html! {
        p {
            @if total == 0 { "There are no API keys. " code { "gatepost key new" } " creates one, and so does an admin here." }
            @else if query.after.is_empty() { "No key has this text and this state. " a href=(CALLERS_PATH) { "Show all keys" } }
            @else { "There are no more keys." }
        }
    }
}

fn page_links(query: &ListQuery, page: &KeyPage) -> Markup {
    let link = |after: &str, key: &str| {
        let parameters = [("q", &*query.q), ("state", &*query.state), ("after", after), ("key", key)];
        format!("{CALLERS_PATH}{}", query_string(&parameters))
    };
    let first = (!query.after.is_empty()).then(|| link("", ""));
    let next = page.next.as_ref().map(|next| link(&next.caller, &next.prefix));
    pager(first.as_deref(), next.as_deref())
}

/// Which columns a table of keys has.
struct TableView {
    has_callers: bool,
    has_actions: bool,
}

fn key_table(rows: &[KeyRow], view: &TableView) -> Markup {
    let now = OffsetDateTime::now_utc();
    let groups = rows.chunk_by(|one, other| one.key.caller == other.key.caller);
    html! {
        @if !rows.is_empty() {
            .table-scroll tabindex="0" {
                table {
                    caption .visually-hidden { "API keys, by caller" }
                    thead {
                        tr {
                            @if view.has_callers { th scope="col" { "Caller" } }
                            th scope="col" { "Key" }
                            th scope="col" { "State" }
                            th scope="col" { "Groups" }
                            th scope="col" { "Tier" }
                            th scope="col" { "Created" }
                            th scope="col" { "Expires" }
                            th scope="col" { "Where" }
                            @if view.has_actions { th scope="col" { "Change" } }
                        }
                    }
                    @for group in groups {
                        tbody { @for (at, row) in group.iter().enumerate() { (key_row(row, (at == 0).then_some(group.len()), view, now)) } }
                    }
                }
            }
        }
    }
}

/// Returns the row of a key. The first one of a caller has `rows_of_caller`, the number of its rows.
fn key_row(row: &KeyRow, rows_of_caller: Option<usize>, view: &TableView, now: OffsetDateTime) -> Markup {
    let (key, state) = (&row.key, KeyState::of(&row.key, now));
    html! {
        tr {
            @if let (true, Some(rows)) = (view.has_callers, rows_of_caller) {
                th scope="rowgroup" rowspan=(rows) { a href=(caller_path(&key_caller_id(&key.caller))) { (key.caller) } }
            }
            td .nowrap { code { (key.prefix) } }
            td { (state.badge()) }
            td { (key.groups.join(", ")) }
            td { (key.tier.as_deref().unwrap_or_default()) }
            td .nowrap { (time_of(key.created.as_deref(), "unknown")) }
            td .nowrap { (time_of(key.expires.as_deref(), "never")) }
            td { (place_of(row)) }
            @if view.has_actions { td .nowrap { (key_links(row, state)) } }
        }
    }
}

fn key_links(row: &KeyRow, state: KeyState) -> Markup {
    let prefix = percent_encode(&row.key.prefix).to_string();
    html! {
        @if row.file.is_some() && state.is_valid() {
            a href={ "/console/keys/" (prefix) "/rotate" } aria-label={ "Rotate " (row.key.prefix) } { "Rotate" } " "
        }
        @if row.file.is_some() && state != KeyState::Disabled {
            a href={ "/console/keys/" (prefix) "/disable" } aria-label={ "Disable " (row.key.prefix) } { "Disable" }
        }
    }
}

/// Returns the callers that are no keys, as the grants and denials name them.
fn other_callers(access: &AccessConfig) -> Markup {
    let rules = access.grants.iter().enumerate().map(|(at, grant)| (format!("grants[{at}]"), &grant.callers));
    let denials = access.denials.iter().enumerate().map(|(at, denial)| (format!("denials[{at}]"), &denial.callers));
    let mut named: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (rule, callers) in rules.chain(denials) {
        let keys = AuthenticationMethod::ApiKey.caller_id_prefix();
        for caller in callers.iter().filter(|caller| !caller.as_str().starts_with(keys)) {
            named.entry(caller.as_str()).or_default().push(rule.clone());
        }
    }
    html! {
        section .card {
            h2 { "Other callers" }
            p .muted {
                "Clients of token issuers, certificates and web pages have no key here: the list has the names and patterns "
                "of the rules that name them."
            }
            @if named.is_empty() {
                p { "No rule names other callers (" code { "access.grants" } ")." }
            } @else {
                .table-scroll tabindex="0" {
                    table {
                        caption .visually-hidden { "Callers that rules name" }
                        thead { tr { th scope="col" { "Caller or pattern" } th scope="col" { "Rules" } } }
                        tbody {
                            @for (caller, rules) in named.iter().take(PAGE_ROWS) {
                                tr {
                                    th scope="row" {
                                        @if caller.contains('*') { code { (caller) } }
                                        @else { a href=(caller_path(caller)) { (caller) } }
                                    }
                                    td { @for rule in rules.iter().take(10) { code { "access." (rule) } " " } }
                                }
                            }
                        }
                    }
                }
                @if named.len() > PAGE_ROWS { p .muted { (named.len() - PAGE_ROWS) " more are in the configuration." } }
            }
        }
    }
}

async fn show_caller(State(context): State<ConsoleContext>, Path(id): Path<String>, visitor: Visitor) -> Response {
    let config = context.source.config_in_force();
    let name = id.strip_prefix(AuthenticationMethod::ApiKey.caller_id_prefix()).map(str::to_owned);
    let (keys, has_keys) = (managed_keys(&config.config), name.is_some());
    let filter = KeyFilter { caller: name.clone(), limit: PAGE_ROWS, ..KeyFilter::default() };
    let revocations = Arc::clone(&context.gateway.revocations);
    let read =
        run_blocking(move || if has_keys { read_keys(&keys, &revocations, &filter) } else { KeyPage::default() }).await;
    let page = match read {
        Ok(page) => page,
        Err(fault) => return error_page(&fault),
    };
    let access = match read_access(&context, &id, &page.rows).await {
        Ok(access) => access,
        Err(fault) => return error_page(&fault),
    };
    let is_admin = visitor.operator.role >= OperatorRole::Admin;
    let seen = last_seen(&context, &id).map(|at| html! { (time_ago(at)) });
    let content = html! {
        div .page-head { h1 { (id) } p { a href=(CALLERS_PATH) { "All callers" } } }
        (problem_notice(&page))
        section .card {
            h2 { "Caller" }
            (facts([
                ("Last seen", Some(seen.unwrap_or_else(|| html! { "unknown" }))),
                ("Credential", Some(html! { (credential_of(&id)) })),
            ]))
        }
        @if let Some(name) = &name {
            section .card {
                h2 { "API keys" }
                (key_table(&page.rows, &TableView { has_callers: false, has_actions: is_admin }))
                @if page.rows.is_empty() { p { "The caller has no key." } }
                @if page.next.is_some() { p .muted { "The caller has " (count_text(page.selected as u64)) " keys: these are the first." } }
                @if is_admin && !config.config.auth.api_keys.as_ref().is_none_or(|keys| keys.files.is_empty()) {
                    p { a .button href={ "/console/keys/new" (query_string(&[("caller", name)])) } { "Create a key" } }
                }
            }
        }
        (access_sections(&access))
    };
    visitor.page(&id, CALLERS_PATH, &content)
}

/// Returns when the caller made its last call; `None` if that is not known.
fn last_seen(context: &ConsoleContext, caller: &str) -> Option<SystemTime> {
    let log = &context.gateway.access_log;
    log.recent_calls().last_seen(&log.logged_caller(caller))
}

fn credential_of(id: &str) -> &'static str {
    let named = AuthenticationMethod::ALL.into_iter().find(|method| {
        let prefix = method.caller_id_prefix();
        !prefix.is_empty() && id.starts_with(prefix)
    });
    named.map_or("none, or that of a web page", AuthenticationMethod::phrase)
}

fn access_sections(access: &CallerAccess) -> Markup {
    html! {
        section .card {
            h2 { "Agents that it may call" }
            @if !access.is_known {
                p { "No key of the caller is valid, so that it may call no agent." }
            } @else if access.agent_count == 0 {
                p { "No grant names the caller and an agent (" code { "access.grants" } ")." }
            } @else {
                p { (count_text(access.agent_count as u64)) @if access.agent_count == 1 { " agent" } @else { " agents" } @if access.agent_count > access.agents.len() { ", of which these are the first" } ":" }
                ul { @for agent in &access.agents { li { a href={ "/console/agents/" (percent_encode(agent)) } { (agent) } } } }
            }
        }
        section .card {
            h2 { "Limits" }
            @if access.limits.is_empty() {
                p { "No rate and no quota limits the caller (" code { "limits.per_caller" } ", " code { "limits.quota" } ")." }
            } @else {
                .table-scroll tabindex="0" {
                    table {
                        caption { "What is left now" }
                        thead {
                            tr {
                                th scope="col" { "Limit" }
                                th scope="col" { "Tier" }
                                th scope="col" .number { "Calls left" }
                                th scope="col" .number { "Of" }
                                th scope="col" .number { "Per" }
                            }
                        }
                        tbody {
                            @for limit in &access.limits {
                                tr {
                                    th scope="row" { code { (limit.setting) } }
                                    td { (limit.tier.as_deref().unwrap_or("none")) }
                                    td .number { (count_text(limit.remaining)) }
                                    td .number { (count_text(limit.quota)) }
                                    td .number { (limit.window) }
                                }
                            }
                        }
                    }
                }
            }
            (facts([
                ("Calls of one agent", access.per_agent.clone().map(|rate| html! { (rate) })),
                ("Calls at once", access.max_concurrent.map(|max| html! { (max) })),
            ]))
        }
    }
}
