//! Joining of URLs: references on an origin, and the rest of a name appended to an endpoint.

use super::member_access::quote_name;
use crate::{agent::AgentEndpoint, net::Url};

/// Joins `reference` to `base`, if the result has the scheme, host and port of `base` (R67).
pub fn join_same_origin(base: &Url, reference: &str) -> Option<Url> {
    let plain = reference.len() <= 2_048 && reference.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let url = base.join(reference).ok().filter(|url| plain && url.origin() == base.origin())?;
    (url.username().is_empty() && url.password().is_none()).then_some(url)
}

/// Joins the place of a version to an agent's endpoint (R67). An endpoint that is a name is resolved at call time: only
/// absolute paths are valid there. Endpoints other than HTTP have no places.
pub fn version_url(endpoint: &AgentEndpoint, reference: &str) -> Option<Url> {
    let base = match endpoint {
        AgentEndpoint::Http(uri) => uri.to_string(),
        AgentEndpoint::Unix { path, .. } => format!("http://localhost{path}"),
        AgentEndpoint::AgentUri(_) if reference.starts_with('/') => "https://localhost/".to_owned(),
        _ => return None,
    };
    join_same_origin(&Url::parse(&base).ok()?, reference)
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
    let lost = || format!("no path can be appended to {}", quote_name(text));
    let (before, own) = text.split_once('?').map_or((text, None), |(before, own)| (before, Some(own)));
    if before.contains('#') || !before.contains("://") {
        return Err(lost());
    }
    let mut whole = before.to_owned();
    if !rest.is_empty() {
        if whole.ends_with('/') {
            whole.pop();
        }
        for segment in rest {
            whole.push('/');
            whole.push_str(segment);
        }
    }
    let queries: Vec<&str> = [own, query].into_iter().flatten().filter(|query| !query.is_empty()).collect();
    if !queries.is_empty() {
        whole.push('?');
        whole.push_str(&queries.join("&"));
    }
    Ok(whole)
}
