//! Calls to an agent from the console: a form from the operation's schema, and the answer as it arrives. The call is the
//! operator's own: its credential, its grants and its limits decide, and the access log names it.

use super::{
    call_pages::call_link,
    console_context::ConsoleContext,
    console_page::{StreamedPart, Visitor},
    page_thread::run_blocking,
    schema_form::{FieldKind, FormField, fields_of, input_of},
};
use crate::{
    admin::{ClientAddress, OperatorRole, error_page},
    agent::{Agent, Operation},
    fault::{Fault, FaultCode},
    gateway::{OperatorCall, OperatorReply, call_as_operator},
    values::json::pretty_beginning,
    web_page::{Notice, duration_text, notice, query_string},
};
use axum::{
    Extension,
    extract::{Form, Path, Query, State},
    response::Response,
};
use bytes::Bytes;
use futures_util::{Stream, stream};
use http::HeaderMap;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    time::Instant,
};
use tokio::task::{JoinError, JoinHandle};

/// The prefix of the form's fields for properties, which keeps them apart from its own fields.
const PROPERTY_PREFIX: &str = "property.";

const AGENTS_PATH: &str = "/console/agents";

/// Maximum bytes of an answer with line breaks; a longer one is shown as it is.
const MAX_FORMATTED_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
pub(super) struct TryQuery {
    #[serde(default)]
    operation: String,
}

/// Shows the form for an operation of an agent.
pub(super) async fn show_form(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(query): Query<TryQuery>,
) -> Response {
    let Some(agent) = find_agent(&context, &id) else { return agent_not_found() };
    let form = TryForm {
        agent: &agent,
        operation: find_operation(&agent, &query.operation),
        entered: &BTreeMap::new(),
        problem: None,
    };
    visitor.page(&format!("Try {}", agent.id), AGENTS_PATH, &form.render(&visitor))
}

/// Calls the agent with the input of the form.
pub(super) async fn call_agent(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Extension(ClientAddress(address)): Extension<ClientAddress>,
    Path(id): Path<String>,
    Form(entered): Form<BTreeMap<String, String>>,
) -> Response {
    if let Err(fault) = visitor.operator.require(OperatorRole::Operator) {
        return error_page(&fault);
    }
    let Some(agent) = find_agent(&context, &id) else { return agent_not_found() };
    let entry = |name: &str| entered.get(name).map_or("", String::as_str);
    let operation = find_operation(&agent, entry("operation"));
    let form = TryForm { agent: &agent, operation, entered: &entered, problem: None };
    let input = match form.input() {
        Ok(input) => input,
        Err(problem) => {
            let form = TryForm { problem: Some(&problem), ..form };
            return visitor.page(&format!("Try {}", agent.id), AGENTS_PATH, &form.render(&visitor));
        }
    };
    let mut credential = HeaderMap::new();
    if let Some(own) = &visitor.operator.credential {
        own.add_to(&mut credential);
    }
    let name = operation.map(|operation| operation.name.to_string()).filter(|name| !name.is_empty());
    let call = OperatorCall {
        credential,
        address,
        agent: agent.id.to_string(),
        operation: name,
        input: Bytes::from(input.to_string()),
    };
    let (gateway, started_at) = (Arc::clone(&context.gateway), Instant::now());
    // A browser that leaves ends the call.
    let called = AbortOnDrop(context.calls.spawn(async move { call_as_operator(&gateway, call).await })).await;
    let Ok((request_id, result)) = called else {
        return error_page(&Fault::new(FaultCode::Internal, "The call failed in the gateway"));
    };
    let head = html! {
        (page_head(&agent))
        h2 { "Answer" }
        p { "Request " a href=(call_link(&request_id)) { code { (request_id) } } }
    };
    let again = html! { h2 { "Call again" } (form.render_form(&visitor)) };
    let title = format!("Answer of {}", agent.id);
    match result {
        Ok(reply) => {
            let head = html! {
                (head)
                p { "Status " strong { (reply.status) } @if let Some(kind) = &reply.media_type { ", " code { (kind) } } }
            };
            visitor.streamed_page(&title, AGENTS_PATH, [&head, &again], answer_parts(reply, started_at))
        }
        Err(fault) => {
            let page = html! { (head) (fault_notice(&fault, &request_id)) (again) };
            visitor.page(&title, AGENTS_PATH, &page)
        }
    }
}

/// A task that ends when nobody waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn find_agent(context: &ConsoleContext, id: &str) -> Option<Arc<Agent>> {
    context.gateway.catalogue.snapshot().get(id).map(|route| Arc::clone(route.agent()))
}

fn agent_not_found() -> Response {
    error_page(&Fault::new(FaultCode::NotFound, "There is no agent with this id"))
}

/// Returns the operation with this name, or the first one.
fn find_operation<'a>(agent: &'a Agent, name: &str) -> Option<&'a Operation> {
    let named = agent.operations.iter().find(|operation| &*operation.name == name);
    named.or_else(|| agent.operations.first())
}

fn fault_notice(fault: &Fault, request_id: &str) -> Markup {
    let explanation = format!("/console/explain{}", query_string(&[("request", request_id)]));
    let content = html! {
        p { strong { (fault.http_status()) " " (fault.code().row().name) } ": " (fault.message()) }
        @for violation in fault.violations() { p { code { (violation.pointer) } " " (violation.message) } }
        p { a href=(explanation) { "Why?" } }
    };
    notice(Notice::Bad, &content)
}

fn page_head(agent: &Agent) -> Markup {
    html! {
        div .page-head {
            h1 { "Try " (agent.name) }
            p { a href={ (AGENTS_PATH) "/" (agent.id.as_str()) } { (agent.id.as_str()) } }
        }
    }
}

/// The form, and what was entered before.
struct TryForm<'a> {
    agent: &'a Agent,
    operation: Option<&'a Operation>,
    entered: &'a BTreeMap<String, String>,
    problem: Option<&'a str>,
}

impl TryForm<'_> {
    fn entry(&self, name: &str) -> Option<&str> {
        self.entered.get(name).map(String::as_str)
    }

    fn fields(&self) -> Option<Vec<FormField>> {
        fields_of(self.operation?.inputs.as_deref()?)
    }

    /// Returns the input that was entered.
    fn input(&self) -> Result<Value, String> {
        if self.entry("as") != Some("fields") {
            let text = self.entry("json").unwrap_or_default();
            return serde_json::from_str(text).map_err(|why| format!("The input is not JSON: {why}"));
        }
        let fields = self.fields().unwrap_or_default();
        let value_of = |name: &str| self.entry(&format!("{PROPERTY_PREFIX}{name}"));
        input_of(&fields, value_of)
            .map_err(|invalid| format!("These fields have no valid value: {}", invalid.join(", ")))
    }

    fn render(&self, visitor: &Visitor) -> Markup {
        html! {
            (page_head(self.agent))
            p { "The call is made with your own credential, counts against your limits, and is in the access log." }
            @if visitor.operator.credential.is_none() {
                (notice(Notice::Warning, &html! { p { "You are not logged in, so that the call is made without a credential." } }))
            }
            @if let Some(problem) = self.problem { (notice(Notice::Bad, &html! { p { (problem) } })) }
            (self.render_form(visitor))
        }
    }

    fn render_form(&self, visitor: &Visitor) -> Markup {
        let path = format!("{AGENTS_PATH}/{}/try", self.agent.id.as_str());
        let (fields, name) = (self.fields(), self.operation.map_or("", |operation| &*operation.name));
        html! {
            @if self.agent.operations.len() > 1 {
                nav aria-label="Operations" {
                    p { "Operation: " @for operation in &self.agent.operations {
                        a href={ (path) (query_string(&[("operation", &operation.name)])) } aria-current=[(*operation.name == *name).then_some("true")] { (operation.name) } " "
                    } }
                }
            }
            @if let Some(fields) = &fields {
                form .card method="post" action=(path) {
                    (visitor.csrf_field())
                    input type="hidden" name="operation" value=(name);
                    input type="hidden" name="as" value="fields";
                    @for field in fields { (self.render_field(field)) }
                    @if fields.is_empty() { p { "The operation takes no input." } }
                    button .primary type="submit" { "Call" }
                }
            }
            details open[fields.is_none()] {
                summary { "Input as JSON" }
                form .card method="post" action=(path) {
                    (visitor.csrf_field())
                    input type="hidden" name="operation" value=(name);
                    .field {
                        label for="json" { "Input" }
                        textarea id="json" name="json" spellcheck="false" { (self.entry("json").unwrap_or("{}")) }
                    }
                    button type="submit" { "Call with this JSON" }
                }
            }
        }
    }

    fn render_field(&self, field: &FormField) -> Markup {
        let name = format!("{PROPERTY_PREFIX}{}", field.name);
        let default =
            field.default.as_ref().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let value = self.entry(&name).map(str::to_owned).or(default).unwrap_or_default();
        let hint_id = format!("{name}-hint");
        let described = (!field.description.is_empty()).then_some(hint_id.as_str());
        html! {
            .field {
                label for=(name) { (field.name) @if field.is_required { " (required)" } }
                @if described.is_some() { span .hint id=(hint_id) { (field.description) } }
                @match &field.kind {
                    FieldKind::Text => textarea id=(name) name=(name) rows="2" aria-describedby=[described] { (value) },
                    FieldKind::Number { .. } => input type="text" inputmode="decimal" id=(name) name=(name) value=(value) aria-describedby=[described];,
                    FieldKind::Json => textarea id=(name) name=(name) rows="3" spellcheck="false" placeholder="JSON" aria-describedby=[described] { (value) },
                    FieldKind::Boolean => select id=(name) name=(name) aria-describedby=[described] {
                        option value="" { "not set" }
                        @for choice in ["true", "false"] { option value=(choice) selected[value == choice] { (choice) } }
                    },
                    FieldKind::Choice(choices) => select id=(name) name=(name) aria-describedby=[described] {
                        option value="" { "not set" }
                        @for (at, choice) in choices.iter().enumerate() {
                            option value=(at) selected[value == at.to_string()] { (choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)) }
                        }
                    },
                }
            }
        }
    }
}

/// Returns the parts of the page that arrive with the answer. One JSON value is shown with line breaks.
fn answer_parts(reply: OperatorReply, started_at: Instant) -> impl Stream<Item = StreamedPart> + Send + 'static {
    let is_json = reply.media_type.as_deref().is_some_and(|kind| kind.starts_with("application/json"));
    stream::unfold(Some(reply), move |reply| async move {
        let mut reply = reply?;
        let part = match reply.chunks.recv().await {
            Some(Ok(chunk)) if is_json => StreamedPart::Text(pretty_json(chunk).await),
            Some(Ok(chunk)) => StreamedPart::Text(chunk),
            Some(Err(fault)) => {
                let content = html! { p { "The answer broke off: " strong { (fault.code().row().name) } ", " (fault.message()) } };
                return Some((StreamedPart::End(notice(Notice::Bad, &content)), None));
            }
            None => {
                let took = duration_text(started_at.elapsed());
                return Some((StreamedPart::End(html! { p .muted { "Complete after " (took) } }), None));
            }
        };
        Some((part, Some(reply)))
    })
}

/// Returns one JSON value with line breaks, unless that makes it too long for a page.
async fn pretty_json(body: Bytes) -> Bytes {
    let raw = body.clone();
    let formatted = run_blocking(move || {
        let value = serde_json::from_slice::<Value>(&body).ok()?;
        let (text, is_all) = pretty_beginning(&value, MAX_FORMATTED_BYTES);
        is_all.then(|| Bytes::from(text))
    });
    formatted.await.ok().flatten().unwrap_or(raw)
}
