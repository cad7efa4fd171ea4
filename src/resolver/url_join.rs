//! Joining of URLs: references on an origin, and the rest of a name appended to an endpoint.

use super::json_member_access::quote_name;
use crate::{
    agent::{AddressSyntax, AgentEndpoint},
    net::Url,
};
use std::borrow::Cow;

/// Joins `reference` to `base`, if the result has the scheme, host and port of `base` (R67).
pub fn join_same_origin(base: &Url, reference: &str) -> Option<Url> {
    let is_valid = reference.len() <= 2_048 && reference.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let url = base.join(reference).ok().filter(|url| is_valid && url.origin() == base.origin())?;
    (url.username().is_empty() && url.password().is_none()).then_some(url)
}

/// Joins the location of a version to an agent's endpoint (R67). An endpoint that is a name is resolved at call time:
/// only absolute paths are valid there. Endpoints other than HTTP have no locations of versions.
pub fn version_url(endpoint: &AgentEndpoint, reference: &str) -> Option<Url> {
    let base = match endpoint {
        AgentEndpoint::Url(_) => endpoint.http_url()?.to_string(),
        AgentEndpoint::Unix { path, .. } => format!("http://localhost{path}"),
        AgentEndpoint::AgentUri(_) if reference.starts_with('/') => "https://localhost/".to_owned(),
        AgentEndpoint::AgentUri(_) | AgentEndpoint::Matrix(_) | AgentEndpoint::Local(_) => return None,
    };
    join_same_origin(&Url::parse(&base).ok()?, reference)
}

/// Joins the address of an operation to an agent's endpoint, as [`version_url`] does; a WebSocket endpoint has
/// operations at its own server too. `agent://` without a transport is HTTPS (R54).
pub fn operation_url(endpoint: &AgentEndpoint, reference: &str) -> Option<Url> {
    let reference = match reference.strip_prefix("agent://") {
        Some(rest) => Cow::Owned(format!("https://{rest}")),
        None => Cow::Borrowed(reference.strip_prefix("agent+").unwrap_or(reference)),
    };
    let AgentEndpoint::Url(url) = endpoint else { return version_url(endpoint, &reference) };
    if url.scheme().syntax() != AddressSyntax::WebSocketUrl {
        return version_url(endpoint, &reference);
    }
    join_same_origin(&Url::parse(&url.uri().to_string()).ok()?, &reference)
}

/// Appends these path segments and this query to `text`.
///
/// # Errors
/// The address has no path that can be extended.
pub(super) fn append_path_and_query(text: &str, rest: &[&str], query: Option<&str>) -> Result<String, String> {
    if rest.is_empty() && query.is_none() {
        return Ok(text.to_owned());
    }
    // Only URLs have queries; other addresses have a syntax of their own.
    let not_extensible = || format!("no path can be appended to {}", quote_name(text));
    let (base, own_query) = text.split_once('?').map_or((text, None), |(base, own_query)| (base, Some(own_query)));
    if base.contains('#') || !base.contains("://") {
        return Err(not_extensible());
    }
    let mut joined = base.to_owned();
    if !rest.is_empty() {
        if joined.ends_with('/') {
            joined.pop();
        }
        for segment in rest {
            joined.push('/');
            joined.push_str(segment);
        }
    }
    let queries: Vec<&str> = [own_query, query].into_iter().flatten().filter(|query| !query.is_empty()).collect();
    if !queries.is_empty() {
        joined.push('?');
        joined.push_str(&queries.join("&"));
    }
    Ok(joined)
}
