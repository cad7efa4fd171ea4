//! WebFinger (RFC 7033, R63): resolves a name through the links that its host publishes for it.

use super::{
    did::to,
    domain::descriptor,
    led::{Asked, Led, named, onto},
    library::Library,
    members::text,
    trail::{Outcome, Trail},
};
use crate::{fault::Fault, net::Url};
use serde_json::{Map, Value};

/// Maximum number of links considered in one response.
const MOST: usize = 64;

/// Resolves the name through its host's WebFinger.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn finger(
    documents: &Library,
    root: &Url,
    request: &Asked,
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let Ok(mut url) = root.join("/.well-known/webfinger") else { return Ok(None) };
    url.query_pairs_mut().append_pair("resource", &request.uri.bare().to_string());
    let Some(document) = documents.read(&url, "webfinger", trace).await else { return Ok(None) };
    let unusable = |trace: &mut Trail, why: String| {
        trace.explain("webfinger", &url, Outcome::Unusable, Some(why));
        Ok(None)
    };
    let links = document.value.get("links").and_then(Value::as_array).into_iter().flatten();
    let links: Vec<&Map<String, Value>> = links.take(MOST).filter_map(Value::as_object).collect();
    let Some(link) = links.iter().find(|link| is_agent(link)).or_else(|| links.iter().find(|link| is_self(link)))
    else {
        return unusable(trace, "has no link to an agent".to_owned());
    };
    let (href, described) = (text(link, "href").unwrap_or_default().to_owned(), is_described(link));
    let base = document.url.clone();
    drop(document);
    // WebFinger describes the whole name: no rest of the name is appended to the target.
    let whole = request.segments.len();
    if href.starts_with("agent://") {
        return match named(&href, request, whole) {
            Ok(name) if name.bare() != request.uri.bare() => {
                trace.note("webfinger", &url, Outcome::Found);
                Ok(Some(Led::Name(name)))
            }
            Ok(_) => unusable(trace, "names itself".to_owned()),
            Err(why) => unusable(trace, why),
        };
    }
    let endpoint = match onto(&href, &base) {
        Ok(endpoint) if !href.is_empty() => endpoint,
        Ok(_) => return unusable(trace, "link has no href".to_owned()),
        Err(why) => return unusable(trace, why),
    };
    match Url::parse(&endpoint) {
        Ok(at) if described || at.path().ends_with(".json") => {
            trace.note("webfinger", &url, Outcome::Found);
            descriptor(documents, &at, (request, whole), trace).await
        }
        _ => {
            let request = Asked { segments: Vec::new(), ..request.clone() };
            to(documents, &url, (&request, &endpoint, "webfinger"), trace).await
        }
    }
}

fn is_agent(link: &Map<String, Value>) -> bool {
    text(link, "rel").is_some_and(|rel| rel.to_ascii_lowercase().contains("agent"))
}

fn is_self(link: &Map<String, Value>) -> bool {
    text(link, "rel") == Some("self") && text(link, "type").is_some_and(|media| media.contains("json"))
}

/// Whether a link targets a descriptor rather than the agent itself.
fn is_described(link: &Map<String, Value>) -> bool {
    let media = text(link, "type").unwrap_or_default();
    let rel = text(link, "rel").unwrap_or_default().to_ascii_lowercase();
    media.contains("json") || rel.contains("descriptor") || rel.contains("card")
}
