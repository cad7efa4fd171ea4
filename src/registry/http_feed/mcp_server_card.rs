//! Converts the card of an MCP server into an AIDIP document of the protocol `mcp`. The gateway passes requests to the
//! server's own API; the document is served only where a rule lets them pass.

use super::{
    conversion_error::ConversionError,
    document_location::DocumentLocation,
    json_members::{get_member, object_array, quote_name, string_array, text_member},
    security_schemes::authentication_of_schemes,
    slug::slug,
};
use crate::agent::{MCP_PROTOCOL, PROTOCOL_MEMBER};
use serde_json::{Map, Value, json};

/// Member of the document with the card.
const CARD_MEMBER: &str = "mcp_server";
/// Members that only an agent's document has.
const AGENT_MEMBERS: &[&str] = &["endpoint", "endpoints", "skills", "supportedInterfaces", "@context", "openapi"];

/// Returns whether this is the card of an MCP server: a server card, or the `server.json` of a registry.
pub(super) fn is_mcp_server_card(members: &Map<String, Value>) -> bool {
    let has_schema = text_member(members, "$schema").is_some_and(|schema| schema.contains("modelcontextprotocol"));
    let is_server = get_member(members, "serverInfo").is_some_and(Value::is_object);
    let remotes = object_array(members, "remotes").unwrap_or_default();
    let has_remote = remotes.iter().any(|(_, remote)| text_member(remote, "type").is_some_and(is_mcp_transport));
    let has_packages = members.get("packages").is_some_and(Value::is_array) && !members.contains_key("url");
    !AGENT_MEMBERS.iter().any(|name| members.contains_key(*name))
        && (has_schema || is_server || has_remote || has_packages)
}

/// Converts the card that was read at `location`; its list calls it `listed_name`.
///
/// # Errors
/// The server cannot be reached over HTTP, or the card is malformed.
pub(super) fn convert_mcp_server(
    card: Map<String, Value>,
    listed_name: Option<&str>,
    location: DocumentLocation<'_>,
) -> Result<Value, ConversionError> {
    let info = get_member(&card, "serverInfo").and_then(Value::as_object);
    let of_info = |field| info.and_then(|info| text_member(info, field));
    let name = text_member(&card, "name").or_else(|| of_info("name")).ok_or("name: is required")?;
    let title = text_member(&card, "title").or_else(|| of_info("title")).unwrap_or(name);
    let remote = find_remote(&card)?;
    let endpoint = location.resolve(remote.url).map_err(|why| format!("remotes: {why}"))?;
    let mut document = Map::new();
    let mut put = |field: &str, value: Value| drop(document.insert(field.to_owned(), value));
    put("id", slug(listed_name.unwrap_or(name)).into());
    put("name", title.into());
    put("endpoint", String::from(endpoint).into());
    put(PROTOCOL_MEMBER, MCP_PROTOCOL.into());
    if let Some(description) = get_member(&card, "description") {
        put("description", description.clone());
    }
    // Beside `serverInfo`, the card's own version is that of its form.
    if let Some(version) = info.map_or_else(|| text_member(&card, "version"), |info| text_member(info, "version")) {
        put("version", version.into());
    }
    if let Some(authentication) = required_authentication(&card, remote.members)? {
        put("authentication", authentication);
    }
    put(
        "inputs",
        json!({
            "type": "object",
            "description": "One JSON-RPC message of the Model Context Protocol.",
            "properties": {"jsonrpc": {"const": "2.0"}, "method": {"type": "string"}},
            "required": ["jsonrpc", "method"],
        }),
    );
    put(CARD_MEMBER, Value::Object(card));
    Ok(Value::Object(document))
}

/// Where a server is reached over HTTP.
struct Remote<'a> {
    url: &'a str,
    members: &'a Map<String, Value>,
}

/// Returns the first remote with Streamable HTTP.
fn find_remote(card: &Map<String, Value>) -> Result<Remote<'_>, ConversionError> {
    let mut remotes: Vec<&Map<String, Value>> =
        object_array(card, "remotes")?.into_iter().map(|(_, remote)| remote).collect();
    let named =
        ["transport", "remote"].into_iter().filter_map(|name| get_member(card, name).and_then(Value::as_object));
    remotes.extend(named);
    for members in remotes.iter().copied() {
        let url = text_member(members, "url").or_else(|| text_member(members, "endpoint"));
        let is_streamable = text_member(members, "type").is_some_and(is_streamable_http);
        if let Some(url) = url.filter(|_| is_streamable) {
            if url.contains(['{', '}']) {
                let why = format!("is an MCP server whose URL {} has variables without values", quote_name(url));
                return Err(ConversionError::unsupported(why));
            }
            return Ok(Remote { url, members });
        }
    }
    let kinds: Vec<&str> = remotes.iter().filter_map(|remote| text_member(remote, "type")).take(10).collect();
    let kinds = match kinds.as_slice() {
        [] if card.contains_key("packages") => "it has packages that run on a machine".to_owned(),
        [] => "it names none".to_owned(),
        kinds => format!("it has {}", quote_name(&kinds.join(", "))),
    };
    Err(ConversionError::unsupported(format!("is an MCP server without a remote of type streamable-http ({kinds})")))
}

fn is_streamable_http(kind: &str) -> bool {
    matches!(kind.to_ascii_lowercase().replace('_', "-").as_str(), "streamable-http" | "streamablehttp" | "http")
}

fn is_mcp_transport(kind: &str) -> bool {
    is_streamable_http(kind) || kind.eq_ignore_ascii_case("sse")
}

/// Returns the credential that the server requires: by its schemes, or by a header field with a secret.
fn required_authentication(
    card: &Map<String, Value>,
    remote: &Map<String, Value>,
) -> Result<Option<Value>, ConversionError> {
    let declared = [remote, card].into_iter().find_map(|members| get_member(members, "authentication")?.as_object());
    if let Some(declared) = declared.filter(|declared| declared.get("required") == Some(&Value::Bool(true))) {
        let schemes = string_array(declared, "schemes");
        let authentication = authentication_of_schemes(&schemes)?;
        return match authentication {
            Some(authentication) => Ok(Some(authentication)),
            None => Err("authentication.schemes: are required, and there are none".into()),
        };
    }
    let is_set = |header: &Map<String, Value>, name: &str| get_member(header, name) == Some(&Value::Bool(true));
    for (_, header) in object_array(remote, "headers")? {
        if is_set(header, "isRequired") && is_set(header, "isSecret") {
            let is_token = text_member(header, "name").is_some_and(|name| name.eq_ignore_ascii_case("authorization"));
            return Ok(Some(json!({"type": if is_token { "oauth2_bearer" } else { "api_key" }})));
        }
    }
    Ok(None)
}
