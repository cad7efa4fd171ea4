//! The page about one agent.

use super::{
    super::{
        AcceptedCredentials, CallConventions, DirectoryCall, DirectoryConfig, address_redaction::AddressRedactor,
        agent_document::RedactedDocument, directory_request::CALLER_PAGES_PATH, version_addresses::callable_versions,
    },
    agent_list_page::status_badge,
    fault_table::render_fault_table,
    operation_section::OperationSection,
    page_parts::{PageBudget, shorten},
    required_credential::RequiredCredential,
};
use crate::{
    agent::{Agent, AgentStatus},
    values::format_http_date,
    web_page::{Notice, duration_text, facts, notice},
};
use maud::{Markup, html};
use std::{borrow::Cow, sync::Arc};

/// Maximum number of characters of the description, and of a name or word.
const MAX_DESCRIPTION: usize = 10_000;
const MAX_NAME: usize = 200;
/// Maximum number of words in a list, and of versions.
const MAX_WORDS: usize = 50;

/// The page about one agent.
pub(super) struct AgentPage<'a> {
    agent: &'a Agent,
    call: &'a DirectoryCall<'a>,
    credentials: &'a AcceptedCredentials,
    conventions: &'a CallConventions,
    redactor: AddressRedactor<'a>,
    document: RedactedDocument,
}

impl<'a> AgentPage<'a> {
    /// Prepares the page.
    pub(super) fn new(
        agent: &'a Agent,
        call: &'a DirectoryCall<'a>,
        credentials: &'a AcceptedCredentials,
        conventions: &'a CallConventions,
        config: &'a DirectoryConfig,
    ) -> Self {
        let redactor = AddressRedactor::new(agent, call.base_url, config.advertised_endpoints);
        let document = RedactedDocument::new(agent, &redactor);
        Self { agent, call, credentials, conventions, redactor, document }
    }

    /// Returns the title.
    pub(super) fn title(&self) -> String {
        shorten(&self.redactor.redact_text(&self.agent.name), MAX_NAME).into_owned()
    }

    /// Returns the content.
    pub(super) fn render(&self) -> Markup {
        let mut budget = PageBudget::new();
        let limits = self.call.visibility.call_limits(self.agent.id.as_str());
        let required =
            RequiredCredential { credentials: self.credentials, conventions: self.conventions, agent: self.agent };
        let credential = required.of_lines(self.call.caller, limits.is_some());
        let has_checked_inputs = self.agent.operations.iter().any(|operation| operation.inputs.is_some());
        let description = self.redactor.redact_text(&self.agent.description);
        html! {
            nav aria-label="Pages" { a href=(CALLER_PAGES_PATH) { "All agents" } }
            .page-head { h1 { (self.title()) } p { (status_badge(self.agent)) } }
            (self.status_notice())
            (budget.fit(html! { p { (shorten(&description, MAX_DESCRIPTION)) } }))
            section .card { h2 { "About" } (budget.fit(self.facts())) }
            section .card {
                h2 { "Credential" }
                (budget.fit(required.render()))
                @if limits.is_none() { p { "The credential with which you read this page is not enough to call the agent." } }
            }
            @for (index, operation) in self.agent.operations.iter().enumerate() {
                @if !budget.is_spent() {
                    (OperationSection {
                        agent: self.agent,
                        call: self.call,
                        document: &self.document,
                        redactor: &self.redactor,
                        credential: &credential,
                        operation,
                        index,
                    }.render(&mut budget))
                }
            }
            section .card {
                h2 { "Limits" }
                @match &limits {
                    Some(limits) => {
                        (limits.render(has_checked_inputs))
                        p .muted { "Responses say in RateLimit how many calls are left. A refused call is 429 with Retry-After." }
                    }
                    None => p { "Limits are shown to visitors whose credential may call the agent." }
                }
            }
            section .card { h2 { "More than one answer" } (self.conventions_list()) }
            section .card { h2 { "Errors" } (render_fault_table(self.conventions)) }
            section .card { h2 { "Documents" } (self.documents()) }
        }
    }

    /// Says what the status means for calls.
    fn status_notice(&self) -> Markup {
        match &self.agent.status {
            AgentStatus::Active => html! {},
            AgentStatus::Inactive => notice(Notice::Bad, &html! { p { "The agent is not active: calls get 503." } }),
            AgentStatus::Deprecated(deprecation) => {
                let since = deprecation.deprecated_at.filter(|since| *since > 0).and_then(format_http_date);
                let sunset = deprecation.sunset.and_then(format_http_date);
                let content = html! {
                    p {
                        "The agent is deprecated"
                        @if let Some(since) = since { " since " (since) }
                        "."
                        @if let Some(sunset) = sunset { " It will be withdrawn on " (sunset) "." }
                        @if let Some(successor) = &deprecation.successor {
                            " Its successor is "
                            @if self.call.visibility.visible_agent(successor.as_str()).is_some() {
                                a href={ (CALLER_PAGES_PATH) "/" (successor) } { (successor) }
                            } @else {
                                code { (successor) }
                            }
                            "."
                        }
                    }
                };
                notice(Notice::Warning, &content)
            }
        }
    }

    fn facts(&self) -> Markup {
        let versions = callable_versions(self.agent);
        let labels: Vec<Cow<'_, str>> =
            versions.iter().take(MAX_WORDS).map(|version| shorten(&version.label, MAX_NAME)).collect();
        let publisher = self.agent.publisher.as_deref().map(|publisher| self.redactor.redact_text(publisher));
        facts([
            ("Id", Some(html! { code { (self.agent.id) } })),
            ("Version", self.agent.version.as_deref().map(|version| html! { (shorten(version, MAX_NAME)) })),
            ("Publisher", publisher.map(|publisher| html! { (shorten(&publisher, MAX_NAME)) })),
            ("Capabilities", self.words(&self.agent.capabilities)),
            ("Tags", self.words(&self.agent.tags)),
            ("Languages", self.words(&self.agent.languages)),
            (
                "Versions to request",
                (labels.len() > 1)
                    .then(|| html! { (labels.join(", ")) " (in " code { "X-Agent-Version" } ", or a range of them)" }),
            ),
        ])
    }

    fn words(&self, words: &[Arc<str>]) -> Option<Markup> {
        let shown = words.get(..MAX_WORDS).unwrap_or(words);
        (!words.is_empty()).then(|| {
            html! {
                @for word in self.redactor.redact_list(shown) { span .badge { (shorten(&word, MAX_NAME)) } " " }
                @if words.len() > shown.len() { "and " (words.len() - shown.len()) " more" }
            }
        })
    }

    /// Says what a call can be besides one question and one answer.
    fn conventions_list(&self) -> Markup {
        let conventions = self.conventions;
        let idempotency = Some(conventions.idempotency_ttl).filter(|ttl| !ttl.is_zero());
        html! {
            ul {
                li { "Streams: an answer in parts, such as server-sent events, passes as it arrives. Ask for one with " code { "Accept: text/event-stream" } "." }
                @if let Some(tasks) = &conventions.tasks {
                    li {
                        "Tasks: with " code { "Prefer: respond-async" } " the call is answered with 202 and the address of a task, which is kept for "
                        (duration_text(tasks.result_ttl)) " after its end."
                        @if tasks.has_callbacks { " A URL in " code { "X-Callback-Url" } " is notified of the end." }
                    }
                    @if let Some(window) = tasks.resume_window {
                        li { "Broken streams can be resumed for " (duration_text(window)) " with " code { "Last-Event-ID" } "." }
                    }
                }
                @if let Some(ttl) = idempotency {
                    li { "Idempotency: a call that is repeated with the same " code { "Idempotency-Key" } " within " (duration_text(ttl)) " gets the first answer." }
                }
                li {
                    @if self.agent.accepts_batch {
                        "Batches: the agent takes an array of inputs as one call."
                    } @else {
                        "Batches: an array of up to " (conventions.max_batch_items) " inputs is a call for each of them."
                    }
                }
                @if conventions.allows_get(self.agent) {
                    li { "GET: the members of an input that is an object may stand in the query instead." }
                }
                li { "WebSocket: the address takes WebSockets too, with an input in each message." }
            }
        }
    }

    fn documents(&self) -> Markup {
        let path = |document: &str| format!("/agents/{}{document}", self.agent.id);
        html! {
            p { "Programs read these with a credential, as they call the agent:" }
            ul {
                li { a href=(path("/openapi.json")) { "OpenAPI document" } }
                li { a href=(path("/agent-card.json")) { "A2A card" } }
                li { a href=(path("/agent.json")) { "Descriptor" } }
                li { a href=(path("")) { "Whole document" } }
            }
        }
    }
}
