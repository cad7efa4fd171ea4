//! Converts a document of Agent Framework's discovery (R142–R145) to an AIDIP document. The first POST endpoint over
//! HTTP becomes the endpoint, resolved against the document's URL; endpoints that are not HTTP are skipped.

use super::json_members::{get_member, quote_name, text_member};
use crate::net::Url;
use serde_json::{Map, Value};

/// Converts the document that was read from `base`.
///
/// # Errors
/// The document has no endpoint that the gateway could call.
pub(super) fn convert_framework_document(mut members: Map<String, Value>, base: &Url) -> Result<Value, String> {
    let endpoint = post_endpoint(&members, base)?;
    let owner = get_member(&members, "owner").and_then(Value::as_object);
    let publisher = owner.and_then(|owner| text_member(owner, "name")).map(str::to_owned);
    let summary = text_member(&members, "summary").map(str::to_owned);
    members.insert("endpoint".to_owned(), endpoint.into());
    for (field, value) in [("publisher", publisher), ("description", summary)] {
        if let Some(value) = value {
            members.entry(field).or_insert_with(|| value.into());
        }
    }
    // Capabilities are flags by name: those that are set become capabilities to filter by, and all flags are kept.
    if let Some(Value::Object(flags)) = members.get("capabilities") {
        let set_flags: Vec<Value> =
            flags.iter().filter(|(_, flag)| is_set(flag)).map(|(name, _)| name.as_str().into()).collect();
        let flags = Value::Object(flags.clone());
        members.insert("capability_flags".to_owned(), flags);
        members.insert("capabilities".to_owned(), set_flags.into());
    }
    Ok(Value::Object(members))
}

fn is_set(flag: &Value) -> bool {
    !matches!(flag, Value::Null | Value::Bool(false))
}

fn post_endpoint(members: &Map<String, Value>, base: &Url) -> Result<String, String> {
    let endpoints = match members.get("endpoints") {
        Some(Value::Array(endpoints)) => endpoints,
        _ => return Err("endpoints: must be an array".to_owned()),
    };
    let path = endpoints.iter().filter_map(Value::as_object).find_map(|endpoint| {
        let method = text_member(endpoint, "method").or_else(|| text_member(endpoint, "httpMethod"));
        let over_http = text_member(endpoint, "transport").is_none_or(|kind| kind.eq_ignore_ascii_case("http"));
        let is_post = method.is_some_and(|method| method.eq_ignore_ascii_case("POST"));
        // A path template has no fixed URL.
        text_member(endpoint, "path").filter(|path| over_http && is_post && !path.contains('{'))
    });
    let path = path.ok_or("endpoints: must have one with method POST over HTTP and a path without variables")?;
    // `/v1/message:send` is a path; without its slash it would parse as a scheme.
    let absolute_path =
        if path.starts_with('/') || path.contains("://") { path.to_owned() } else { format!("/{path}") };
    base.join(&absolute_path).map(String::from).map_err(|_| format!("endpoints: {} is not a path", quote_name(path)))
}
