//! One resolution step, from a descriptor to its agent's endpoint (R53, R57, R67): endpoint hints, the requested
//! version, and the rest of the name. Documents can point to network addresses only, not to this machine's sockets.

use super::{
    document_cache::ResolverDocument,
    endpoint_hints,
    json_member_access::{get_member, text_member},
    url_join::{append_path_and_query, join_same_origin},
};
use crate::{
    agent::{AddressSyntax, AgentUri, AgentVersions, SchemeSplit, VersionSelectionError},
    fault::{Fault, FaultCode},
    net::Url,
    values::{json::truncate, percent_decode},
};
use serde_json::{Map, Value};

/// Request to resolve a name: the name, its path and the requested version.
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

/// Location at which an agent is called.
#[derive(Debug, Default)]
pub(super) struct AgentLocation {
    pub(super) endpoint: String,
    pub(super) descriptor: Option<Url>,
    pub(super) version: Option<String>,
    pub(super) versions: Vec<String>,
    /// The operation that the rest of the path names, if the endpoint has no path for operations.
    pub(super) operation: Option<String>,
}

impl ResolutionRequest {
    pub(super) fn new(uri: &AgentUri, version: Option<&str>) -> Self {
        let mut suffix_version = None;
        let mut segments: Vec<String> = Vec::new();
        for segment in uri.segments() {
            match split_version(segment) {
                Some((name, version)) if suffix_version.is_none() => {
                    segments.push(name.to_owned());
                    suffix_version = Some(version);
                }
                _ => segments.push(segment.to_owned()),
            }
        }
        let requires_version = version.is_some();
        let version = version.map(str::to_owned).or(suffix_version).or_else(|| uri.query_parameter("version"));
        Self { uri: uri.clone(), segments, version, requires_version }
    }

    /// Returns the path segments after the first `prefix_len`.
    pub(super) fn segments_from(&self, prefix_len: usize) -> Vec<&str> {
        self.segments.iter().skip(prefix_len).map(String::as_str).collect()
    }

    /// Appends the path segments after the first `prefix_len`, and the query, to `text`.
    pub(super) fn append_rest(&self, text: &str, prefix_len: usize) -> Result<String, String> {
        append_path_and_query(text, &self.segments_from(prefix_len), self.uri.query())
    }
}

/// Splits `planner@^1.2` into name and version. An `@` that no version follows belongs to the name.
fn split_version(segment: &str) -> Option<(&str, String)> {
    let (name, version) = segment.split_once('@').filter(|(name, _)| !name.is_empty())?;
    let version = percent_decode(version)?;
    let first = version.strip_prefix('v').unwrap_or(&version).chars().next()?;
    (first.is_ascii_digit() || "^~<>=*".contains(first) || version == "latest").then_some((name, version))
}

/// Why a descriptor leads to no endpoint.
#[derive(Debug)]
pub(super) enum DescriptorError {
    /// The document has no usable endpoint, for this reason; another step may find the agent.
    Unusable(String),
    /// The agent lacks the requested version: a fault for the caller.
    Refused(Fault),
}

impl From<String> for DescriptorError {
    fn from(reason: String) -> Self {
        Self::Unusable(reason)
    }
}

impl From<Fault> for DescriptorError {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault)
    }
}

/// Determines the endpoint of the agent that `document` describes. The first `prefix_len` segments of the name are the
/// agent's own name.
///
/// # Errors
/// The document has no usable endpoint, or the agent lacks the requested version.
pub(super) fn step_from_descriptor(
    document: &ResolverDocument,
    request: &ResolutionRequest,
    prefix_len: usize,
) -> Result<ResolutionStep, DescriptorError> {
    let Value::Object(members) = &document.value else {
        return Err(DescriptorError::Unusable("is not an object".to_owned()));
    };
    let base = &document.url;
    let is_card = endpoint_hints::is_a2a_card(members);
    let hint = if is_card {
        endpoint_hints::card_interface_url(members, base)?
    } else {
        endpoint_hints::endpoint_hint(members).map(str::to_owned).ok_or_else(|| "names no endpoint".to_owned())?
    };
    if hint.starts_with("agent://") {
        return Ok(ResolutionStep::Alias(alias_from_hint(&hint, request, prefix_len)?));
    }
    let current_endpoint = endpoint_from_hint(&hint, base)?;
    let versions = AgentVersions::from_document(text_member(members, "version"), members);
    let (endpoint, version) = select_version(&current_endpoint, &versions, request)?;
    let rest = request.segments_from(prefix_len);
    // A capability's own endpoint serves the agent's current version; other versions have their own locations only.
    let is_current = endpoint == current_endpoint && !is_card;
    let capability = capability_endpoint(members, &rest)
        .filter(|_| is_current)
        .and_then(|endpoint| endpoint_from_hint(endpoint, base).ok());
    let mut operation = None;
    let endpoint = match capability {
        Some(endpoint) => append_path_and_query(&endpoint, &[], request.uri.query())?,
        None if is_card => {
            // Operations of a card have no paths of their own.
            operation = Some(rest.join("/")).filter(|operation| !operation.is_empty());
            append_path_and_query(&endpoint, &[], request.uri.query())?
        }
        None => request.append_rest(&endpoint, prefix_len)?,
    };
    Ok(ResolutionStep::Location(Box::new(AgentLocation {
        endpoint,
        descriptor: Some(base.clone()),
        version,
        versions: versions.iter().map(|version| version.label.to_string()).collect(),
        operation,
    })))
}

/// Returns the name in a hint, with the rest of the requested name appended.
pub(super) fn alias_from_hint(hint: &str, request: &ResolutionRequest, prefix_len: usize) -> Result<AgentUri, String> {
    let next: AgentUri = hint.parse()?;
    match next.fragment() {
        None => append_path_and_query(hint, &request.segments_from(prefix_len), request.uri.query())?.parse(),
        Some(_) => Err("names an agent:// name with a fragment".to_owned()),
    }
}

/// Validates a hint, and returns its endpoint, in the syntax of endpoints.
pub(super) fn endpoint_from_hint(hint: &str, base: &Url) -> Result<String, String> {
    let reject = |why: &str| Err(format!("names '{}', {why}", truncate(hint, 100)));
    if hint.len() > 2_048 || hint.contains('#') {
        return reject("which is longer than 2048 characters or has a fragment");
    }
    let has_no_user = |url: &Url| url.username().is_empty() && url.password().is_none();
    if !hint.contains("://") {
        let url = base.join(hint).ok().filter(|url| has_no_user(url) && is_http(url));
        return url.map_or_else(|| reject("which is not an http(s) URL, or has a user"), |url| Ok(String::from(url)));
    }
    match SchemeSplit::parse(hint) {
        // The prefix `agent+` is for encrypted transports.
        Some(SchemeSplit { scheme, is_prefixed, rest })
            if scheme.may_be_in_documents() && (!is_prefixed || scheme.is_encrypted_or_local()) =>
        {
            if !scheme.has_host() {
                return Ok(hint.to_owned());
            }
            let endpoint = format!("{}://{rest}", scheme.as_str());
            let is_valid = Url::parse(&endpoint).is_ok_and(|url| has_no_user(&url));
            if is_valid { Ok(endpoint) } else { reject("which is not a URL, or has a user") }
        }
        Some(_) | None => reject("which has a scheme that documents may not use"),
    }
}

fn is_http(url: &Url) -> bool {
    SchemeSplit::parse(url.as_str()).is_some_and(|split| split.scheme.syntax() == AddressSyntax::HttpUrl)
}

/// Returns the endpoint of the requested version, or of the latest one, and the version's label.
fn select_version(
    endpoint: &str,
    versions: &AgentVersions,
    request: &ResolutionRequest,
) -> Result<(String, Option<String>), Fault> {
    let parsed = Url::parse(endpoint).ok();
    let location_url = |reference: &str| join_same_origin(parsed.as_ref()?, reference).map(String::from);
    let usable = versions
        .filter(|version| version.location.as_deref().is_none_or(|reference| location_url(reference).is_some()));
    let index = match &request.version {
        None => usable.default_version().filter(|(_, is_current)| !is_current).map(|(index, _)| index),
        Some(_) if usable.is_empty() && !request.requires_version => None,
        Some(version) => Some(usable.select(version).map_err(|why| version_fault(why, version, &usable))?),
    };
    let selected =
        index.or_else(|| usable.default_version().map(|(index, _)| index)).and_then(|index| usable.iter().nth(index));
    let relocated = selected.filter(|_| index.is_some()).and_then(|version| location_url(version.location.as_deref()?));
    Ok((relocated.unwrap_or_else(|| endpoint.to_owned()), selected.map(|version| version.label.to_string())))
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
    let [segment] = rest else { return None };
    let wanted_name = percent_decode(segment)?;
    let capabilities =
        get_member(descriptor, "capabilities")?.as_array()?.iter().filter_map(Value::as_object).take(1_024);
    let has_name = |capability: &&Map<String, Value>| {
        ["name", "id", "@id"].iter().any(|name| text_member(capability, name) == Some(&wanted_name))
    };
    text_member(capabilities.into_iter().find(has_name)?, "endpoint").filter(|endpoint| !endpoint.starts_with("agent"))
}
