//! DIDs as authorities (R48, R63, R100): `did:web` documents over https, and the service in them that is the agent.
//! Signatures over descriptors are not verified, and the answer says so where there are any.

use super::{
    domain::{descriptor, reachable},
    led::{Asked, Led, Place, named, onto},
    library::{Document, Library},
    members::text,
    trail::{Outcome, Trail},
};
use crate::{
    agent::{AgentUri, segment},
    fault::Fault,
    net::Url,
};
use serde_json::{Map, Value};

/// Services of one document that are looked at.
const MOST: usize = 64;

/// Where a `did:web` has its documents: its origin, and the path below which they are.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) root: Url,
    pub(super) path: Vec<String>,
}

/// The home of `did:web:host[%3Aport][:path]*`; `None` for other methods, and for hosts that are none.
pub(super) fn home(did: &str) -> Option<Home> {
    let mut parts = did.strip_prefix("did:web:")?.split(':');
    let host = segment(parts.next()?)?;
    // Read as a name's authority, so that no second way of writing hosts comes in here.
    let name = AgentUri::read(&format!("agent://{host}")).ok()?;
    let root = Url::parse(&format!("https://{}/", name.authority().host()?)).ok()?;
    let path: Vec<String> = parts.map(str::to_owned).collect();
    let plain = |part: &String| !part.is_empty() && part != "." && part != ".." && !part.contains('%');
    path.iter().all(plain).then_some(Home { root, path })
}

/// Where the document of the DID says that the agent is.
///
/// # Errors
/// What the caller has to read: a version that there is not.
pub(super) async fn did(library: &Library, did: &str, asked: &Asked, trail: &mut Trail) -> Result<Option<Led>, Fault> {
    let Some(home) = home(did) else {
        trail.explain("did", did, Outcome::Unusable, Some("only did:web is resolved".to_owned()));
        return Ok(None);
    };
    let path = match home.path.is_empty() {
        true => "/.well-known/did.json".to_owned(),
        false => format!("/{}/did.json", home.path.join("/")),
    };
    let Ok(url) = home.root.join(&path) else { return Ok(None) };
    let Some(document) = library.read(&url, "did", trail).await else { return Ok(None) };
    let unusable = |trail: &mut Trail, why: String| {
        trail.explain("did", &url, Outcome::Unusable, Some(why));
        Ok(None)
    };
    // DID Core §3.2: a document speaks for its own subject only.
    if document.value.get("id").and_then(Value::as_str) != Some(did) {
        return unusable(trail, "is not about this DID".to_owned());
    }
    let Some((place, is_descriptor)) = service(&document) else {
        return unusable(trail, "has no service that is an agent".to_owned());
    };
    let (place, base) = (place.to_owned(), document.url.clone());
    drop(document);
    if let Some(hint) = place.strip_prefix("agent://") {
        return match named(&format!("agent://{hint}"), asked, 0) {
            Ok(name) => {
                trail.note("did", &url, Outcome::Found);
                Ok(Some(Led::Name(name)))
            }
            Err(why) => unusable(trail, why),
        };
    }
    let endpoint = match onto(&place, &base) {
        Ok(endpoint) => endpoint,
        Err(why) => return unusable(trail, why),
    };
    match Url::parse(&endpoint) {
        Ok(to) if is_descriptor => {
            trail.note("did", &url, Outcome::Found);
            descriptor(library, &to, (asked, 0), trail).await
        }
        _ => to(library, &url, (asked, &endpoint, "did"), trail).await,
    }
}

/// The endpoint that a document at `from` names, with what is left of the name.
pub(super) async fn to(
    library: &Library,
    from: &Url,
    (asked, endpoint, kind): (&Asked, &str, &'static str),
    trail: &mut Trail,
) -> Result<Option<Led>, Fault> {
    if let Err(why) = reachable(library, endpoint).await {
        trail.explain(kind, from, Outcome::Unreachable, Some(why));
        return Ok(None);
    }
    match asked.behind(endpoint, 0) {
        Ok(endpoint) => {
            trail.note(kind, from, Outcome::Found);
            Ok(Some(Led::To(Box::new(Place { endpoint, ..Place::default() }))))
        }
        Err(why) => {
            trail.explain(kind, from, Outcome::Unusable, Some(why));
            Ok(None)
        }
    }
}

/// The first service whose type or id speaks of an agent, and whether it is a descriptor rather than the agent itself.
fn service(document: &Document) -> Option<(&str, bool)> {
    let services = document.value.get("service")?.as_array()?.iter().take(MOST).filter_map(Value::as_object);
    services.filter(|service| speaks(service, "agent")).find_map(|service| {
        let place = place(service.get("serviceEndpoint")?)?;
        let path = place.split(['?', '#']).next().unwrap_or_default();
        let is_descriptor = path.ends_with(".json") || speaks(service, "descriptor") || speaks(service, "card");
        Some((place, is_descriptor))
    })
}

fn speaks(service: &Map<String, Value>, word: &str) -> bool {
    let types = match service.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(one)) => vec![one.as_str()],
        _ => Vec::new(),
    };
    let id = text(service, "id").and_then(|id| id.rsplit_once('#')).map(|(_, id)| id);
    types.into_iter().chain(id).any(|text| text.to_ascii_lowercase().contains(word))
}

/// A text, the first of a list, or the member `uri` of an object (DID Core §5.4).
fn place(endpoint: &Value) -> Option<&str> {
    match endpoint {
        Value::String(text) => Some(text),
        Value::Array(items) => items.first().filter(|item| !item.is_array()).and_then(place),
        Value::Object(members) => text(members, "uri").or_else(|| text(members, "url")),
        _ => None,
    }
}
