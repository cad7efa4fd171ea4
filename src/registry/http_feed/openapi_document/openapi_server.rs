//! The servers of OpenAPI documents.

use crate::{
    net::Url,
    registry::http_feed::{
        document_location::DocumentLocation,
        json_members::{object_array, quote_name, text_member},
    },
};
use serde_json::{Map, Value};

/// Maximum length of the URL of a server in bytes.
const MAX_URL_LENGTH: usize = 2_048;

/// Returns the first server that a document, a path or an operation names, without a slash at its end; without any, the
/// root of the document's own server. `None` where a path or operation names no server.
///
/// # Errors
/// The URL of the server is unusable.
pub(super) fn server_url(members: &Map<String, Value>, location: DocumentLocation<'_>) -> Result<Option<Url>, String> {
    let servers = object_array(members, "servers")?;
    let is_document = members.contains_key("info");
    let url = match servers.first() {
        Some((_, server)) => {
            let template = text_member(server, "url").ok_or("servers[0].url: is required")?;
            expand_variables(template, server).map_err(|why| format!("servers[0].url: {why}"))?
        }
        None if is_document => "/".to_owned(),
        None => return Ok(None),
    };
    if url.len() > MAX_URL_LENGTH {
        return Err(format!("servers[0].url: has {} bytes (at most {MAX_URL_LENGTH})", url.len()));
    }
    let mut url = location.resolve(&url).map_err(|why| match servers.first() {
        Some(_) => format!("servers[0].url: {why}"),
        None => "servers: is missing (a document that was not read from a URL must name its server)".to_owned(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("servers[0].url: {} is not a URL over HTTP", quote_name(url.as_str())));
    }
    url.set_query(None);
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(Some(url))
}

/// Replaces the variables of a URL by their defaults.
fn expand_variables(template: &str, server: &Map<String, Value>) -> Result<String, String> {
    let variables = server.get("variables").and_then(Value::as_object);
    let (mut url, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or("has a brace without its other one")?;
        let variable = variables.and_then(|variables| variables.get(name)).and_then(Value::as_object);
        let default = variable.and_then(|variable| text_member(variable, "default"));
        let default = default.ok_or_else(|| format!("the variable {} has no default", quote_name(name)))?;
        url.extend([before, default]);
        if url.len() > MAX_URL_LENGTH {
            return Err(format!("has more than {MAX_URL_LENGTH} bytes"));
        }
        rest = after;
    }
    url.push_str(rest);
    Ok(url)
}

/// Returns the URL of an operation at `server`.
///
/// # Errors
/// The path has variables, or servers could read it differently.
pub(super) fn operation_url(server: &Url, path: &str) -> Result<Url, String> {
    if path.contains(['{', '}']) {
        return Err("its path has parameters, which a call has no place for".to_owned());
    }
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    let is_unsafe = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '?' | '#' | '\\');
    let is_ambiguous = path.contains("//") || path.split('/').any(is_dots) || path.to_ascii_lowercase().contains("%2e");
    if !path.starts_with('/') || is_ambiguous || path.contains(is_unsafe) {
        return Err("its path is not one that every server reads in the same way".to_owned());
    }
    let mut url = server.clone();
    url.set_path(&format!("{}{path}", server.path().trim_end_matches('/')));
    if url.as_str().len() > MAX_URL_LENGTH {
        return Err(format!("its URL has more than {MAX_URL_LENGTH} bytes"));
    }
    Ok(url)
}
