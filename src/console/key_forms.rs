//! Forms that create, rotate and disable API keys; for admins. A new key is in the response to its form and nowhere else.

use super::{
    console_context::{ConfigInForce, ConsoleContext},
    console_page::Visitor,
    form_fields::{Choice, FormField, choice_field, lines_field, text_input},
    key_list::{KeyFilter, KeyPage, KeyRow, KeyState, read_keys},
    key_operator::{KeyOperator, MadeChange},
    key_problems::change_problem,
    key_view::{CALLERS_PATH, caller_path, key_caller_id, managed_keys, place_of, time_of},
    page_thread::run_blocking,
};
use crate::{
    admin::{ClientAddress, OperatorRole, error_page},
    auth::{KeyRotation, NewApiKey, is_valid_name},
    fault::{Fault, FaultCode},
    key_management::{DisabledKeys, KeyLifetime, KeySelection, NewKey},
    values::ConfigDuration,
    web_page::{Notice, facts, notice, time_text},
};
use axum::{
    Extension, Form, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use maud::{Markup, html};
use serde::Deserialize;
use std::{sync::Arc, time::SystemTime};
use time::OffsetDateTime;

const LIFETIMES: [Choice; 7] = [
    Choice { value: "1d", label: "in a day" },
    Choice { value: "7d", label: "in 7 days" },
    Choice { value: "30d", label: "in 30 days" },
    Choice { value: "90d", label: "in 90 days" },
    Choice { value: "180d", label: "in 180 days" },
    Choice { value: "365d", label: "in a year" },
    Choice { value: "never", label: "never" },
];
const DEFAULT_LIFETIME: &str = "90d";

const OVERLAPS: [Choice; 5] = [
    Choice { value: "0s", label: "at once" },
    Choice { value: "1h", label: "in an hour" },
    Choice { value: "1d", label: "in a day" },
    Choice { value: "7d", label: "in 7 days" },
    Choice { value: "30d", label: "in 30 days" },
];
const DEFAULT_OVERLAP: &str = "1d";

/// Returns the routes of the forms.
pub(super) fn routes() -> Router<ConsoleContext> {
    Router::new()
        .route("/console/keys/new", get(show_new).post(create))
        .route("/console/keys/{prefix}/rotate", get(show_rotation).post(rotate))
        .route("/console/keys/{prefix}/disable", get(show_disabling).post(disable))
}

#[derive(Clone, Debug, Default, Deserialize)]
struct NewKeyForm {
    #[serde(default)]
    caller: String,
    #[serde(default)]
    groups: String,
    #[serde(default)]
    tier: String,
    #[serde(default)]
    expires_in: String,
}

/// What is wrong with the fields of a form, and with the whole.
#[derive(Debug, Default)]
struct FormProblems {
    caller: Option<String>,
    groups: Option<String>,
    tier: Option<String>,
    expires_in: Option<String>,
    overlap: Option<String>,
    whole: Option<String>,
}

impl FormProblems {
    fn is_empty(&self) -> bool {
        let fields = [&self.caller, &self.groups, &self.tier, &self.expires_in, &self.overlap, &self.whole];
        fields.into_iter().all(Option::is_none)
    }
}

const NAME_PROBLEM: &str = "Must be 1 to 256 characters without control characters";

impl NewKeyForm {
    /// Checks the fields as `gatepost key new` does.
    fn check(&self, config: &ConfigInForce) -> Result<NewApiKey, Box<FormProblems>> {
        let mut problems = FormProblems::default();
        let caller = self.caller.trim().to_owned();
        if !is_valid_name(&caller) {
            problems.caller = Some(NAME_PROBLEM.to_owned());
        } else if caller.starts_with("key:") {
            problems.caller = Some("Write the name without key:".to_owned());
        }
        let groups: Vec<String> =
            self.groups.lines().map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
        if let Some(group) = groups.iter().find(|group| !is_valid_name(group)) {
            problems.groups = Some(format!("{group:?} is not valid. {NAME_PROBLEM}"));
        }
        let tier = Some(self.tier.clone()).filter(|tier| !tier.is_empty());
        if tier.as_ref().is_some_and(|tier| !config.config.limits.tiers.contains_key(tier)) {
            problems.tier = Some("Choose a tier of limits.tiers".to_owned());
        }
        let expires = lifetime_of(&self.expires_in, &mut problems);
        if problems.is_empty() { Ok(NewApiKey { caller, groups, tier, expires }) } else { Err(Box::new(problems)) }
    }
}

/// Returns when a key expires that has the lifetime of a form.
fn lifetime_of(text: &str, problems: &mut FormProblems) -> Option<OffsetDateTime> {
    match text.parse::<KeyLifetime>() {
        Ok(lifetime) => lifetime.expiry(),
        Err(why) => {
            problems.expires_in = Some(why);
            None
        }
    }
}

#[derive(Deserialize)]
struct NewKeyQuery {
    #[serde(default)]
    caller: String,
}

async fn show_new(
    State(context): State<ConsoleContext>,
    Query(query): Query<NewKeyQuery>,
    visitor: Visitor,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Admin) {
        return error_page(&fault);
    }
    let form = NewKeyForm { caller: query.caller, expires_in: DEFAULT_LIFETIME.to_owned(), ..NewKeyForm::default() };
    new_key_page(&context, &visitor, &form, &FormProblems::default())
}

fn new_key_page(context: &ConsoleContext, visitor: &Visitor, form: &NewKeyForm, problems: &FormProblems) -> Response {
    let config = context.source.config_in_force();
    let tiers = config.config.limits.tiers.keys();
    let tiers: Vec<Choice> = [Choice { value: "", label: "none" }]
        .into_iter()
        .chain(tiers.map(|tier| Choice { value: tier, label: tier }))
        .collect();
    let has_file = config.config.auth.api_keys.as_ref().is_some_and(|keys| !keys.files.is_empty());
    let content = html! {
        div .page-head { h1 { "Create an API key" } p { a href=(CALLERS_PATH) { "All callers" } } }
        @if !has_file {
            (notice(Notice::Warning, &html! { p { "There is no key file (set " code { "auth.api_keys.files" } " in " code { (config.file_name) } ")." } }))
        }
        (whole_problem(problems))
        form .card method="post" action="/console/keys/new" {
            (visitor.csrf_field())
            (text_input(&FormField { name: "caller", label: "Caller", hint: "Grants refer to it as key:NAME. A caller may have several keys.", problem: problems.caller.as_deref() }, &form.caller))
            (lines_field(&FormField { name: "groups", label: "Groups", hint: "One on each line.", problem: problems.groups.as_deref() }, &form.groups))
            (choice_field(&FormField { name: "tier", label: "Tier", hint: "Limits of limits.tiers.", problem: problems.tier.as_deref() }, &tiers, &form.tier))
            (choice_field(&FormField { name: "expires_in", label: "Expires", hint: "", problem: problems.expires_in.as_deref() }, &LIFETIMES, &form.expires_in))
            button .primary type="submit" { "Create the key" }
        }
    };
    visitor.page_with_status(status_of(problems), "Create an API key", CALLERS_PATH, &content)
}

fn status_of(problems: &FormProblems) -> StatusCode {
    match &problems.whole {
        Some(_) => StatusCode::CONFLICT,
        None if problems.is_empty() => StatusCode::OK,
        None => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

fn whole_problem(problems: &FormProblems) -> Markup {
    html! { @if let Some(why) = &problems.whole { (notice(Notice::Bad, &html! { p { (why) } })) } }
}

async fn create(
    State(context): State<ConsoleContext>,
    Extension(address): Extension<ClientAddress>,
    visitor: Visitor,
    Form(form): Form<NewKeyForm>,
) -> Response {
    let operator = match KeyOperator::of(&context, &visitor, address) {
        Ok(operator) => operator,
        Err(fault) => return error_page(&fault),
    };
    let config = context.source.config_in_force();
    let key = match form.check(&config) {
        Ok(key) => key,
        Err(problems) => return new_key_page(&context, &visitor, &form, &problems),
    };
    let created = operator.change(managed_keys(&config.config), |keys, recorder| keys.create(key, recorder)).await;
    match created {
        Ok(made) => created_page(&visitor, &made, "The key was created"),
        Err(why) => {
            let problems = FormProblems { whole: Some(change_problem(&why)), ..FormProblems::default() };
            new_key_page(&context, &visitor, &form, &problems)
        }
    }
}

/// Returns the page with a new key, the only one that shows it.
fn created_page(visitor: &Visitor, made: &MadeChange<NewKey>, title: &str) -> Response {
    let key = &made.outcome;
    let caller = key_caller_id(&key.caller);
    let expires = key.expires.map_or_else(|| "never".to_owned(), |at| time_text(SystemTime::from(at)));
    let content = html! {
        div .page-head { h1 { (title) } p { a href=(CALLERS_PATH) { "All callers" } } }
        @if !key.is_recorded {
            (notice(Notice::Warning, &html! { p { "The audit log could not be written: the entry of this key waits in memory." } }))
        }
        @if made.is_unpublished() {
            (notice(Notice::Warning, &html! { p { "The other gateways learn when the previous key ends as soon as the shared state is available." } }))
        }
        (notice(Notice::Warning, &html! {
            p { strong { "Copy the key now: it is not shown again." } " The gateway stores its hash only. Loading this page again would create another key." }
        }))
        section .card {
            .field {
                label for="new-key" { "API key of " (caller) }
                input .mono type="text" id="new-key" value=(key.secret.expose()) readonly size="52" data-select
                    autocomplete="off" spellcheck="false";
            }
            (facts([
                ("Caller", Some(html! { a href=(caller_path(&caller)) { (caller) } })),
                ("Expires", Some(html! { (expires) })),
            ]))
            p { "The gateway reads the changed key file within a second, and accepts the key from then on." }
        }
    };
    visitor.page(title, CALLERS_PATH, &content)
}

#[derive(Debug, Deserialize)]
struct RotationForm {
    /// That the operator's own key is meant.
    #[serde(default)]
    own: String,
    #[serde(default)]
    overlap: String,
    #[serde(default)]
    expires_in: String,
}

impl RotationForm {
    fn check(&self) -> Result<KeyRotation, Box<FormProblems>> {
        let mut problems = FormProblems::default();
        let overlap = self.overlap.parse::<ConfigDuration>().map_err(|why| problems.overlap = Some(why)).ok();
        let expires = lifetime_of(&self.expires_in, &mut problems);
        match overlap {
            Some(overlap) if problems.is_empty() => Ok(KeyRotation { overlap: overlap.get(), expires }),
            _ => Err(Box::new(problems)),
        }
    }
}

/// Finds a key that can be changed here.
async fn find_key(context: &ConsoleContext, prefix: &str) -> Result<KeyRow, Fault> {
    let config = context.source.config_in_force();
    let filter = KeyFilter { prefix: Some(prefix.to_owned()), limit: 2, ..KeyFilter::default() };
    let keys = managed_keys(&config.config);
    let revocations = Arc::clone(&context.gateway.revocations);
    let page: KeyPage = run_blocking(move || read_keys(&keys, &revocations, &filter)).await?;
    let is_in_config = page.rows.iter().any(|row| row.file.is_none());
    if let Some(row) = page.rows.into_iter().find(|row| row.file.is_some()) {
        return Ok(row);
    }
    let message = match (is_in_config, page.problems.into_iter().next()) {
        (true, _) => "The key is in auth.api_keys.keys of the configuration (change it there)".to_owned(),
        (false, Some(problem)) => problem,
        (false, None) => "There is no key with this prefix".to_owned(),
    };
    Err(Fault::new(FaultCode::NotFound, message))
}

fn key_facts(row: &KeyRow) -> Markup {
    let (key, state) = (&row.key, KeyState::of(&row.key, OffsetDateTime::now_utc()));
    let caller = key_caller_id(&key.caller);
    facts([
        ("Key", Some(html! { code { (key.prefix) } })),
        ("Caller", Some(html! { a href=(caller_path(&caller)) { (caller) } })),
        ("State", Some(html! { (state.badge()) })),
        ("Groups", Some(html! { (key.groups.join(", ")) }).filter(|_| !key.groups.is_empty())),
        ("Tier", key.tier.as_ref().map(|tier| html! { (tier) })),
        ("Created", Some(time_of(key.created.as_deref(), "unknown"))),
        ("Expires", Some(time_of(key.expires.as_deref(), "never"))),
        ("Where", Some(place_of(row))),
    ])
}

async fn show_rotation(
    State(context): State<ConsoleContext>,
    Path(prefix): Path<String>,
    visitor: Visitor,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Admin) {
        return error_page(&fault);
    }
    let form = RotationForm {
        own: String::new(),
        overlap: DEFAULT_OVERLAP.to_owned(),
        expires_in: DEFAULT_LIFETIME.to_owned(),
    };
    match find_key(&context, &prefix).await {
        Ok(row) => rotation_page(&visitor, &row, &form, &FormProblems::default()),
        Err(fault) => error_page(&fault),
    }
}

fn rotation_page(visitor: &Visitor, row: &KeyRow, form: &RotationForm, problems: &FormProblems) -> Response {
    let content = html! {
        div .page-head { h1 { "Rotate an API key" } p { a href=(CALLERS_PATH) { "All callers" } } }
        (whole_problem(problems))
        section .card { h2 { "Key that is replaced" } (key_facts(row)) }
        form .card method="post" {
            (visitor.csrf_field())
            p { "The new key has the same caller, groups and tier." }
            (choice_field(&FormField { name: "overlap", label: "The previous key ends", hint: "", problem: problems.overlap.as_deref() }, &OVERLAPS, &form.overlap))
            (choice_field(&FormField { name: "expires_in", label: "The new key expires", hint: "", problem: problems.expires_in.as_deref() }, &LIFETIMES, &form.expires_in))
            @if is_own_key(visitor, &row.key.prefix) {
                p { input type="checkbox" id="field-own" name="own" value="yes"; " " label for="field-own" { "End my own key at once, if that is chosen" } }
            }
            button .primary type="submit" { "Create the new key" }
        }
    };
    visitor.page_with_status(status_of(problems), "Rotate an API key", CALLERS_PATH, &content)
}

async fn rotate(
    State(context): State<ConsoleContext>,
    Extension(address): Extension<ClientAddress>,
    Path(prefix): Path<String>,
    visitor: Visitor,
    Form(form): Form<RotationForm>,
) -> Response {
    let operator = match KeyOperator::of(&context, &visitor, address) {
        Ok(operator) => operator,
        Err(fault) => return error_page(&fault),
    };
    let row = match find_key(&context, &prefix).await {
        Ok(row) => row,
        Err(fault) => return error_page(&fault),
    };
    if row.key.disabled {
        let why = "The key is disabled: create another one".to_owned();
        let problems = FormProblems { whole: Some(why), ..FormProblems::default() };
        return rotation_page(&visitor, &row, &form, &problems);
    }
    let rotation = match form.check() {
        Ok(rotation) => rotation,
        Err(problems) => return rotation_page(&visitor, &row, &form, &problems),
    };
    if is_own_key(&visitor, &prefix) && rotation.overlap.is_zero() && form.own != "yes" {
        let why = "This ends your own session: confirm that you mean your own key".to_owned();
        let problems = FormProblems { whole: Some(why), ..FormProblems::default() };
        return rotation_page(&visitor, &row, &form, &problems);
    }
    let keys = managed_keys(&context.source.config_in_force().config);
    let rotated = operator.change(keys, move |keys, recorder| keys.rotate(&prefix, &rotation, recorder)).await;
    match rotated {
        Ok(made) => created_page(&visitor, &made, "The key was replaced"),
        Err(why) => {
            let problems = FormProblems { whole: Some(change_problem(&why)), ..FormProblems::default() };
            rotation_page(&visitor, &row, &form, &problems)
        }
    }
}

#[derive(Debug, Deserialize)]
struct DisablingForm {
    /// That the operator's own key is meant.
    #[serde(default)]
    own: String,
}

/// Returns whether the operator logged in with this key.
fn is_own_key(visitor: &Visitor, prefix: &str) -> bool {
    let credential = visitor.operator.credential.as_ref();
    credential.and_then(|credential| credential.api_key_prefix()) == Some(prefix)
}

async fn show_disabling(
    State(context): State<ConsoleContext>,
    Path(prefix): Path<String>,
    visitor: Visitor,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Admin) {
        return error_page(&fault);
    }
    match find_key(&context, &prefix).await {
        Ok(row) => disabling_page(&visitor, &row, &FormProblems::default()),
        Err(fault) => error_page(&fault),
    }
}

fn disabling_page(visitor: &Visitor, row: &KeyRow, problems: &FormProblems) -> Response {
    let prefix = &row.key.prefix;
    let content = html! {
        div .page-head { h1 { "Disable an API key" } p { a href=(CALLERS_PATH) { "All callers" } } }
        (whole_problem(problems))
        section .card { h2 { "Key that is disabled" } (key_facts(row)) }
        form .card method="post" {
            (visitor.csrf_field())
            p { "Calls with the key are refused within a second or so. A disabled key cannot be enabled again here." }
            @if is_own_key(visitor, prefix) {
                (notice(Notice::Warning, &html! {
                    p { "This is the key with which you are logged in: your session ends with it." }
                    p {
                        input type="checkbox" id="field-own" name="own" value="yes" required;
                        " " label for="field-own" { "Disable my own key" }
                    }
                }))
            }
            button .danger type="submit" { "Disable the key " (prefix) " of " (key_caller_id(&row.key.caller)) }
            " " a .button href=(CALLERS_PATH) { "Keep it" }
        }
    };
    visitor.page_with_status(status_of(problems), "Disable an API key", CALLERS_PATH, &content)
}

async fn disable(
    State(context): State<ConsoleContext>,
    Extension(address): Extension<ClientAddress>,
    Path(prefix): Path<String>,
    visitor: Visitor,
    Form(form): Form<DisablingForm>,
) -> Response {
    let operator = match KeyOperator::of(&context, &visitor, address) {
        Ok(operator) => operator,
        Err(fault) => return error_page(&fault),
    };
    let row = match find_key(&context, &prefix).await {
        Ok(row) => row,
        Err(fault) => return error_page(&fault),
    };
    let refused =
        |why: String| disabling_page(&visitor, &row, &FormProblems { whole: Some(why), ..FormProblems::default() });
    if is_own_key(&visitor, &prefix) && form.own != "yes" {
        return refused("Confirm that you mean your own key".to_owned());
    }
    let keys = managed_keys(&context.source.config_in_force().config);
    let selection = KeySelection::WithPrefixes(vec![prefix]);
    let disabled = operator.change(keys, move |keys, recorder| keys.disable(&selection, recorder)).await;
    match disabled {
        Ok(made) => Redirect::to(&format!("{CALLERS_PATH}?done={}", done_word(&made))).into_response(),
        Err(why) => refused(change_problem(&why)),
    }
}

fn done_word(made: &MadeChange<DisabledKeys>) -> &'static str {
    if made.is_unpublished() {
        return "unpublished";
    }
    if made.outcome.disabled.is_empty() {
        return "already";
    }
    if made.outcome.is_recorded { "disabled" } else { "unrecorded" }
}
