//! DIDs as authorities (R48, R63, R100): fetches `did:web` documents over https and finds the service that is the
//! agent. Signatures over descriptors are not verified; the resolver's response says so.

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

/// Maximum number of services considered in one document.
const MOST: usize = 64;

/// Where a `did:web` publishes its documents: the origin, and the path below it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) root: Url,
    pub(super) path: Vec<String>,
}

/// Returns the document root of `did:web:host[%3Aport][:path]*`; `None` for other methods and for invalid hosts.
pub(super) fn home(did: &str) -> Option<Home> {
    let mut parts = did.strip_prefix("did:web:")?.split(':');
    let host = segment(parts.next()?)?;
    // Parsed as the authority of a name, so that hosts have one syntax only.
    let name = AgentUri::read(&format!("agent://{host}")).ok()?;
    let root = Url::parse(&format!("https://{}/", name.authority().host()?)).ok()?;
    let path: Vec<String> = parts.map(str::to_owned).collect();
    let plain = |part: &String| !part.is_empty() && part != "." && part != ".." && !part.contains('%');
    path.iter().all(plain).then_some(Home { root, path })
}

/// Resolves the DID through the services of its document.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn did(
    documents: &Library,
    did: &str,
    request: &Asked,
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let Some(home) = home(did) else {
        trace.explain("did", did, Outcome::Unusable, Some("only did:web is supported".to_owned()));
        return Ok(None);
    };
    let path = match home.path.is_empty() {
        true => "/.well-known/did.json".to_owned(),
        false => format!("/{}/did.json", home.path.join("/")),
    };
    let Ok(url) = home.root.join(&path) else { return Ok(None) };
    let Some(document) = documents.read(&url, "did", trace).await else { return Ok(None) };
    let unusable = |trace: &mut Trail, why: String| {
        trace.explain("did", &url, Outcome::Unusable, Some(why));
        Ok(None)
    };
    // DID Core §3.2: a document describes its own subject only.
    if document.value.get("id").and_then(Value::as_str) != Some(did) {
        return unusable(trace, "id is not this DID".to_owned());
    }
    let Some((place, is_descriptor)) = service(&document) else {
        return unusable(trace, "has no service of an agent".to_owned());
    };
    let (place, base) = (place.to_owned(), document.url.clone());
    drop(document);
    if let Some(hint) = place.strip_prefix("agent://") {
        return match named(&format!("agent://{hint}"), request, 0) {
            Ok(name) => {
                trace.note("did", &url, Outcome::Found);
                Ok(Some(Led::Name(name)))
            }
            Err(why) => unusable(trace, why),
        };
    }
    let endpoint = match onto(&place, &base) {
        Ok(endpoint) => endpoint,
        Err(why) => return unusable(trace, why),
    };
    match Url::parse(&endpoint) {
        Ok(to) if is_descriptor => {
            trace.note("did", &url, Outcome::Found);
            descriptor(documents, &to, (request, 0), trace).await
        }
        _ => to(documents, &url, (request, &endpoint, "did"), trace).await,
    }
}

/// Resolves to the endpoint that the document at `from` names, extended by the rest of the requested name.
pub(super) async fn to(
    documents: &Library,
    from: &Url,
    (request, endpoint, kind): (&Asked, &str, &'static str),
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    if let Err(why) = reachable(documents, endpoint).await {
        trace.explain(kind, from, Outcome::Unreachable, Some(why));
        return Ok(None);
    }
    match request.behind(endpoint, 0) {
        Ok(endpoint) => {
            trace.note(kind, from, Outcome::Found);
            Ok(Some(Led::To(Box::new(Place { endpoint, ..Place::default() }))))
        }
        Err(why) => {
            trace.explain(kind, from, Outcome::Unusable, Some(why));
            Ok(None)
        }
    }
}

/// Returns the endpoint of the first service whose type or id contains "agent", and whether it is a descriptor.
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

/// Reads a `serviceEndpoint`: a string, the first of an array, or the member `uri` of an object (DID Core §5.4).
fn place(endpoint: &Value) -> Option<&str> {
    match endpoint {
        Value::String(text) => Some(text),
        Value::Array(items) => items.first().filter(|item| !item.is_array()).and_then(place),
        Value::Object(members) => text(members, "uri").or_else(|| text(members, "url")),
        _ => None,
    }
}
