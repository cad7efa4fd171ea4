//! Validates a document before it is stored: schema, meaning, operation schemas and endpoint. All violations are
//! reported at once, each with its JSON Pointer. Nothing is repaired but a missing id.

use super::PublishConfig;
use crate::{
    agent::{Agent, AgentId, Endpoint, metadata_schema},
    contract::Schema,
    fault::{Code, Fault, Result, Violation},
    net::{AddressPolicy, Unreachable, resolve},
    unit::json::{cut, deeper_than, push_segment},
};
use serde_json::Value;
use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
    time::Duration,
};

/// Maximum size of one document in bytes, as in feeds.
const LARGEST: usize = 1 << 20;
/// Maximum nesting depth of arrays and objects in one document, as in feeds.
const DEEPEST: usize = 100;
/// Maximum number of violations that are reported.
const MOST: usize = 50;
/// Maximum duration of resolving a host name. A slower name is checked when it is called, as every name is.
const RESOLVING: Duration = Duration::from_secs(2);

static SCHEMA: LazyLock<std::result::Result<Arc<Schema>, String>> =
    LazyLock::new(|| Schema::compile(metadata_schema()));

/// Ids whose paths belong to the registry itself.
const RESERVED: &[&str] = &["search", "resolve"];

/// A valid document.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) id: AgentId,
    pub(super) text: Arc<str>,
}

/// Validates `document`.
///
/// # Errors
/// `InvalidInput` with every violation.
pub(super) async fn judge(document: Value, config: &PublishConfig, policy: &AddressPolicy) -> Result<Judged> {
    if deeper_than(&document, DEEPEST) {
        return Err(refuse(vec![at("", format!("is nested deeper than {DEEPEST} levels"))]));
    }
    // Compiling schemas may take long.
    let judging = tokio::task::spawn_blocking(move || (form(&document), document));
    let (found, document) = judging.await.map_err(|why| Fault::new(Code::Internal, "Validating failed").detail(why))?;
    let agent = found?;
    if RESERVED.contains(&agent.id.as_str()) {
        return Err(refuse(vec![at("/id", "is reserved for a path of the registry (choose another)")]));
    }
    if let Some(why) = vet(&agent.endpoint, config, policy).await {
        return Err(refuse(vec![at("/endpoint", why)]));
    }
    let text: Arc<str> = document.to_string().into();
    if text.len() > LARGEST {
        return Err(refuse(vec![at("", format!("has {} bytes (at most {LARGEST})", text.len()))]));
    }
    Ok(Judged { id: agent.id, text })
}

/// Returns the fault that reports `violations`.
pub(super) fn refuse(mut violations: Vec<Violation>) -> Fault {
    violations.truncate(MOST);
    Fault::new(Code::InvalidInput, "The document is not valid").violations(violations)
}

/// Returns one violation.
pub(super) fn at(pointer: &str, message: impl Into<String>) -> Violation {
    Violation { pointer: pointer.to_owned(), message: message.into() }
}

fn form(document: &Value) -> Result<Agent> {
    let schema = SCHEMA.as_ref().map_err(|why| Fault::new(Code::Internal, "Validating failed").detail(why))?;
    let mut found = schema.check_all(document, MOST);
    let agent = match Agent::from_document(document, [0; 32]) {
        Ok(agent) => Some(agent),
        Err(problems) => {
            let mut meant: Vec<Violation> = problems.iter().map(|problem| placed(problem)).collect();
            // Where both report the same location, the agent's message is kept, because it has a hint. The schema's is
            // kept where its location is more specific.
            meant.retain(|own| !found.iter().any(|other| is_below(&other.pointer, &own.pointer)));
            found.retain(|violation| !meant.iter().any(|own| same_place(violation, own)));
            found.extend(meant);
            None
        }
    };
    found.extend(agent.iter().flat_map(schemas));
    match agent {
        Some(agent) if found.is_empty() => Ok(agent),
        _ => Err(refuse(found)),
    }
}

/// Returns whether both report the same location; the schema reports a missing member at its parent.
fn same_place(schema: &Violation, agent: &Violation) -> bool {
    let missing = schema.message.strip_prefix("required property '").and_then(|rest| rest.split('\'').next());
    match missing {
        Some(property) => {
            let mut pointer = schema.pointer.clone();
            push_segment(&mut pointer, property);
            pointer == agent.pointer
        }
        None => schema.pointer == agent.pointer,
    }
}

fn is_below(pointer: &str, above: &str) -> bool {
    !above.is_empty() && pointer.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Converts a problem of the form `operations[1].name: why` into a violation with a JSON Pointer.
fn placed(problem: &str) -> Violation {
    let Some((path, why)) = problem.split_once(": ").filter(|(path, _)| !path.contains(' ')) else {
        return at("", problem);
    };
    let mut pointer = String::new();
    for step in path.split(['.', '[']) {
        push_segment(&mut pointer, step.trim_end_matches(']'));
    }
    at(&pointer, why)
}

/// Returns why the operations' schemas cannot be used.
fn schemas(agent: &Agent) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, operation) in agent.operations.iter().enumerate() {
        let place = if operation.name.is_empty() { String::new() } else { format!("/operations/{number}") };
        for (side, schema) in [("inputs", &operation.inputs), ("outputs", &operation.outputs)] {
            let broken = schema.as_ref().and_then(|schema| Schema::compile(schema).err());
            found.extend(broken.map(|why| at(&format!("{place}/{side}"), why)));
        }
    }
    found
}

/// Returns why the gateway would not reach an agent at this endpoint.
async fn vet(endpoint: &Endpoint, config: &PublishConfig, policy: &AddressPolicy) -> Option<String> {
    let uri = match endpoint {
        Endpoint::Http(uri) | Endpoint::WebSocket(uri) => uri,
        // The broker would have to trust the gateway, which has credentials for configured brokers only.
        Endpoint::Mqtt(_) => {
            return Some("must not be MQTT (an operator may add the broker to agents.from)".to_owned());
        }
        // The target of a name is checked whenever the name is resolved.
        Endpoint::Name(_) => return None,
        // A publisher must not make the gateway's account send messages, nor take over runtimes of this machine.
        Endpoint::Matrix(_) => return Some("must not be Matrix (an operator may add the agent in a file)".to_owned()),
        Endpoint::Local(_) => {
            return Some("is a runtime of the gateway's own machine, which registers itself".to_owned());
        }
        Endpoint::Unix { socket, .. } => {
            let path = socket.to_string_lossy();
            let allowed = config.allowed_sockets.iter().any(|sockets| sockets.matches(&path));
            return (!allowed).then(|| {
                "is a socket of the gateway's own machine, which must not be published (an operator may add it to \
                 registry.allow_sockets)"
                    .to_owned()
            });
        }
    };
    let host = uri.host().unwrap_or_default();
    let secure = endpoint.is_private_wire();
    if !secure && !is_here(host) && !config.allow_plaintext {
        return Some("must be encrypted beyond this machine (use https or wss)".to_owned());
    }
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    match tokio::time::timeout(RESOLVING, resolve(host, port, policy)).await {
        // The address is only logged: publishers must not learn what names resolve to in this network.
        Ok(Err(Unreachable::Refused { .. } | Unreachable::Socket { .. })) => Some(format!(
            "resolves to an address that the gateway must not reach: {} (an operator may add it to network.allow)",
            cut(host, 100)
        )),
        // An unknown name may be known when it is called, and is checked then.
        Ok(Ok(_) | Err(Unreachable::Unknown { .. })) | Err(_) => None,
    }
}

fn is_here(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Applies a JSON Merge Patch (RFC 7396 §2): members of the patch replace, null removes. Recursion is bounded by the
/// depth to which both were parsed.
pub(super) fn merge(target: &mut Value, patch: Value) {
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
            value => merge(members.entry(name).or_insert(Value::Null), value),
        }
    }
}
