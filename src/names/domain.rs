//! What a domain publishes of its agents (R53, R57, R58, R60): the map of names, descriptors beside paths, and the
//! descriptor of its only agent.

use super::{
    led::{Asked, Led, led, named},
    library::{Document, Library},
    trail::{Outcome, Trail},
};
use crate::{fault::Fault, net::Url};
use serde_json::{Map, Value};

/// Descriptors that are looked for along one path, the longest first.
const DEEPEST: usize = 3;
/// Segments that a name in a map may have.
const LONGEST_NAME: usize = 8;

/// Where `/.well-known/agents.json` at `root` says that the agent is.
///
/// # Errors
/// What the caller has to read: a version that there is not.
pub(super) async fn map(library: &Library, root: &Url, asked: &Asked, trail: &mut Trail) -> Result<Option<Led>, Fault> {
    let Ok(url) = root.join("/.well-known/agents.json") else { return Ok(None) };
    let Some(document) = library.read(&url, "agents.json", trail).await else { return Ok(None) };
    let Some(agents) = document.value.get("agents").and_then(Value::as_object) else {
        trail.explain("agents.json", &url, Outcome::Unusable, Some("has no map 'agents'".to_owned()));
        return Ok(None);
    };
    let Some((value, at)) = entry(agents, asked) else {
        trail.explain("agents.json", &url, Outcome::Absent, Some("does not name it".to_owned()));
        return Ok(None);
    };
    let wanted = ["descriptor", "url", "href"];
    let link = value.as_str().or_else(|| wanted.into_iter().find_map(|name| value.get(name)?.as_str()));
    let link = link.filter(|link| link.len() <= 2_048);
    let link = link.map(|link| (link.to_owned(), document.url.join(link).ok()));
    // What was read may be large: it does not stay while others are asked.
    drop(document);
    match link {
        Some((link, _)) if link.starts_with("agent://") && !link.ends_with(".json") => match named(&link, asked, at) {
            Ok(name) => {
                trail.note("agents.json", &url, Outcome::Found);
                Ok(Some(Led::Name(name)))
            }
            Err(why) => {
                trail.explain("agents.json", &url, Outcome::Unusable, Some(why));
                Ok(None)
            }
        },
        Some((link, _)) if link.starts_with("agent://") => {
            let plain = link.replacen("agent://", "https://", 1);
            linked(library, (&url, Url::parse(&plain).ok(), at), asked, trail).await
        }
        Some((_, joined)) => linked(library, (&url, joined, at), asked, trail).await,
        None => {
            trail.explain("agents.json", &url, Outcome::Unusable, Some("names it by no URL".to_owned()));
            Ok(None)
        }
    }
}

async fn linked(
    library: &Library,
    (from, to, at): (&Url, Option<Url>, usize),
    asked: &Asked,
    trail: &mut Trail,
) -> Result<Option<Led>, Fault> {
    match to {
        Some(to) => {
            trail.note("agents.json", from, Outcome::Found);
            descriptor(library, &to, (asked, at), trail).await
        }
        None => {
            trail.explain("agents.json", from, Outcome::Unusable, Some("names it by no URL".to_owned()));
            Ok(None)
        }
    }
}

/// The entry with the longest name that the path begins with; where nothing but the domain is named, its only one.
fn entry<'a>(agents: &'a Map<String, Value>, asked: &Asked) -> Option<(&'a Value, usize)> {
    if asked.segments.is_empty() {
        let mut each = agents.values();
        return each.next().filter(|_| agents.len() == 1).map(|only| (only, 0));
    }
    let decoded: Option<Vec<String>> =
        asked.segments.iter().take(LONGEST_NAME).map(|segment| crate::agent::segment(segment)).collect();
    let decoded = decoded?;
    (1..=decoded.len()).rev().find_map(|at| Some((agents.get(&decoded.get(..at)?.join("/"))?, at)))
}

/// Where descriptors beside the path, the innermost first, or the domain's only one say that the agent is.
///
/// # Errors
/// What the caller has to read: a version that there is not.
pub(super) async fn beside(
    library: &Library,
    root: &Url,
    asked: &Asked,
    trail: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let whole = asked.segments.len();
    for at in (1..=whole).rev().take(DEEPEST) {
        let path = asked.segments.iter().take(at).map(String::as_str).collect::<Vec<_>>().join("/");
        let Ok(url) = root.join(&format!("/{path}/agent.json")) else { continue };
        if let Some(led) = descriptor(library, &url, (asked, at), trail).await? {
            return Ok(Some(led));
        }
    }
    for place in ["/.well-known/agent.json", "/.well-known/agent-card.json"] {
        let Ok(url) = root.join(place) else { continue };
        if let Some(led) = descriptor(library, &url, (asked, 0), trail).await? {
            return Ok(Some(led));
        }
    }
    Ok(None)
}

/// Where the descriptor at `url` says that the agent is called, if there is one that says it.
///
/// # Errors
/// What the caller has to read: a version that there is not.
pub(super) async fn descriptor(
    library: &Library,
    url: &Url,
    (asked, at): (&Asked, usize),
    trail: &mut Trail,
) -> Result<Option<Led>, Fault> {
    let Some(document) = library.read(url, "agent.json", trail).await else { return Ok(None) };
    let unusable = |trail: &mut Trail, why: String| {
        trail.explain("agent.json", url, Outcome::Unusable, Some(why));
        Ok(None)
    };
    let (led, signed) = (led(&document, asked, at)?, signed(&document));
    drop(document);
    match led {
        Err(why) => unusable(trail, why),
        // A descriptor may well name itself, which leads no further.
        Ok(Led::Name(name)) if name.bare() == asked.uri.bare() => unusable(trail, "names itself".to_owned()),
        Ok(Led::To(mut place)) => match reachable(library, &place.endpoint).await {
            Ok(()) => {
                place.signed = signed;
                trail.note("agent.json", url, Outcome::Found);
                Ok(Some(Led::To(place)))
            }
            Err(why) => {
                trail.explain("agent.json", url, Outcome::Unreachable, Some(why));
                Ok(None)
            }
        },
        Ok(led) => {
            trail.note("agent.json", url, Outcome::Found);
            Ok(Some(led))
        }
    }
}

fn signed(document: &Document) -> bool {
    ["signatures", "proof", "signature"].iter().any(|name| document.value.get(name).is_some())
}

/// What a document leads to is vetted like what is fetched: a name must not be a way to this machine, or to networks
/// that only this machine sees.
pub(super) async fn reachable(library: &Library, endpoint: &str) -> Result<(), String> {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or_default();
    let plain = match scheme {
        "https" | "http" => endpoint.to_owned(),
        "wss" => format!("https://{rest}"),
        "ws" => format!("http://{rest}"),
        // A broker's default port is another, which only matters for the gateway's own listeners.
        "mqtts" => format!("https://{rest}"),
        _ => return Ok(()),
    };
    let url = Url::parse(&plain).map_err(|_| "is no URL".to_owned())?;
    library.client().may_visit(&url).await.map_err(|why| why.to_string())
}
