//! One resolution step, from a descriptor to its agent's endpoint (R53, R57, R67): endpoint hints, the requested
//! version, and the rest of the name. Documents can point to network addresses only, not to this machine's sockets.

use super::{
    document_cache::ResolverDocument,
    endpoint_hints,
    member_access::{get_member, text_member},
    url_join::{append_path_and_query, join_same_origin},
};
use crate::{
    agent::{AgentUri, AgentVersions, VersionSelectionError},
    fault::{Fault, FaultCode},
    net::Url,
    values::json::truncate,
};
use serde_json::{Map, Value};

/// What a name is resolved for: the name, its path and the requested version.
#[derive(Clone, Debug)]
pub(super) struct ResolutionRequest {
    pub(super) uri: AgentUri,
    /// Path segments without the version suffix that one of them may have.
    pub(super) segments: Vec<String>,
    /// Requested version, as the caller wrote it.
    pub(super) version: Option<String>,
    /// Whether the version was requested apart from the name: the agent must then list its versions.
    pub(super) requires_version: bool,
}

/// Result of one step.
#[derive(Debug)]
pub(super) enum ResolutionStep {
    Location(Box<AgentLocation>),
    Alias(AgentUri),
}

/// Where an agent is called.
#[derive(Debug, Default)]
pub(super) struct AgentLocation {
    pub(super) endpoint: String,
    pub(super) descriptor: Option<Url>,
    pub(super) version: Option<String>,
    pub(super) versions: Vec<String>,
    /// The operation that the rest of the path names, if the endpoint has no path for operations.
    pub(super) operation: Option<String>,
    /// Whether the descriptor has a signature.
    pub(super) has_signature: bool,
}

impl ResolutionRequest {
    pub(super) fn new(uri: &AgentUri, version: Option<&str>) -> Self {
        let mut named = None;
        let mut segments: Vec<String> = Vec::new();
        for segment in uri.segments() {
            match split_version(segment) {
                Some((before, version)) if named.is_none() => {
                    segments.push(before.to_owned());
                    named = Some(version);
                }
                _ => segments.push(segment.to_owned()),
            }
        }
        let insists = version.is_some();
        let version = version.map(str::to_owned).or(named).or_else(|| uri.query_parameter("version"));
        Self { uri: uri.clone(), segments, version, requires_version: insists }
    }

    /// Returns the path segments from `at` on.
    pub(super) fn segments_from(&self, at: usize) -> Vec<&str> {
        self.segments.iter().skip(at).map(String::as_str).collect()
    }

    /// Appends the path segments from `at` on, and the query, to `text`.
    pub(super) fn append_rest(&self, text: &str, at: usize) -> Result<String, String> {
        append_path_and_query(text, &self.segments_from(at), self.uri.query())
    }
}

/// Splits `planner@^1.2` into name and version. An `@` that no version follows belongs to the name.
fn split_version(segment: &str) -> Option<(&str, String)> {
    let (before, version) = segment.split_once('@').filter(|(before, _)| !before.is_empty())?;
    let version = crate::agent::decode_segment(version)?;
    let first = version.strip_prefix('v').unwrap_or(&version).chars().next()?;
    (first.is_ascii_digit() || "^~<>=*".contains(first) || version == "latest").then_some((before, version))
}

/// Determines the endpoint of the agent that `document` describes, where the name's segments from `at` on are not part
/// of the agent's own name.
///
/// # Errors
/// The outer error is a fault for the caller: the agent lacks the requested version. The inner error says why the
/// document has no usable endpoint.
pub(super) fn step_from_descriptor(
    document: &ResolverDocument,
    request: &ResolutionRequest,
    at: usize,
) -> Result<Result<ResolutionStep, String>, Fault> {
    let Value::Object(members) = &document.value else {
        return Ok(Err("is not an object".to_owned()));
    };
    let base = &document.url;
    let is_card = endpoint_hints::is_a2a_card(members);
    let hint = match is_card {
        true => endpoint_hints::card_interface_url(members, base),
        false => {
            endpoint_hints::endpoint_hint(members).map(str::to_owned).ok_or_else(|| "names no endpoint".to_owned())
        }
    };
    let hint = match hint {
        Ok(hint) => hint,
        Err(why) => return Ok(Err(why)),
    };
    if hint.starts_with("agent://") {
        return Ok(alias_from_hint(&hint, request, at).map(ResolutionStep::Alias));
    }
    let endpoint = match endpoint_from_hint(&hint, base) {
        Ok(endpoint) => endpoint,
        Err(why) => return Ok(Err(why)),
    };
    let versions = AgentVersions::from_document(text_member(members, "version"), members);
    let (versioned, version) = select_version(&endpoint, &versions, request)?;
    let rest = request.segments_from(at);
    // A capability's own endpoint serves the agent's current version; another version is called at its place only.
    let own = versioned == endpoint && !is_card;
    let capability =
        capability_endpoint(members, &rest).filter(|_| own).and_then(|own| endpoint_from_hint(own, base).ok());
    let endpoint = versioned;
    let (endpoint, operation) = match (capability, is_card) {
        (Some(own), _) => (append_path_and_query(&own, &[], request.uri.query()), None),
        (None, true) => (append_path_and_query(&endpoint, &[], request.uri.query()), Some(rest.join("/"))),
        (None, false) => (request.append_rest(&endpoint, at), None),
    };
    let versions = versions.iter().map(|served| served.label.to_string()).collect();
    let operation = operation.filter(|operation| !operation.is_empty());
    let descriptor = Some(base.clone());
    Ok(endpoint.map(|endpoint| {
        ResolutionStep::Location(Box::new(AgentLocation {
            endpoint,
            descriptor,
            version,
            versions,
            operation,
            has_signature: false,
        }))
    }))
}

/// Returns the name that a hint gives, with the rest of the requested name appended.
pub(super) fn alias_from_hint(hint: &str, request: &ResolutionRequest, at: usize) -> Result<AgentUri, String> {
    let next: AgentUri = hint.parse()?;
    match next.fragment() {
        None => append_path_and_query(hint, &request.segments_from(at), request.uri.query())?.parse(),
        Some(_) => Err("names an agent:// name with a fragment".to_owned()),
    }
}

/// Validates a hint, and returns the endpoint that it gives, in the syntax of endpoints.
pub(super) fn endpoint_from_hint(hint: &str, base: &Url) -> Result<String, String> {
    let refuse = |why: &str| Err(format!("names '{}', {why}", truncate(hint, 100)));
    if hint.len() > 2_048 || hint.contains('#') {
        return refuse("which is longer than 2048 characters or has a fragment");
    }
    match hint.split_once("://") {
        None => {
            let url = base.join(hint).ok().filter(|url| url.username().is_empty() && url.password().is_none());
            let url = url.filter(|url| matches!(url.scheme(), "https" | "http"));
            url.map_or_else(|| refuse("which is not an http(s) URL, or has a user"), |url| Ok(String::from(url)))
        }
        Some(("https" | "http" | "wss" | "ws" | "mqtts", _)) => {
            let url = Url::parse(hint).ok().filter(|url| url.username().is_empty() && url.password().is_none());
            url.map_or_else(|| refuse("which is not a URL, or has a user"), |_| Ok(hint.to_owned()))
        }
        Some(("agent+https", rest)) => endpoint_from_hint(&format!("https://{rest}"), base),
        Some(("agent+wss", rest)) => endpoint_from_hint(&format!("wss://{rest}"), base),
        Some(("agent+matrix", _)) => Ok(hint.to_owned()),
        Some(_) => refuse("which has a scheme that documents may not use"),
    }
}

/// Returns the endpoint of the requested version, or of the latest one, and the version's label.
fn select_version(
    endpoint: &str,
    versions: &AgentVersions,
    request: &ResolutionRequest,
) -> Result<(String, Option<String>), Fault> {
    let parsed = Url::parse(endpoint).ok();
    let place = |reference: &str| join_same_origin(parsed.as_ref()?, reference).map(String::from);
    let usable =
        versions.filtered(|served| served.location.as_deref().is_none_or(|reference| place(reference).is_some()));
    let at = match &request.version {
        None => usable.default_version().filter(|(_, itself)| !itself).map(|(at, _)| at),
        Some(_) if usable.is_empty() && !request.requires_version => None,
        Some(version) => Some(usable.select(version).map_err(|why| version_fault(why, version, &usable))?),
    };
    let chosen = at.or_else(|| usable.default_version().map(|(at, _)| at)).and_then(|at| usable.iter().nth(at));
    let moved = chosen.filter(|_| at.is_some()).and_then(|served| place(served.location.as_deref()?));
    Ok((moved.unwrap_or_else(|| endpoint.to_owned()), chosen.map(|served| served.label.to_string())))
}

/// Reports that no version matches the request, and lists those that exist.
fn version_fault(why: VersionSelectionError, requested: &str, versions: &AgentVersions) -> Fault {
    let requested = truncate(requested, 64);
    match why {
        VersionSelectionError::Malformed => Fault::new(
            FaultCode::InvalidInput,
            format!("'{requested}' is not a version (write one as 1.2.3, or a range such as ^1.2 or 1.x)"),
        ),
        VersionSelectionError::Unknown if versions.is_empty() => {
            Fault::new(FaultCode::NotAcceptable, "The agent does not list its versions")
        }
        VersionSelectionError::Unknown => Fault::new(
            FaultCode::NotAcceptable,
            format!("The agent has no version '{requested}' (it has: {})", versions.labels()),
        ),
    }
}

/// Returns the endpoint that a descriptor declares for the one capability that is the rest of the name.
fn capability_endpoint<'a>(descriptor: &'a Map<String, Value>, rest: &[&str]) -> Option<&'a str> {
    let [wanted] = rest else { return None };
    let wanted = crate::agent::decode_segment(wanted)?;
    let listed = get_member(descriptor, "capabilities")?.as_array()?.iter().filter_map(Value::as_object).take(1_024);
    let is_it =
        |one: &&Map<String, Value>| ["name", "id", "@id"].iter().any(|name| text_member(one, name) == Some(&wanted));
    text_member(listed.into_iter().find(is_it)?, "endpoint").filter(|endpoint| !endpoint.starts_with("agent"))
}
