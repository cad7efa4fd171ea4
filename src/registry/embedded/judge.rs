//! Whether a document may be kept: its form, what it means, its schemas, and where its agent is. Every reason is told
//! at once, each with its place. Nothing is repaired but a missing id.

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

/// Bytes of one document, as feeds have it.
const LARGEST: usize = 1 << 20;
/// Nested arrays and objects in one document, as feeds have it.
const DEEPEST: usize = 100;
/// Reasons that are told.
const MOST: usize = 50;
/// How long a name may take to be resolved. One that takes longer is vetted when it is called, as each is.
const RESOLVING: Duration = Duration::from_secs(2);

static SCHEMA: LazyLock<std::result::Result<Arc<Schema>, String>> =
    LazyLock::new(|| Schema::compile(metadata_schema()));

/// Ids whose documents nobody could read: other things are at their paths.
const RESERVED: &[&str] = &["search", "resolve"];

/// A document that may be kept.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) id: AgentId,
    pub(super) text: Arc<str>,
}

/// Judges `document`.
///
/// # Errors
/// `InvalidInput` with every violation.
pub(super) async fn judge(document: Value, config: &PublishConfig, policy: &AddressPolicy) -> Result<Judged> {
    if deeper_than(&document, DEEPEST) {
        return Err(refuse(vec![at("", format!("is nested more than {DEEPEST} deep"))]));
    }
    // Schemas are compiled, which may take long.
    let judging = tokio::task::spawn_blocking(move || (form(&document), document));
    let (found, document) = judging.await.map_err(|why| Fault::new(Code::Internal, "judging failed").detail(why))?;
    let agent = found?;
    if RESERVED.contains(&agent.id.as_str()) {
        return Err(refuse(vec![at("/id", "is a path of the registry itself (choose another)")]));
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

/// The refusal that tells all of `violations`.
pub(super) fn refuse(mut violations: Vec<Violation>) -> Fault {
    violations.truncate(MOST);
    Fault::new(Code::InvalidInput, "the document is not valid").violations(violations)
}

/// One violation.
pub(super) fn at(pointer: &str, message: impl Into<String>) -> Violation {
    Violation { pointer: pointer.to_owned(), message: message.into() }
}

fn form(document: &Value) -> Result<Agent> {
    let schema = SCHEMA.as_ref().map_err(|why| Fault::new(Code::Internal, "judging failed").detail(why))?;
    let mut found = schema.check_all(document, MOST);
    let agent = match Agent::from_document(document, [0; 32]) {
        Ok(agent) => Some(agent),
        Err(problems) => {
            let mut meant: Vec<Violation> = problems.iter().map(|problem| placed(problem)).collect();
            // Of two words about one place the agent's own are kept: they name the cure. The schema's are, where
            // they name the place more closely.
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

/// Whether both say the same of one place; the schema tells what is missing of the whole.
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

/// A problem written `operations[1].name: why`, with its place as a JSON Pointer.
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

/// What keeps the operations' schemas from being used.
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

/// Why the gateway would not reach an agent there.
async fn vet(endpoint: &Endpoint, config: &PublishConfig, policy: &AddressPolicy) -> Option<String> {
    let uri = match endpoint {
        Endpoint::Http(uri) | Endpoint::WebSocket(uri) => uri,
        // The broker would have to believe the gateway, which has credentials for configured brokers only.
        Endpoint::Mqtt(_) => return Some("is over MQTT: an operator names the broker under agents.from".to_owned()),
        // What it leads to is vetted whenever it is resolved.
        Endpoint::Name(_) => return None,
        // Whoever publishes must not make the gateway's account speak, nor take over what this machine runs.
        Endpoint::Matrix(_) => return Some("is over Matrix: an operator names such an agent in a file".to_owned()),
        Endpoint::Local(_) => {
            return Some("is a runtime of the gateway's own machine, which registers there".to_owned());
        }
        Endpoint::Unix { socket, .. } => {
            let path = socket.to_string_lossy();
            let allowed = config.allow_sockets.iter().any(|sockets| sockets.matches(&path));
            return (!allowed).then(|| {
                "is a socket of the gateway's own machine, which may not be published (an operator may list it under \
                 registry.allow_sockets)"
                    .to_owned()
            });
        }
    };
    let host = uri.host().unwrap_or_default();
    let secure = endpoint.is_private_wire();
    if !secure && !is_here(host) && !config.insecure_plaintext {
        return Some("is not encrypted beyond this machine (use https or wss)".to_owned());
    }
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    match tokio::time::timeout(RESOLVING, resolve(host, port, policy)).await {
        // The address itself is the log's: a publisher is not told what names resolve to in here.
        Ok(Err(Unreachable::Refused { .. } | Unreachable::Socket { .. })) => Some(format!(
            "is at an address that the gateway may not reach: {} (an operator may list it under network.allow)",
            cut(host, 100)
        )),
        // A name that is not known yet may be known when it is called, and is vetted then.
        Ok(Ok(_) | Err(Unreachable::Unknown { .. })) | Err(_) => None,
    }
}

fn is_here(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// A JSON Merge Patch (RFC 7396 §2): what the patch names replaces, null takes away. Recursion is bounded by the
/// depth at which both were read.
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
