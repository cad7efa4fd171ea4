//! Converts an agent:// descriptor (JSON-LD or plain JSON, R65–R73) into an AIDIP document: capabilities with schemas
//! become operations. All other members are kept.

use super::{
    json_members::{get_member, object_array, quote_name, string_array, text_member},
    security_schemes,
    slug::{operation_name, slug},
};
use crate::{net::Url, resolver::endpoint_hints};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Keywords of JSON Schema; a schema has at least one of them.
const SCHEMA_KEYWORDS: &[&str] = &[
    "type",
    "properties",
    "required",
    "items",
    "enum",
    "const",
    "$ref",
    "$schema",
    "$defs",
    "allOf",
    "anyOf",
    "oneOf",
    "additionalProperties",
];

/// Converts the descriptor that was read from `base`, under the name `listed_name` in its list.
///
/// # Errors
/// Why the agent cannot be called through the gateway.
pub(super) fn convert_descriptor(
    mut descriptor: Map<String, Value>,
    listed_name: Option<&str>,
    base: &Url,
    addressing: OperationAddressing,
) -> Result<Value, String> {
    let name = text_member(&descriptor, "name").or(listed_name).ok_or("name: is required")?.to_owned();
    let endpoint = resolve_endpoint(&descriptor, base)?;
    // The most explicit hint is the address of all operations; `url` and the descriptor's own place are where the agent
    // is, and its capabilities are below (R47).
    let is_base =
        addressing == OperationAddressing::BelowEndpoint && !endpoint_hints::has_invocation_endpoint(&descriptor);
    let addresses = OperationAddresses { base, endpoint: &endpoint, is_base };
    let (operations, capabilities) = convert_capabilities(&descriptor, &addresses)?;
    let authentication = convert_authentication(&descriptor)?;
    let provider = get_member(&descriptor, "provider").and_then(Value::as_object);
    let publisher = provider.and_then(|provider| text_member(provider, "organization")).map(str::to_owned);
    let mut put = |name: &str, value: Value| drop(descriptor.insert(name.to_owned(), value));
    put("endpoint", endpoint.into());
    if let Some(authentication) = authentication {
        put("authentication", authentication);
    }
    if let Some(operations) = operations {
        put("operations", operations.into());
    }
    put("capabilities", capabilities.into());
    if let Some(publisher) = publisher {
        descriptor.entry("publisher").or_insert_with(|| publisher.into());
    }
    let id = slug(listed_name.unwrap_or(&name));
    descriptor.entry("id").or_insert_with(|| id.into());
    descriptor.entry("name").or_insert_with(|| name.into());
    Ok(Value::Object(descriptor))
}

/// Returns the endpoint that the descriptor hints at (R53), the plainest hint first. `agent://` is HTTPS (R54).
fn resolve_endpoint(descriptor: &Map<String, Value>, base: &Url) -> Result<String, String> {
    let Some(hint) = endpoint_hints::endpoint_hint(descriptor) else {
        // R57: the descriptor of an agent is at `<path-to-agent>/agent.json`.
        return agent_folder(base)
            .map(String::from)
            .ok_or_else(|| "endpoint: is required (endpoint, transport.endpoint or url)".to_owned());
    };
    match hint.split_once("://") {
        Some(("agent", rest)) => Ok(format!("https://{rest}")),
        // A URL that is not HTTP is rejected later, with the rest of the document.
        Some(_) => Ok(hint.to_owned()),
        None => base.join(hint).map(String::from).map_err(|_| format!("endpoint: {} is not a URL", quote_name(hint))),
    }
}

/// Returns the place of the agent whose descriptor is at `descriptor`: the folder of `agent.json`, without
/// `.well-known`.
fn agent_folder(descriptor: &Url) -> Option<Url> {
    let folder = descriptor.path().strip_suffix("/agent.json")?;
    let mut place = descriptor.clone();
    place.set_path(&format!("{}/", folder.strip_suffix("/.well-known").unwrap_or(folder)));
    place.set_query(None);
    Some(place)
}

/// Where the operations of a descriptor are called, unless a capability has an `endpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationAddressing {
    /// All at the agent's endpoint, by the name of the operation.
    AtEndpoint,
    /// Each below the agent's `url`, as the reference implementation serves them.
    BelowEndpoint,
}

/// Determines the addresses of the operations of one descriptor.
struct OperationAddresses<'a> {
    /// Where the descriptor was read.
    base: &'a Url,
    endpoint: &'a str,
    /// Whether operations are below the endpoint.
    is_base: bool,
}

impl OperationAddresses<'_> {
    /// Returns the address of the capability `name`: its own, made absolute, or the one below the agent's.
    fn address_of(&self, capability: &Map<String, Value>, name: &str) -> Option<String> {
        match text_member(capability, "endpoint") {
            Some(own) if own.contains("://") => None,
            Some(own) => self.base.join(own).ok().map(String::from),
            None if self.is_base => self.below_endpoint(name),
            None => None,
        }
    }

    fn below_endpoint(&self, name: &str) -> Option<String> {
        // Only HTTP and WebSocket endpoints have paths.
        let address = self.endpoint.strip_prefix("agent+").unwrap_or(self.endpoint);
        let mut url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "ws" | "wss"))?;
        // A name may be a path.
        let segments = name.split('/').filter(|segment| !segment.is_empty());
        if segments.clone().any(|segment| matches!(segment, "." | "..")) {
            return None;
        }
        url.path_segments_mut().ok()?.pop_if_empty().extend(segments);
        Some(url.into())
    }
}

/// Returns the operations, where capabilities are objects, and the names of the capabilities.
fn convert_capabilities(
    descriptor: &Map<String, Value>,
    addresses: &OperationAddresses<'_>,
) -> Result<(Option<Vec<Value>>, Vec<String>), String> {
    let entries = match get_member(descriptor, "capabilities") {
        Some(Value::Array(entries)) if entries.iter().any(Value::is_object) => {
            object_array(descriptor, "capabilities")?
        }
        Some(Value::Array(_)) => return Ok((None, capability_names(descriptor))),
        // Flags by name are not capabilities to filter by.
        _ => return Ok((None, Vec::new())),
    };
    let (mut operations, mut ids_by_operation) = (Vec::new(), BTreeMap::new());
    for (at, capability) in entries {
        let id = ["id", "@id", "name"].into_iter().find_map(|field| text_member(capability, field));
        let id =
            text_member(capability, "name").or(id).ok_or_else(|| format!("capabilities[{at}].name: is required"))?;
        let name = operation_name(id);
        if let Some(earlier) = ids_by_operation.insert(name.clone(), id) {
            let both = format!("{} and {}", quote_name(earlier), quote_name(id));
            return Err(format!("capabilities: {both} both become the operation {name} (names must differ more)"));
        }
        let mut operation = capability.clone();
        for (field, from) in [("inputs", ["inputSchema", "input"]), ("outputs", ["outputSchema", "output"])] {
            let schema = from.iter().find_map(|from| get_member(capability, from).filter(|value| is_schema(value)));
            if let Some(schema) = schema {
                operation.entry(field).or_insert_with(|| schema.clone());
            }
        }
        operation.extend(addresses.address_of(capability, id).map(|address| ("endpoint".to_owned(), address.into())));
        operation.insert("name".to_owned(), name.into());
        operations.push(Value::Object(operation));
    }
    let capabilities =
        operations.iter().filter_map(|operation| operation.get("name")?.as_str()).map(str::to_owned).collect();
    Ok((Some(operations), capabilities))
}

fn capability_names(descriptor: &Map<String, Value>) -> Vec<String> {
    string_array(descriptor, "capabilities").into_iter().map(str::to_owned).collect()
}

/// Returns whether this is a JSON Schema. A shorthand such as `{"city": "string"}` is not: it is kept and not enforced.
fn is_schema(value: &Value) -> bool {
    match value {
        Value::Bool(_) => true,
        Value::Object(members) => members.is_empty() || SCHEMA_KEYWORDS.iter().any(|word| members.contains_key(*word)),
        _ => false,
    }
}

/// Converts `{"schemes": […]}` as descriptors have it, or A2A's schemes; AIDIP's own form is kept.
fn convert_authentication(descriptor: &Map<String, Value>) -> Result<Option<Value>, String> {
    let authentication = match descriptor.get("authentication") {
        Some(Value::Object(members)) => members,
        None | Some(Value::Null) => return security_schemes::authentication_of_card(descriptor),
        // Rejected later, with the rest of the document.
        Some(_) => return Ok(None),
    };
    match authentication.get("schemes") {
        _ if authentication.contains_key("type") => Ok(None),
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            let converted = security_schemes::authentication_of_card(descriptor)?;
            Ok(Some(converted.unwrap_or_else(|| serde_json::json!({"type": "none"}))))
        }
        _ => Err("authentication.schemes: must be an array of strings".to_owned()),
    }
}
