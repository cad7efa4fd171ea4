//! Endpoint hints in descriptors (R53, R59): `agent://` descriptors and A2A cards of 0.3 and 1.0. Feeds and the
//! resolver share this code.

use super::members::{get, objects, quoted, text};
use crate::net::Url;
use serde_json::{Map, Value};

/// Whether the members are those of an A2A card rather than of another kind of document.
pub fn is_card(members: &Map<String, Value>) -> bool {
    let plain = !members.contains_key("endpoint") && !members.contains_key("@context");
    let flags = !matches!(members.get("capabilities"), Some(Value::Array(_)));
    let interfaces = get(members, "supportedInterfaces").is_some() || text(members, "url").is_some();
    let known = get(members, "skills").is_some_and(Value::is_array)
        || get(members, "protocolVersion").is_some()
        || get(members, "supportedInterfaces").is_some();
    plain && flags && interfaces && known
}

/// Returns the endpoint hint of a descriptor as written, the most explicit member first (R53).
pub fn hint(descriptor: &Map<String, Value>) -> Option<&str> {
    let transport = get(descriptor, "transport").and_then(Value::as_object);
    let hints = [
        text(descriptor, "endpoint"),
        transport.and_then(|transport| text(transport, "endpoint")),
        transport.and_then(|transport| text(transport, "url")),
        text(descriptor, "url"),
    ];
    hints.into_iter().flatten().next()
}

/// Returns the URL of an A2A card's interface: JSON-RPC if offered, else HTTP+JSON. Among equals the card's order
/// decides.
///
/// # Errors
/// The card offers neither, or its URL is invalid.
pub fn interface(card: &Map<String, Value>, base: &Url) -> Result<String, String> {
    let mut offered = Vec::new();
    for (_, each) in objects(card, "supportedInterfaces")? {
        offered.push((text(each, "protocolBinding"), text(each, "url")));
    }
    let preferred = text(card, "preferredTransport").or(Some("JSONRPC"));
    offered.extend(text(card, "url").map(|url| (preferred, Some(url))));
    for (_, each) in objects(card, "additionalInterfaces")? {
        offered.push((text(each, "transport"), text(each, "url")));
    }
    let find = |wanted: &str| {
        let speaks = |binding: Option<&str>| binding.is_some_and(|binding| binding.eq_ignore_ascii_case(wanted));
        offered.iter().find_map(|(binding, url)| url.filter(|_| speaks(*binding)))
    };
    let url = find("JSONRPC").or_else(|| find("HTTP+JSON")).ok_or_else(|| {
        let bindings: Vec<&str> = offered.iter().filter_map(|(binding, _)| *binding).take(10).collect();
        format!("it offers {} only (JSONRPC or HTTP+JSON is required)", quoted(&bindings.join(", ")))
    })?;
    base.join(url).map(String::from).map_err(|_| format!("the interface's URL {} is invalid", quoted(url)))
}
