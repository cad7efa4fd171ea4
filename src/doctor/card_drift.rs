//! Differences between an agent's document and what the agent publishes about itself.

use crate::{
    agent::{Agent, AgentEndpoint},
    net::Url,
    registry::convert_published_card,
    values::is_loopback_host,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Maximum number of names that a difference lists.
const MAX_LISTED_NAMES: usize = 5;

/// Where agents publish a card or descriptor of themselves (A2A §8.2, and its earlier path, which `agent://` has too).
pub(super) const CARD_PATHS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// What an agent publishes about itself.
#[derive(Debug)]
pub(super) struct PublishedCard {
    agent: Agent,
    /// Whether the card says where the agent is.
    names_endpoint: bool,
}

/// Reads a card; `None` for a text that is no card.
pub(super) fn parse_card(text: &[u8], id: &str, url: &Url) -> Option<PublishedCard> {
    let card: Value = serde_json::from_slice(text).ok()?;
    let has = |names: &[&str]| names.iter().any(|name| card.get(name).is_some_and(|member| !member.is_null()));
    let names_endpoint = has(&["url", "endpoint", "endpoints", "supportedInterfaces"]);
    // A server that answers every path with some JSON publishes no card.
    if !has(&["id", "name"]) || !names_endpoint && !has(&["skills", "capabilities", "operations"]) {
        return None;
    }
    let converted = convert_published_card(card, id, url).ok()?;
    let document: Value = serde_json::from_slice(&converted).ok()?;
    Some(PublishedCard { agent: Agent::from_document(&document, [0; 32]).ok()?, names_endpoint })
}

/// Returns what the document says otherwise than the card; empty where they agree. `is_alone` says whether the agent is
/// the only one at its server: otherwise a card with another endpoint is that of another agent.
pub(super) fn differences(document: &Agent, card: &PublishedCard, is_alone: bool) -> Vec<String> {
    let PublishedCard { agent: card, names_endpoint } = card;
    let same_endpoint = !names_endpoint || endpoint_key(&document.endpoint) == endpoint_key(&card.endpoint);
    if !same_endpoint && !is_alone && document.id != card.id {
        return Vec::new();
    }
    let mut differences = Vec::new();
    if let (Some(own), Some(published)) = (&document.version, &card.version)
        && own != published
    {
        differences.push(format!("version {own}, published {published}"));
    }
    if !same_endpoint {
        differences.push(format!("endpoint {}, published {}", document.endpoint, card.endpoint));
    }
    let names = |agent: &Agent| -> BTreeSet<String> {
        agent.operations.iter().map(|operation| operation.name.to_string()).filter(|name| !name.is_empty()).collect()
    };
    let (own, published) = (names(document), names(card));
    // A document without operations leaves them to the agent.
    if !own.is_empty() && !published.is_empty() {
        differences.extend(listed("operations that the agent does not publish", own.difference(&published)));
        // Every card of A2A has the operation `message` besides its skills.
        let lacking = published.difference(&own).filter(|name| *name != "message");
        differences.extend(listed("operations that the document lacks", lacking));
    }
    for operation in &document.operations {
        let other = card.operations.iter().find(|other| other.name == operation.name);
        let schemas = other.and_then(|other| other.inputs.as_ref()).zip(operation.inputs.as_ref());
        if schemas.is_some_and(|(published, own)| published != own) {
            differences.push(format!("another schema of the input of {}", operation.name));
        }
    }
    differences
}

fn listed<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Option<String> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    let shown = names.iter().take(MAX_LISTED_NAMES).copied().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MAX_LISTED_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{what}: {shown}{more}"))
}

/// Returns an endpoint in the form in which two of them are compared: names of this machine are one.
fn endpoint_key(endpoint: &AgentEndpoint) -> String {
    let Some(uri) = endpoint.http_url() else { return endpoint.to_string() };
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    let host = if is_loopback_host(&host) { "localhost".to_owned() } else { host };
    let is_https = endpoint.is_encrypted_or_local() && uri.scheme_str() != Some("http");
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    format!("{host}:{port}{}", uri.path().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agent(changes: &Value) -> Agent {
        let mut document = json!({"id": "one", "name": "One", "version": "1.0.0", "endpoint": "http://127.0.0.1:8000/a",
            "operations": [{"name": "sum", "inputs": {"type": "object"}}]});
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        Agent::from_document(&document, [0; 32]).unwrap()
    }

    fn published(changes: &Value) -> PublishedCard {
        PublishedCard { agent: agent(changes), names_endpoint: true }
    }

    #[test]
    fn a_document_that_says_what_the_agent_says_does_not_differ() {
        let own = agent(&json!({}));
        assert_eq!(differences(&own, &published(&json!({})), true), Vec::<String>::new());
        assert_eq!(
            differences(&own, &published(&json!({"endpoint": "http://localhost:8000/a/"})), true),
            Vec::<String>::new()
        );
    }

    #[test]
    fn each_difference_is_named() {
        let own = agent(&json!({}));
        let one = |changes: &Value| differences(&own, &published(changes), true).join("; ");
        assert_eq!(one(&json!({"version": "2.0.0"})), "version 1.0.0, published 2.0.0");
        assert!(one(&json!({"endpoint": "http://127.0.0.1:8001/a"})).contains("published http://127.0.0.1:8001/a"));
        let other = one(&json!({"operations": [{"name": "difference"}]}));
        assert!(other.contains("does not publish: sum") && other.contains("document lacks: difference"), "{other}");
        let schema = one(&json!({"operations": [{"name": "sum", "inputs": {"type": "array"}}]}));
        assert_eq!(schema, "another schema of the input of sum");
    }

    #[test]
    fn a_card_of_another_agent_at_the_same_server_is_no_difference() {
        let (own, other) = (agent(&json!({})), published(&json!({"id": "two", "endpoint": "http://127.0.0.1:8000/b"})));
        assert_eq!(differences(&own, &other, false), Vec::<String>::new());
        assert_eq!(differences(&own, &other, true).len(), 1);
    }

    #[test]
    fn a_text_that_is_no_card_is_ignored() {
        let url = Url::parse("http://127.0.0.1:8000/.well-known/agent.json").unwrap();
        for text in ["", "<html>", "{}", r#"{"echo": null}"#, "[]", r#"{"name": "x"}"#] {
            assert!(parse_card(text.as_bytes(), "one", &url).is_none(), "{text}");
        }
        let card = json!({"name": "One", "version": "2", "url": "http://127.0.0.1:8000/a", "protocolVersion": "0.3.0",
            "capabilities": {}, "skills": [{"id": "sum", "name": "Sum", "description": "d", "tags": []}]});
        let parsed = parse_card(card.to_string().as_bytes(), "one", &url).unwrap();
        assert_eq!(parsed.agent.version.as_deref(), Some("2"));
    }
}
