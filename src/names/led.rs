//! From a descriptor to where its agent is called (R53, R57, R67): its hints, the version that is asked for, and what
//! of the name is left over. What a document says leads to places on the network only, never to this machine's own.

use super::{
    hints,
    library::Document,
    members::{get, text},
    place::{extended, on_origin},
};
use crate::{
    agent::{AgentUri, Unmet, Versions},
    fault::{Code, Fault},
    net::Url,
    unit::json::cut,
};
use serde_json::{Map, Value};

/// What is asked for besides the name itself.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) uri: AgentUri,
    /// The path's segments, without the version that one of them may name.
    pub(super) segments: Vec<String>,
    /// The version, as the caller wrote it.
    pub(super) version: Option<String>,
    /// Whether the version was asked for beside the name: then it must be known.
    pub(super) insists: bool,
}

/// Where a name leads.
#[derive(Debug)]
pub(super) enum Led {
    To(Box<Place>),
    Name(AgentUri),
}

/// Where an agent is called.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) endpoint: String,
    pub(super) descriptor: Option<Url>,
    pub(super) version: Option<String>,
    pub(super) versions: Vec<String>,
    /// What of the path names an operation, where the endpoint has none of its own for it.
    pub(super) operation: Option<String>,
    /// Whether the descriptor is signed.
    pub(super) signed: bool,
}

impl Asked {
    pub(super) fn of(uri: &AgentUri, version: Option<&str>) -> Self {
        let mut named = None;
        let mut segments: Vec<String> = Vec::new();
        for segment in uri.segments() {
            match versioned(segment) {
                Some((before, version)) if named.is_none() => {
                    segments.push(before.to_owned());
                    named = Some(version);
                }
                _ => segments.push(segment.to_owned()),
            }
        }
        let insists = version.is_some();
        let version = version.map(str::to_owned).or(named).or_else(|| uri.parameter("version"));
        Self { uri: uri.clone(), segments, version, insists }
    }

    /// The segments from `at` on.
    pub(super) fn rest(&self, at: usize) -> Vec<&str> {
        self.segments.iter().skip(at).map(String::as_str).collect()
    }

    /// `text` with what is left of the path from `at` on, and with the query.
    pub(super) fn behind(&self, text: &str, at: usize) -> Result<String, String> {
        extended(text, &self.rest(at), self.uri.query())
    }
}

/// `planner@^1.2`: a segment that names a version, told from an `@` that means something else by how it goes on.
fn versioned(segment: &str) -> Option<(&str, String)> {
    let (before, version) = segment.split_once('@').filter(|(before, _)| !before.is_empty())?;
    let version = crate::agent::segment(version)?;
    let first = version.strip_prefix('v').unwrap_or(&version).chars().next()?;
    (first.is_ascii_digit() || "^~<>=*".contains(first) || version == "latest").then_some((before, version))
}

/// Where the agent of `document` is called, where the name's segments from `at` on are not its own.
///
/// # Errors
/// The outer one is the caller's to read: a version that there is not. The inner one says why the document leads
/// nowhere.
pub(super) fn led(document: &Document, asked: &Asked, at: usize) -> Result<Result<Led, String>, Fault> {
    let Value::Object(members) = &document.value else {
        return Ok(Err("is no object".to_owned()));
    };
    let base = &document.url;
    let is_card = hints::is_card(members);
    let hint = match is_card {
        true => hints::interface(members, base),
        false => hints::hint(members).map(str::to_owned).ok_or_else(|| "names no endpoint".to_owned()),
    };
    let hint = match hint {
        Ok(hint) => hint,
        Err(why) => return Ok(Err(why)),
    };
    if hint.starts_with("agent://") {
        return Ok(named(&hint, asked, at).map(Led::Name));
    }
    let endpoint = match onto(&hint, base) {
        Ok(endpoint) => endpoint,
        Err(why) => return Ok(Err(why)),
    };
    let versions = Versions::read(text(members, "version"), members);
    let (versioned, version) = versioned_endpoint(&endpoint, &versions, asked)?;
    let rest = asked.rest(at);
    // A capability's own endpoint is the agent's own version's; another version has only the place that it names.
    let own = versioned == endpoint && !is_card;
    let capability = capability(members, &rest).filter(|_| own).and_then(|own| onto(own, base).ok());
    let endpoint = versioned;
    let (endpoint, operation) = match (capability, is_card) {
        (Some(own), _) => (extended(&own, &[], asked.uri.query()), None),
        (None, true) => (extended(&endpoint, &[], asked.uri.query()), Some(rest.join("/"))),
        (None, false) => (asked.behind(&endpoint, at), None),
    };
    let versions = versions.iter().map(|served| served.label.to_string()).collect();
    let operation = operation.filter(|operation| !operation.is_empty());
    let descriptor = Some(base.clone());
    Ok(endpoint
        .map(|endpoint| Led::To(Box::new(Place { endpoint, descriptor, version, versions, operation, signed: false }))))
}

/// The name that a hint is, with what is left of the asked one behind it.
pub(super) fn named(hint: &str, asked: &Asked, at: usize) -> Result<AgentUri, String> {
    let next: AgentUri = hint.parse()?;
    match next.fragment() {
        None => extended(hint, &asked.rest(at), asked.uri.query())?.parse(),
        Some(_) => Err("leads to a name with a fragment".to_owned()),
    }
}

/// What a document may lead to, in the words that endpoints have.
pub(super) fn onto(hint: &str, base: &Url) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("leads to '{}', {why}", cut(hint, 100)));
    if hint.len() > 2_048 || hint.contains('#') {
        return refuse("which is too long or has a fragment");
    }
    match hint.split_once("://") {
        None => {
            let url = base.join(hint).ok().filter(|url| url.username().is_empty() && url.password().is_none());
            let url = url.filter(|url| matches!(url.scheme(), "https" | "http"));
            url.map_or_else(|| refuse("which is no URL over HTTP"), |url| Ok(String::from(url)))
        }
        Some(("https" | "http" | "wss" | "ws" | "mqtts", _)) => {
            let url = Url::parse(hint).ok().filter(|url| url.username().is_empty() && url.password().is_none());
            url.map_or_else(|| refuse("which is no URL, or has a user"), |_| Ok(hint.to_owned()))
        }
        Some(("agent+https", rest)) => onto(&format!("https://{rest}"), base),
        Some(("agent+wss", rest)) => onto(&format!("wss://{rest}"), base),
        Some(("agent+matrix", _)) => Ok(hint.to_owned()),
        Some(_) => refuse("which a document elsewhere may not lead to"),
    }
}

/// The endpoint of the version that is asked for, or of the latest, and what it is called.
fn versioned_endpoint(endpoint: &str, versions: &Versions, asked: &Asked) -> Result<(String, Option<String>), Fault> {
    let parsed = Url::parse(endpoint).ok();
    let place = |reference: &str| on_origin(parsed.as_ref()?, reference).map(String::from);
    let usable = versions.only(|served| served.place.as_deref().is_none_or(|reference| place(reference).is_some()));
    let at = match &asked.version {
        None => usable.latest().filter(|(_, itself)| !itself).map(|(at, _)| at),
        Some(_) if usable.is_empty() && !asked.insists => None,
        Some(version) => Some(usable.pick(version).map_err(|why| unmet(why, version, &usable))?),
    };
    let chosen = at.or_else(|| usable.latest().map(|(at, _)| at)).and_then(|at| usable.iter().nth(at));
    let moved = chosen.filter(|_| at.is_some()).and_then(|served| place(served.place.as_deref()?));
    Ok((moved.unwrap_or_else(|| endpoint.to_owned()), chosen.map(|served| served.label.to_string())))
}

/// No version is as asked for: which there are.
fn unmet(why: Unmet, asked: &str, versions: &Versions) -> Fault {
    let asked = cut(asked, 64);
    match why {
        Unmet::Malformed => Fault::new(
            Code::InvalidInput,
            format!("'{asked}' is no version (write one as 1.2.3, or a range such as ^1.2 or 1.x)"),
        ),
        Unmet::Unknown if versions.is_empty() => {
            Fault::new(Code::NotAcceptable, "the agent does not say which versions it has")
        }
        Unmet::Unknown => Fault::new(
            Code::NotAcceptable,
            format!("the agent has no version '{asked}' (it has: {})", versions.labels()),
        ),
    }
}

/// The endpoint of its own that a descriptor gives the one capability that is left of the name.
fn capability<'a>(descriptor: &'a Map<String, Value>, rest: &[&str]) -> Option<&'a str> {
    let [wanted] = rest else { return None };
    let wanted = crate::agent::segment(wanted)?;
    let listed = get(descriptor, "capabilities")?.as_array()?.iter().filter_map(Value::as_object).take(1_024);
    let is_it = |one: &&Map<String, Value>| ["name", "id", "@id"].iter().any(|name| text(one, name) == Some(&wanted));
    text(listed.into_iter().find(is_it)?, "endpoint").filter(|endpoint| !endpoint.starts_with("agent"))
}
