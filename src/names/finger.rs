//! WebFinger (RFC 7033, R63): what a host says of the name itself.

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

/// Links of one answer that are looked at.
const MOST: usize = 64;

/// Where the host's WebFinger says that the agent is.
///
/// # Errors
/// What the caller has to read: a version that there is not.
pub(super) async fn finger(
    library: &Library,
    root: &Url,
    asked: &Asked,
    trail: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let Ok(mut url) = root.join("/.well-known/webfinger") else { return Ok(None) };
    url.query_pairs_mut().append_pair("resource", &asked.uri.bare().to_string());
    let Some(document) = library.read(&url, "webfinger", trail).await else { return Ok(None) };
    let unusable = |trail: &mut Trail, why: String| {
        trail.explain("webfinger", &url, Outcome::Unusable, Some(why));
        Ok(None)
    };
    let links = document.value.get("links").and_then(Value::as_array).into_iter().flatten();
    let links: Vec<&Map<String, Value>> = links.take(MOST).filter_map(Value::as_object).collect();
    let Some(link) = links.iter().find(|link| is_agent(link)).or_else(|| links.iter().find(|link| is_self(link)))
    else {
        return unusable(trail, "has no link to an agent".to_owned());
    };
    let (href, described) = (text(link, "href").unwrap_or_default().to_owned(), is_described(link));
    let base = document.url.clone();
    drop(document);
    // WebFinger is about the whole name: what it leads to has no rest of it behind.
    let whole = asked.segments.len();
    if href.starts_with("agent://") {
        return match named(&href, asked, whole) {
            Ok(name) if name.bare() != asked.uri.bare() => {
                trail.note("webfinger", &url, Outcome::Found);
                Ok(Some(Led::Name(name)))
            }
            Ok(_) => unusable(trail, "names itself".to_owned()),
            Err(why) => unusable(trail, why),
        };
    }
    let endpoint = match onto(&href, &base) {
        Ok(endpoint) if !href.is_empty() => endpoint,
        Ok(_) => return unusable(trail, "has a link without an address".to_owned()),
        Err(why) => return unusable(trail, why),
    };
    match Url::parse(&endpoint) {
        Ok(at) if described || at.path().ends_with(".json") => {
            trail.note("webfinger", &url, Outcome::Found);
            descriptor(library, &at, (asked, whole), trail).await
        }
        _ => {
            let asked = Asked { segments: Vec::new(), ..asked.clone() };
            to(library, &url, (&asked, &endpoint, "webfinger"), trail).await
        }
    }
}

fn is_agent(link: &Map<String, Value>) -> bool {
    text(link, "rel").is_some_and(|rel| rel.to_ascii_lowercase().contains("agent"))
}

fn is_self(link: &Map<String, Value>) -> bool {
    text(link, "rel") == Some("self") && text(link, "type").is_some_and(|media| media.contains("json"))
}

/// Whether a link says that it leads to a descriptor rather than to the agent itself.
fn is_described(link: &Map<String, Value>) -> bool {
    let media = text(link, "type").unwrap_or_default();
    let rel = text(link, "rel").unwrap_or_default().to_ascii_lowercase();
    media.contains("json") || rel.contains("descriptor") || rel.contains("card")
}
