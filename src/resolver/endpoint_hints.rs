//! Endpoint hints in descriptors (R53, R59): `agent://` descriptors and A2A cards of 0.3 and 1.0. Feeds and the
//! resolver share this code.

use super::json_member_access::{get_member, object_array, quote_name, text_member};
use crate::net::Url;
use serde_json::{Map, Value};

/// Returns whether the members are those of an A2A card rather than of another kind of document.
pub fn is_a2a_card(members: &Map<String, Value>) -> bool {
    let has_no_descriptor_members = !members.contains_key("endpoint") && !members.contains_key("@context");
    let has_capability_flags = !matches!(members.get("capabilities"), Some(Value::Array(_)));
    let has_interface = get_member(members, "supportedInterfaces").is_some() || text_member(members, "url").is_some();
    let has_card_members = get_member(members, "skills").is_some_and(Value::is_array)
        || get_member(members, "protocolVersion").is_some()
        || get_member(members, "supportedInterfaces").is_some();
    has_no_descriptor_members && has_capability_flags && has_interface && has_card_members
}

/// Returns the endpoint hint of a descriptor as written, the most explicit member first (R53).
pub fn endpoint_hint(descriptor: &Map<String, Value>) -> Option<&str> {
    let transport = get_member(descriptor, "transport").and_then(Value::as_object);
    let hints = [
        text_member(descriptor, "endpoint"),
        transport.and_then(|transport| text_member(transport, "endpoint")),
        transport.and_then(|transport| text_member(transport, "url")),
        text_member(descriptor, "url"),
    ];
    hints.into_iter().flatten().next()
}

/// Returns whether the hint is the address at which every operation is invoked, and not `url`, the agent's place.
pub fn has_invocation_endpoint(descriptor: &Map<String, Value>) -> bool {
    let transport = get_member(descriptor, "transport").and_then(Value::as_object);
    let in_transport = |name| transport.is_some_and(|transport| text_member(transport, name).is_some());
    text_member(descriptor, "endpoint").is_some() || in_transport("endpoint") || in_transport("url")
}

/// An interface of an A2A card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardInterface<'a> {
    /// The protocol, such as `JSONRPC`.
    pub binding: Option<&'a str>,
    /// The URL, which may be relative to that of the card.
    pub url: Option<&'a str>,
}

impl<'a> CardInterface<'a> {
    /// Returns the URL if the interface has this protocol.
    pub fn url_for(&self, protocol: &str) -> Option<&'a str> {
        self.url.filter(|_| self.binding.is_some_and(|binding| binding.eq_ignore_ascii_case(protocol)))
    }
}

/// Returns the interfaces of an A2A card, 0.3 or 1.0, in the card's order.
///
/// # Errors
/// The card's lists of interfaces are malformed.
pub fn card_interfaces(card: &Map<String, Value>) -> Result<Vec<CardInterface<'_>>, String> {
    let mut interfaces = Vec::new();
    for (_, interface) in object_array(card, "supportedInterfaces")? {
        let binding = text_member(interface, "protocolBinding");
        interfaces.push(CardInterface { binding, url: text_member(interface, "url") });
    }
    let preferred = text_member(card, "preferredTransport").or(Some("JSONRPC"));
    interfaces.extend(text_member(card, "url").map(|url| CardInterface { binding: preferred, url: Some(url) }));
    for (_, interface) in object_array(card, "additionalInterfaces")? {
        let binding = text_member(interface, "transport");
        interfaces.push(CardInterface { binding, url: text_member(interface, "url") });
    }
    Ok(interfaces)
}

/// Returns the protocols of interfaces, for a message.
pub fn binding_names(interfaces: &[CardInterface<'_>]) -> String {
    let bindings: Vec<&str> = interfaces.iter().filter_map(|interface| interface.binding).take(10).collect();
    quote_name(&bindings.join(", "))
}

/// Returns the URL of an A2A card's interface: JSON-RPC if offered, else HTTP+JSON. Among equals the card's order
/// decides.
///
/// # Errors
/// The card offers neither, or its URL is invalid.
pub fn card_interface_url(card: &Map<String, Value>, base: &Url) -> Result<String, String> {
    let interfaces = card_interfaces(card)?;
    let find = |protocol: &str| interfaces.iter().find_map(|interface| interface.url_for(protocol));
    let url = find("JSONRPC")
        .or_else(|| find("HTTP+JSON"))
        .ok_or_else(|| format!("it offers {} only (JSONRPC or HTTP+JSON is required)", binding_names(&interfaces)))?;
    base.join(url).map(String::from).map_err(|_| format!("the interface's URL {} is invalid", quote_name(url)))
}
