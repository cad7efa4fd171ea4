//! Documents that a domain publishes about its agents (R53, R57, R58, R60): `agents.json`, descriptors along the path
//! of a name, and the descriptor of the domain's only agent.

use super::{
    led::{Asked, Led, led, named},
    library::{Document, Library},
    trail::{Outcome, Trail},
};
use crate::{fault::Fault, net::Url};
use serde_json::{Map, Value};

/// Maximum number of descriptors fetched along one path, the longest path first.
const DEEPEST: usize = 3;
/// Maximum number of path segments in a key of `agents.json`.
const LONGEST_NAME: usize = 8;

/// Resolves the name through `/.well-known/agents.json` at `root`.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn map(
    documents: &Library,
    root: &Url,
    request: &Asked,
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let Ok(url) = root.join("/.well-known/agents.json") else { return Ok(None) };
    let Some(document) = documents.read(&url, "agents.json", trace).await else { return Ok(None) };
    let Some(agents) = document.value.get("agents").and_then(Value::as_object) else {
        trace.explain("agents.json", &url, Outcome::Unusable, Some("has no object 'agents'".to_owned()));
        return Ok(None);
    };
    let Some((value, at)) = entry(agents, request) else {
        trace.explain("agents.json", &url, Outcome::Absent, Some("has no entry for the name".to_owned()));
        return Ok(None);
    };
    let wanted = ["descriptor", "url", "href"];
    let link = value.as_str().or_else(|| wanted.into_iter().find_map(|name| value.get(name)?.as_str()));
    let link = link.filter(|link| link.len() <= 2_048);
    let link = link.map(|link| (link.to_owned(), document.url.join(link).ok()));
    // The document may be large; drop it before the next fetch.
    drop(document);
    match link {
        Some((link, _)) if link.starts_with("agent://") && !link.ends_with(".json") => {
            match named(&link, request, at) {
                Ok(name) => {
                    trace.note("agents.json", &url, Outcome::Found);
                    Ok(Some(Led::Name(name)))
                }
                Err(why) => {
                    trace.explain("agents.json", &url, Outcome::Unusable, Some(why));
                    Ok(None)
                }
            }
        }
        Some((link, _)) if link.starts_with("agent://") => {
            let plain = link.replacen("agent://", "https://", 1);
            linked(documents, (&url, Url::parse(&plain).ok(), at), request, trace).await
        }
        Some((_, joined)) => linked(documents, (&url, joined, at), request, trace).await,
        None => {
            trace.explain("agents.json", &url, Outcome::Unusable, Some("entry has no valid URL".to_owned()));
            Ok(None)
        }
    }
}

async fn linked(
    documents: &Library,
    (from, to, at): (&Url, Option<Url>, usize),
    request: &Asked,
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    match to {
        Some(to) => {
            trace.note("agents.json", from, Outcome::Found);
            descriptor(documents, &to, (request, at), trace).await
        }
        None => {
            trace.explain("agents.json", from, Outcome::Unusable, Some("entry has no valid URL".to_owned()));
            Ok(None)
        }
    }
}

/// Returns the entry with the longest key that the path starts with; for a bare domain, the only entry of the map.
fn entry<'a>(agents: &'a Map<String, Value>, request: &Asked) -> Option<(&'a Value, usize)> {
    if request.segments.is_empty() {
        let mut each = agents.values();
        return each.next().filter(|_| agents.len() == 1).map(|only| (only, 0));
    }
    let decoded: Option<Vec<String>> =
        request.segments.iter().take(LONGEST_NAME).map(|segment| crate::agent::segment(segment)).collect();
    let decoded = decoded?;
    (1..=decoded.len()).rev().find_map(|at| Some((agents.get(&decoded.get(..at)?.join("/"))?, at)))
}

/// Resolves the name through descriptors along its path, the innermost first, then the domain's own descriptor.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn beside(
    documents: &Library,
    root: &Url,
    request: &Asked,
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let whole = request.segments.len();
    for at in (1..=whole).rev().take(DEEPEST) {
        let path = request.segments.iter().take(at).map(String::as_str).collect::<Vec<_>>().join("/");
        let Ok(url) = root.join(&format!("/{path}/agent.json")) else { continue };
        if let Some(step) = descriptor(documents, &url, (request, at), trace).await? {
            return Ok(Some(step));
        }
    }
    for place in ["/.well-known/agent.json", "/.well-known/agent-card.json"] {
        let Ok(url) = root.join(place) else { continue };
        if let Some(step) = descriptor(documents, &url, (request, 0), trace).await? {
            return Ok(Some(step));
        }
    }
    Ok(None)
}

/// Resolves the name through the descriptor at `url`, if there is a usable one.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn descriptor(
    documents: &Library,
    url: &Url,
    (request, at): (&Asked, usize),
    trace: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let Some(document) = documents.read(url, "agent.json", trace).await else { return Ok(None) };
    let unusable = |trace: &mut Trail, why: String| {
        trace.explain("agent.json", url, Outcome::Unusable, Some(why));
        Ok(None)
    };
    let (step, signed) = (led(&document, request, at)?, signed(&document));
    drop(document);
    match step {
        Err(why) => unusable(trace, why),
        // A descriptor may name itself, which does not resolve anything.
        Ok(Led::Name(name)) if name.bare() == request.uri.bare() => unusable(trace, "names itself".to_owned()),
        Ok(Led::To(mut place)) => match reachable(documents, &place.endpoint).await {
            Ok(()) => {
                place.signed = signed;
                trace.note("agent.json", url, Outcome::Found);
                Ok(Some(Led::To(place)))
            }
            Err(why) => {
                trace.explain("agent.json", url, Outcome::Unreachable, Some(why));
                Ok(None)
            }
        },
        Ok(step) => {
            trace.note("agent.json", url, Outcome::Found);
            Ok(Some(step))
        }
    }
}

fn signed(document: &Document) -> bool {
    ["signatures", "proof", "signature"].iter().any(|name| document.value.get(name).is_some())
}

/// Checks an endpoint from a document against the address policy of fetches: a name must not give access to this
/// machine, or to networks that only this machine reaches.
pub(super) async fn reachable(documents: &Library, endpoint: &str) -> Result<(), String> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or_default();
    let plain = match scheme {
        "https" | "http" => endpoint.to_owned(),
        "wss" => format!("https://{rest}"),
        "ws" => format!("http://{rest}"),
        // The default port of MQTT differs, which matters only for the gateway's own listeners.
        "mqtts" => format!("https://{rest}"),
        _ => return Ok(()),
    };
    let url = Url::parse(&plain).map_err(|_| "is not a URL".to_owned())?;
    documents.client().may_visit(&url).await.map_err(|why| why.to_string())
}
