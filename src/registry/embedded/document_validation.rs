//! Validates a document before it is stored: schema, meaning, operation schemas and endpoint. All violations are
//! reported at once, each with its JSON Pointer. Only a missing id is repaired.

use super::{
    super::{
        AgentOwnership, PublisherBudget,
        document_parser::{self, MAX_DOCUMENT_SIZE},
        endpoint_rules::SERVER_OF_OTHER_OWNER,
        feed::DocumentBody,
        http_feed::{convert_unlocated, is_card},
    },
    config::{PublishConfig, PublisherRule},
    publisher::Publisher,
};
use crate::{
    agent::{Agent, AgentEndpoint, AgentId, EndpointAccess, EndpointOrigin, OriginPattern, metadata_schema},
    contract::{CompiledSchema, DocumentBudget, OperationSchemas},
    fault::{Fault, FaultCode, Result, Violation},
    net::{AddressPolicy, ResolveError, resolve_host},
    resolver::operation_url,
    values::{
        is_loopback_host,
        json::{is_deeper_than, push_pointer_segment, truncate},
        run_at_low_priority,
    },
};
use bytes::Bytes;
use serde_json::Value;
use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

/// Maximum nesting depth of arrays and objects in one document, as in feeds.
const MAX_DEPTH: usize = 100;
/// Maximum number of violations that are reported.
const MAX_VIOLATIONS: usize = 50;
/// Maximum duration of resolving a host name. A slower name is checked when it is called, as every name is.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

static METADATA_SCHEMA: LazyLock<std::result::Result<Arc<CompiledSchema>, String>> =
    LazyLock::new(|| CompiledSchema::compile(metadata_schema()));

/// Ids whose paths belong to the registry itself.
const RESERVED_IDS: &[&str] = &["search", "resolve"];

/// A valid document.
#[derive(Debug)]
pub(super) struct ValidDocument {
    pub(super) id: AgentId,
    pub(super) endpoint: AgentEndpoint,
    pub(super) text: Arc<str>,
}

/// Parses a document or patch that was sent.
///
/// # Errors
/// `InvalidInput`, with a hint where the mistake is a known one (R74).
pub fn parse_document(text: Bytes) -> Result<Value> {
    document_parser::parse_value(DocumentBody::Text(text)).map_err(|why| match why.strip_prefix("version: ") {
        Some(hint) => invalid_document(vec![violation("/version", hint)]),
        None => Fault::new(FaultCode::InvalidInput, why),
    })
}

/// Validates everything of a document but its endpoint. `budget` returns what the schemas of the agent may take; it may
/// block.
///
/// # Errors
/// `InvalidInput` with every violation.
pub(super) async fn validate_document(
    document: Value,
    budget: impl FnOnce(&Agent) -> PublisherBudget + Send + 'static,
) -> Result<ValidDocument> {
    if is_deeper_than(&document, MAX_DEPTH) {
        return Err(invalid_document(vec![violation("", format!("is nested deeper than {MAX_DEPTH} levels"))]));
    }
    // Compiling schemas may take long.
    let validate = move || (validate_structure(&document, budget), document);
    let validation = tokio::task::spawn_blocking(move || run_at_low_priority(validate));
    let (result, document) =
        validation.await.map_err(|why| Fault::new(FaultCode::Internal, "Validating failed").with_detail(why))?;
    let agent = result?;
    if RESERVED_IDS.contains(&agent.id.as_str()) {
        return Err(invalid_document(vec![violation(
            "/id",
            "is reserved for a path of the registry (choose another)",
        )]));
    }
    let text: Arc<str> = document.to_string().into();
    if text.len() > MAX_DOCUMENT_SIZE {
        return Err(invalid_document(vec![violation(
            "",
            format!("has {} bytes (at most {MAX_DOCUMENT_SIZE})", text.len()),
        )]));
    }
    Ok(ValidDocument { id: agent.id, endpoint: agent.endpoint, text })
}

/// Checks the endpoints of one publisher, or of documents that an operator imports.
pub(super) struct EndpointValidator<'a> {
    /// `None` for an operator who imports documents of any publisher.
    pub(super) publisher: Option<Publisher<'a>>,
    /// The owner of the document, whose other agents may be at the same server.
    pub(super) owner: Option<&'a str>,
    pub(super) config: &'a PublishConfig,
    pub(super) policy: &'a AddressPolicy,
    /// The owners of the agents in force, where they are known.
    pub(super) ownership: Option<&'a dyn AgentOwnership>,
}

impl EndpointValidator<'_> {
    /// Checks an endpoint.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) async fn validate(&self, endpoint: &AgentEndpoint) -> Result<()> {
        match self.check_endpoint(endpoint).await {
            Some(why) => Err(invalid_document(vec![violation("/endpoint", why)])),
            None => Ok(()),
        }
    }

    /// Returns why the publisher may not name this endpoint, or why the gateway would not reach an agent there.
    async fn check_endpoint(&self, endpoint: &AgentEndpoint) -> Option<String> {
        let rules: Vec<&PublisherRule> = match self.publisher {
            Some(publisher) => self.config.rules_for(publisher).collect(),
            None => self.config.publishers.iter().collect(),
        };
        let lists: Vec<&[OriginPattern]> = rules.iter().filter_map(|rule| rule.endpoints.as_deref()).collect();
        let origin = EndpointOrigin::from(endpoint);
        if lists.iter().copied().flatten().any(|pattern| pattern.matches(&origin)) {
            // Otherwise the agent would be published, and refused whenever it is called.
            if self.owner.is_some_and(|owner| !self.config.lists_endpoint_of(owner, &origin)) {
                return Some(
                    "is not listed by a rule that names the owner of the document (an operator may list it there)"
                        .to_owned(),
                );
            }
            return self.check_address(endpoint, self.policy).await;
        }
        // A rule without a list lets its publishers name every public server.
        if !lists.is_empty() && lists.len() == rules.len() {
            let patterns: Vec<String> = lists.iter().copied().flatten().take(20).map(ToString::to_string).collect();
            return Some(format!(
                "must be at one of the servers that this publisher may name ({})",
                patterns.join(", ")
            ));
        }
        if let Some(why) = self.check_access(endpoint) {
            return Some(why);
        }
        if self.is_at_server_of_other_owner(endpoint) {
            return Some(SERVER_OF_OTHER_OWNER.to_owned());
        }
        // The groups of an owner are not stored, so that the document would be served as one that is listed.
        let is_own = self.publisher.is_some_and(|publisher| self.owner == Some(publisher.owner_key));
        if is_own && self.owner.is_some_and(|owner| self.config.lists_endpoint_of(owner, &origin)) {
            return Some(
                "is listed for groups that the publisher does not belong to (an operator may list it in a rule for this \
                 publisher)"
                    .to_owned(),
            );
        }
        self.check_address(endpoint, &self.policy.without_private_networks()).await
    }

    /// Checks again that no other owner has the server of an endpoint.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) fn validate_server_owner(&self, endpoint: &AgentEndpoint) -> Result<()> {
        if self.is_at_server_of_other_owner(endpoint) {
            return Err(invalid_document(vec![violation("/endpoint", SERVER_OF_OTHER_OWNER)]));
        }
        Ok(())
    }

    fn is_at_server_of_other_owner(&self, endpoint: &AgentEndpoint) -> bool {
        let owner = self.ownership.and_then(|ownership| ownership.endpoint_owner(endpoint));
        owner.is_some_and(|owner| owner.publisher().map(|id| &**id) != self.owner)
    }

    /// Returns why an endpoint that is not listed uses an account or a socket of the gateway.
    fn check_access(&self, endpoint: &AgentEndpoint) -> Option<String> {
        match endpoint {
            AgentEndpoint::Url(url) => match url.scheme().access() {
                EndpointAccess::Network => None,
                // The broker would have to trust the gateway, which has credentials for configured brokers only.
                EndpointAccess::MessageBroker => {
                    Some("must not be MQTT (an operator may add the broker to agents.sources)".to_owned())
                }
                EndpointAccess::GatewayAccount | EndpointAccess::ThisMachine | EndpointAccess::Resolution => {
                    Some("must not use an account or a socket of the gateway".to_owned())
                }
            },
            // The target of a name is checked whenever the name is resolved.
            AgentEndpoint::AgentUri(_) => None,
            // A publisher must not make the gateway's account send messages, nor take over runtimes of this machine.
            AgentEndpoint::Matrix(_) => Some("must not be Matrix (an operator may add the agent in a file)".to_owned()),
            AgentEndpoint::Local(_) => {
                Some("is a runtime of the gateway's own machine, which registers itself".to_owned())
            }
            AgentEndpoint::Unix { .. } => (!self.config.allows_socket_of(endpoint)).then(|| {
                "is a socket of the gateway's own machine, which must not be published (an operator may add it to \
                 registry.allowed_sockets)"
                    .to_owned()
            }),
        }
    }

    /// Returns why the gateway would not reach the address of an endpoint.
    async fn check_address(&self, endpoint: &AgentEndpoint, policy: &AddressPolicy) -> Option<String> {
        let AgentEndpoint::Url(url) = endpoint else { return None };
        let host = url.uri().host().unwrap_or_default();
        let secure = endpoint.is_encrypted_or_local();
        if !secure && !is_loopback_host(host) && !self.config.allow_plaintext {
            return Some("must be encrypted beyond this machine (use https or wss)".to_owned());
        }
        let port = url.uri().port_u16().or_else(|| url.scheme().default_port()).unwrap_or(443);
        match tokio::time::timeout(RESOLVE_TIMEOUT, resolve_host(host, port, policy)).await {
            // The address is only logged: publishers must not learn what names resolve to in this network.
            Ok(Err(ResolveError::Denied { .. } | ResolveError::SocketDenied { .. })) => Some(format!(
                "resolves to an address that the gateway must not reach: {} (an operator may add it to \
                 network.allowed_addresses, or its server to endpoints of the publisher)",
                truncate(host, 100)
            )),
            // A name without an address may have one when the agent is called, and is checked then.
            Ok(Ok(_) | Err(ResolveError::NoAddress { .. })) | Err(_) => None,
        }
    }
}

/// Returns a document that a publisher sent: an A2A card becomes an AIDIP document, as the cards of sources do.
///
/// # Errors
/// `InvalidInput` if the gateway cannot call the agent of the card.
pub(super) async fn document_of_card(document: Value) -> Result<Value> {
    if !is_card(&document) {
        return Ok(document);
    }
    // A card of thousands of skills takes longer than other calls can wait.
    let converted = tokio::task::spawn_blocking(move || convert_card(document)).await;
    converted.map_err(|why| Fault::new(FaultCode::Internal, "Converting failed").with_detail(why))?
}

/// Refuses a patch of what a document has of an A2A card: the card, which callers read, would say something else.
///
/// # Errors
/// `InvalidInput`.
pub(super) fn check_patch_of_card(document: &Value, patch: &Value) -> Result<()> {
    const OF_CARDS: [&str; 5] = ["url", "skills", "operations", "supportedInterfaces", "agent_card"];
    let Some(card) = document.get("agent_card").and_then(Value::as_object) else { return Ok(()) };
    let patched = patch.as_object().into_iter().flatten().map(|(name, _)| name);
    let of_card = patched.filter(|name| card.contains_key(*name) || OF_CARDS.contains(&name.as_str()));
    let refuse =
        |name: &String| violation(&format!("/{name}"), "is made of the A2A card: PUT the whole card to change it");
    let violations: Vec<Violation> = of_card.map(refuse).collect();
    if violations.is_empty() { Ok(()) } else { Err(invalid_document(violations)) }
}

fn convert_card(document: Value) -> Result<Value> {
    let Value::Object(members) = &document else { return Ok(document) };
    if is_deeper_than(&document, MAX_DEPTH) {
        return Ok(document);
    }
    let refused = |why: &str| invalid_document(vec![violation_from_problem(why)]);
    match convert_unlocated(members) {
        Ok(Some(converted)) => {
            document_parser::parse_value(DocumentBody::Text(converted.into_text())).map_err(|why| refused(&why))
        }
        Ok(None) => Ok(document),
        Err(why) => Err(refused(why.reason())),
    }
}

/// Returns the fault that reports `violations`.
pub(super) fn invalid_document(mut violations: Vec<Violation>) -> Fault {
    violations.truncate(MAX_VIOLATIONS);
    Fault::new(FaultCode::InvalidInput, "The document is not valid").with_violations(violations)
}

/// Returns one violation.
pub(super) fn violation(pointer: &str, message: impl Into<String>) -> Violation {
    Violation::new(pointer, message)
}

fn validate_structure(document: &Value, budget: impl FnOnce(&Agent) -> PublisherBudget) -> Result<Agent> {
    let schema = METADATA_SCHEMA
        .as_ref()
        .map_err(|why| Fault::new(FaultCode::Internal, "Validating failed").with_detail(why))?;
    let mut violations = schema.validate_up_to(document, MAX_VIOLATIONS);
    let agent = match Agent::from_document(document, [0; 32]) {
        Ok(agent) => Some(agent),
        Err(problems) => {
            let mut agent_violations: Vec<Violation> =
                problems.iter().map(|problem| violation_from_problem(problem)).collect();
            // Where both report the same location, the agent's message is kept, because it has a hint. The schema's is
            // kept where its location is more specific.
            agent_violations.retain(|agent_violation| {
                !violations.iter().any(|other| is_below(&other.pointer, &agent_violation.pointer))
            });
            violations.retain(|violation| {
                !agent_violations.iter().any(|agent_violation| is_same_location(violation, agent_violation))
            });
            violations.extend(agent_violations);
            None
        }
    };
    if let Some(agent) = &agent {
        // The schema may have refused the same member.
        let ignored = agent.ignored_members.iter().map(|member| violation_from_problem(member));
        let ignored = ignored.filter(|ignored| !violations.iter().any(|other| is_same_location(other, ignored)));
        violations.extend(ignored.collect::<Vec<_>>());
        violations.extend(check_operation_endpoints(agent));
        let budget = budget(agent);
        violations.extend(budget.unsupported.iter().map(|why| violation_from_problem(why)));
        violations.extend(check_operation_schemas(agent, &budget));
    }
    match agent {
        Some(agent) if violations.is_empty() => Ok(agent),
        _ => Err(invalid_document(violations)),
    }
}

/// Returns whether both report the same location; the schema reports a missing member at its parent.
fn is_same_location(schema: &Violation, agent: &Violation) -> bool {
    let missing = schema.message.strip_prefix("required property '").and_then(|rest| rest.split('\'').next());
    match missing {
        Some(property) => {
            let mut pointer = schema.pointer.clone();
            push_pointer_segment(&mut pointer, property);
            pointer == agent.pointer
        }
        None => schema.pointer == agent.pointer,
    }
}

fn is_below(pointer: &str, above: &str) -> bool {
    !above.is_empty() && pointer.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Converts a problem of the form `operations[1].name: why` into a violation with a JSON Pointer.
fn violation_from_problem(problem: &str) -> Violation {
    let Some((path, why)) = problem.split_once(": ").filter(|(path, _)| !path.contains(' ')) else {
        return violation("", problem);
    };
    let mut pointer = String::new();
    for step in path.split(['.', '[']) {
        push_pointer_segment(&mut pointer, step.trim_end_matches(']'));
    }
    violation(&pointer, why)
}

/// Returns a violation for each operation at another server than its agent.
fn check_operation_endpoints(agent: &Agent) -> impl Iterator<Item = Violation> {
    let is_elsewhere = |reference: &str| operation_url(&agent.endpoint, reference).is_none();
    let operations = agent.operations.iter().enumerate();
    let elsewhere = operations.filter(move |(_, operation)| operation.endpoint.as_deref().is_some_and(is_elsewhere));
    elsewhere.map(|(index, _)| {
        let message = "must be a path, or a URL at the server of the agent's endpoint";
        violation(&format!("/operations/{index}/endpoint"), message)
    })
}

/// Returns why the operations' schemas cannot be used, and why the document may not be published with them.
fn check_operation_schemas(agent: &Agent, budget: &PublisherBudget) -> Vec<Violation> {
    let mut violations = Vec::new();
    let (owners, checks) = ([&budget.budget], budget.checks);
    let budget = DocumentBudget::new(budget.limits, &owners);
    let mut compiled = Vec::with_capacity(agent.operations.len());
    for (number, operation) in agent.operations.iter().enumerate() {
        let pointer = if operation.name.is_empty() { String::new() } else { format!("/operations/{number}") };
        let mut compile = |member: &str, schema: &Option<Arc<Value>>| {
            let pointer = format!("{pointer}/{member}");
            let compiled = CompiledSchema::compile_within(schema.as_ref()?, &budget);
            let compiled = compiled.map_err(|why| violations.push(violation(&pointer, why))).ok()?;
            violations.extend(checks.unsupported_problems(&compiled).into_iter().map(|why| violation(&pointer, why)));
            Some(compiled)
        };
        compiled.push([compile("inputs", &operation.inputs), compile("outputs", &operation.outputs)]);
    }
    let schemas_of = |index: usize| match compiled.get(index) {
        Some([input, output]) => OperationSchemas { input: input.as_deref(), output: output.as_deref() },
        None => OperationSchemas::default(),
    };
    let findings = checks.check(agent, schemas_of);
    violations.extend(findings.refusals.iter().map(|finding| violation_from_problem(finding)));
    violations
}

/// Applies a JSON Merge Patch (RFC 7396 §2): members of the patch replace, null removes. Recursion is bounded by the
/// depth to which both were parsed.
pub(super) fn apply_merge_patch(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(members) = target else { return };
    for (name, value) in patch {
        match value {
            Value::Null => drop(members.remove(&name)),
            value => apply_merge_patch(members.entry(name).or_insert(Value::Null), value),
        }
    }
}
