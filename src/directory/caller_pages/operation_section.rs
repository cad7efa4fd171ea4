//! The part of an agent's page about one operation: its schemas, its examples, and the lines that call it.

use super::{
    super::{DirectoryCall, address_redaction::AddressRedactor, agent_document::RedactedDocument},
    call_lines::{CallLines, LineBody},
    code_literals::LiteralStyle,
    example_input::example_of_schema,
    page_parts::{PageBudget, shorten},
    required_credential::LineCredential,
    schema_table::SchemaTable,
};
use crate::{
    agent::{Agent, Operation, media_types},
    resolver::operation_url,
    values::json::is_deeper_than,
};
use maud::{Markup, html};
use serde_json::{Value, json};

/// Maximum number of characters of an operation's description.
const MAX_DESCRIPTION: usize = 4_000;
/// Maximum number of characters of a schema or an example that the page shows.
const MAX_JSON: usize = 24_000;
/// Maximum size of an input in the lines that call an agent, in bytes of JSON.
const MAX_LINE_INPUT: usize = 4 << 10;
/// Maximum depth of that input.
const MAX_LINE_DEPTH: usize = 12;
/// Maximum number of examples that are tried, as many as the contract checks.
const MAX_EXAMPLES: usize = 10;

/// One operation of an agent.
pub(super) struct OperationSection<'a> {
    pub(super) agent: &'a Agent,
    pub(super) call: &'a DirectoryCall<'a>,
    pub(super) document: &'a RedactedDocument,
    pub(super) redactor: &'a AddressRedactor<'a>,
    pub(super) credential: &'a LineCredential,
    pub(super) operation: &'a Operation,
    pub(super) index: usize,
}

/// The input of the lines, and what to know about it.
struct LineInput {
    value: Value,
    note: Option<&'static str>,
}

impl OperationSection<'_> {
    /// Returns the section, within the size of the page.
    pub(super) fn render(&self, budget: &mut PageBudget) -> Markup {
        let name = &*self.operation.name;
        let [inputs, outputs] = [&self.operation.inputs, &self.operation.outputs].map(|schema| {
            let mut schema = schema.as_deref().cloned();
            schema.iter_mut().for_each(|schema| self.redactor.redact_value(schema));
            schema
        });
        let description = self.redactor.redact_text(&self.operation.description);
        let head = budget.fit(html! {
            h2 { @if name.is_empty() { "Call" } @else { "Operation " code { (name) } } }
            @if !description.is_empty() { p { (shorten(&description, MAX_DESCRIPTION)) } }
        });
        let is_callable = self
            .operation
            .endpoint
            .as_deref()
            .is_none_or(|reference| operation_url(&self.agent.endpoint, reference).is_some());
        html! {
            section .card {
                (head)
                @if is_callable {
                    (budget.fit(self.lines(inputs.as_ref())))
                } @else {
                    p { "The operation is at another server than the agent, and cannot be called here." }
                }
                (schema_part(budget, "Input", inputs.as_ref()))
                (schema_part(budget, "Output", outputs.as_ref()))
                (budget.fit(self.examples()))
            }
        }
    }

    /// Returns the examples of the document.
    fn listed_examples(&self) -> impl Iterator<Item = &Value> {
        let declared = match &*self.operation.name {
            "" => self.document.member("examples"),
            _ => self.document.operation_member(self.index).and_then(|operation| operation.get("examples")),
        };
        declared.and_then(Value::as_array).into_iter().flatten().take(MAX_EXAMPLES)
    }

    /// Returns the lines that call the operation.
    fn lines(&self, inputs: Option<&Value>) -> Markup {
        // The gateway's own address, also where documents name the agent's.
        let url = match &*self.operation.name {
            "" => format!("{}/agents/{}/invoke", self.call.base_url, self.agent.id),
            name => format!("{}/agents/{}/invoke/{name}", self.call.base_url, self.agent.id),
        };
        let required = self.operation.required_inputs();
        let takes_json =
            required.is_empty() || required.iter().any(|format| matches!(&**format, "json" | "application/json"));
        let file_type = media_types(&required).next().filter(|_| !takes_json);
        let input = self.line_input(inputs);
        let body = file_type.map_or(LineBody::Json(&input.value), LineBody::File);
        let lines = CallLines { url: &url, credential: self.credential, body };
        let note = match file_type {
            Some(_) => Some("The input is the file named input."),
            None => input.note,
        };
        html! {
            p { "Address: " code { (url) } }
            @match self.credential {
                LineCredential::Header { variable, .. } => {
                    p .muted { "The lines read your credential from the environment variable " code { (variable) } "." }
                }
                LineCredential::Certificate => {
                    p .muted { "The lines read your certificate from client.pem and its key from client.key. The fetch of JavaScript presents no certificate." }
                }
                LineCredential::Nothing => {}
            }
            @if let Some(note) = note { p .muted { (note) } }
            details open { summary { "curl" } pre tabindex="0" { code { (lines.curl()) } } }
            details { summary { "Python" } pre tabindex="0" { code { (lines.python()) } } }
            @if let Some(javascript) = lines.javascript() {
                details { summary { "JavaScript" } pre tabindex="0" { code { (javascript) } } }
            }
        }
    }

    /// Returns the input of the lines: an example of the document, else one that is made from the schema.
    fn line_input(&self, inputs: Option<&Value>) -> LineInput {
        let is_accepted = |value: &Value| {
            !is_deeper_than(value, MAX_LINE_DEPTH)
                && value.to_string().len() <= MAX_LINE_INPUT
                && self.call.visibility.accepts_input(self.agent.id.as_str(), self.index, value)
        };
        let listed = self.listed_examples().filter_map(|example| example.get("input"));
        if let Some(value) = listed.into_iter().find(|value| is_accepted(value)) {
            return LineInput { value: value.clone(), note: None };
        }
        let Some(schema) = inputs else {
            let note = "The agent declares no schema of its input: put in what it expects.";
            return LineInput { value: json!({}), note: Some(note) };
        };
        match example_of_schema(schema).filter(|value| is_accepted(value)) {
            Some(value) => {
                LineInput { value, note: Some("The input is made from the schema: put in your own values.") }
            }
            None => {
                let note = "No input that matches the schema could be made: put in your own.";
                LineInput { value: json!({}), note: Some(note) }
            }
        }
    }

    /// Shows the first example of the document.
    fn examples(&self) -> Markup {
        let parts = |example: &Value| [example.get("input").cloned(), example.get("output").cloned()];
        let first = self.listed_examples().map(parts).find(|parts| parts.iter().any(Option::is_some));
        html! {
            @if let Some([input, output]) = first {
                h3 { "Example" }
                @for (title, value) in [("Input", input), ("Output", output)] {
                    @if let Some(value) = value { p { (title) } (json_block(&value)) }
                }
            }
        }
    }
}

/// Shows one schema: a table, and the schema itself.
fn schema_part(budget: &mut PageBudget, title: &str, schema: Option<&Value>) -> Markup {
    let Some(schema) = schema else {
        return html! { h3 { (title) } p { "The agent declares no schema." } };
    };
    if budget.is_spent() {
        return html! {};
    }
    let table = budget
        .fit(SchemaTable::of_schema(schema).render(&format!("What the schema of the {} says", title.to_lowercase())));
    let whole = budget.fit(html! {
        details { summary { "JSON Schema of the " (title.to_lowercase()) } (json_block(schema)) }
    });
    html! { h3 { (title) } (table) (whole) }
}

/// Shows a value as JSON; the end of a long one is left out.
fn json_block(value: &Value) -> Markup {
    let (text, is_all) = LiteralStyle::JSON.beginning(value, MAX_JSON);
    html! {
        pre tabindex="0" { code { (text) } }
        @if !is_all { p .muted { "The rest is left out. The OpenAPI document of the agent has all of it." } }
    }
}
