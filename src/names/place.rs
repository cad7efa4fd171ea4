//! Addresses made of parts: what stands behind a name is put behind where the name leads.

use super::members::quoted;
use crate::{agent::Endpoint, net::Url};

/// Where `reference` leads from `base`, if it stays on the same scheme, host and port (R67).
pub fn on_origin(base: &Url, reference: &str) -> Option<Url> {
    let plain = reference.len() <= 2_048 && reference.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let url = base.join(reference).ok().filter(|url| plain && url.origin() == base.origin())?;
    (url.username().is_empty() && url.password().is_none()).then_some(url)
}

/// Where a version's place leads from an agent's endpoint (R67). Where a name leads is not known before it is called:
/// only whole paths count there; and what is not HTTP has no places.
pub fn version_place(endpoint: &Endpoint, reference: &str) -> Option<Url> {
    let base = match endpoint {
        Endpoint::Http(uri) => uri.to_string(),
        Endpoint::Unix { path, .. } => format!("http://localhost{path}"),
        Endpoint::Name(_) if reference.starts_with('/') => "https://localhost/".to_owned(),
        _ => return None,
    };
    on_origin(&Url::parse(&base).ok()?, reference)
}

/// `url` with these segments and this query behind it.
///
/// # Errors
/// It has no path that could go on.
pub(super) fn extended(text: &str, rest: &[&str], query: Option<&str>) -> Result<String, String> {
    if rest.is_empty() && query.is_none() {
        return Ok(text.to_owned());
    }
    // Only URLs have queries; the transports of other addresses say what theirs mean.
    let lost = || format!("{} cannot be followed by a path", quoted(text));
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
