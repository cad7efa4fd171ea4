//! `POST /resolve` (R52–R64): resolution of `agent://` names. Names under the gateway's own host are its visible
//! agents; the resolver handles all others.

use super::{
    DirectoryCall, DirectoryResponse,
    address_redaction::invoke_url,
    bounded_list::to_json,
    directory_call::no_agent_fault,
    media_types,
    request_body::{self, BodyMembers, Violations},
    version_addresses::callable_versions,
};
use crate::{
    agent::{AgentUri, AgentUriAuthority, AgentVersions, MAX_URI_LEN, Operation, VersionSelectionError},
    fault::{Fault, FaultCode, Result, Violation},
    resolver::{ResolvedAgent, StepOutcome, TraceStep, UriResolver},
    values::percent_decode,
};
use http::{StatusCode, Uri};

/// Maximum size of a body in bytes.
const MAX_BODY_BYTES: usize = 32 << 10;
/// Path segments under an agent that are not operations.
const NON_OPERATION_SEGMENTS: &[&str] = &["invoke", "agent.json", ".well-known", "agent-card.json"];

/// Serves resolutions of names.
pub(super) struct NameResolutionHandler<'a> {
    /// Resolver of names under other hosts; `None` if it is disabled.
    pub(super) resolver: Option<&'a UriResolver>,
}

impl NameResolutionHandler<'_> {
    /// `POST /resolve`.
    pub(super) async fn resolve_name(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        media_types::negotiate(call.headers, &[media_types::JSON])?;
        let (uri, version) = parse_name_request(call)?;
        let resolved = if is_gateway_name(&uri, call.base_url) {
            resolve_gateway_name(call, &uri, version.as_deref())?
        } else {
            let disabled = || Fault::new(FaultCode::NotFound, "Name resolution is not enabled here");
            self.resolver.ok_or_else(disabled)?.resolve(&uri, version.as_deref(), &call.caller.id).await?
        };
        Ok(DirectoryResponse::uncacheable(StatusCode::OK, to_json(&resolved.to_public_json())?))
    }
}

/// Parses the name and the requested version.
fn parse_name_request(call: &DirectoryCall<'_>) -> Result<(AgentUri, Option<String>)> {
    let body = request_body::parse_json_body(call, &[media_types::JSON], MAX_BODY_BYTES, 8)?;
    let mut violations = Violations::default();
    let members = BodyMembers::new(&body, &mut violations);
    let uri = members.text(&["uri", "url", "name"], MAX_URI_LEN, &mut violations);
    let version = members.text(&["version"], 64, &mut violations).filter(|version| !version.trim().is_empty());
    violations.into_result("The request is not valid")?;
    let missing = || Fault::new(FaultCode::InvalidInput, "The body has no member 'uri' (an agent:// name)");
    let uri = AgentUri::parse(uri.ok_or_else(missing)?).map_err(|why| {
        let violation = Violation::new("/uri", why.to_string());
        Fault::new(FaultCode::InvalidInput, format!("The uri is not an agent:// name ({why})"))
            .with_violations(vec![violation])
    })?;
    let invalid_query = |why| {
        let violation = Violation::new("/uri", why);
        Fault::new(FaultCode::InvalidInput, "The query of the uri is not valid").with_violations(vec![violation])
    };
    uri.query_input().map_err(|why| invalid_query(why.to_owned()))?;
    Ok((uri, version.map(str::to_owned)))
}

/// Returns whether a name is under the gateway's own host, as the caller addressed it.
fn is_gateway_name(uri: &AgentUri, base: &str) -> bool {
    let (None, AgentUriAuthority::Host { host, port }) = (uri.transport(), uri.authority()) else { return false };
    let Ok(base) = base.parse::<Uri>() else { return false };
    let default_port = if base.scheme_str() == Some("http") { 80 } else { 443 };
    let is_same_host = base.host().is_some_and(|base_host| base_host.eq_ignore_ascii_case(host));
    is_same_host && port.is_none_or(|port| port == base.port_u16().unwrap_or(default_port))
}

/// Resolves `agent://{gateway}/[agents/]{id}[@version][/operation]`; unknown and invisible agents give the same fault.
fn resolve_gateway_name(call: &DirectoryCall<'_>, uri: &AgentUri, version: Option<&str>) -> Result<ResolvedAgent> {
    let mut segments = uri.segments().filter(|part| !NON_OPERATION_SEGMENTS.contains(part)).peekable();
    segments.next_if_eq(&"agents");
    let agent_segment = segments.next().ok_or_else(no_agent_fault)?;
    let (id, version_in_path) =
        agent_segment.split_once('@').map_or((agent_segment, None), |(id, version)| (id, Some(version)));
    let agent = call.visibility.visible_agent(id).ok_or_else(|| call.visibility.missing_agent_fault(id))?;
    let operation = segments.next();
    if segments.next().is_some() || operation.is_some_and(|name| agent.operation(name).is_none()) {
        return Err(Fault::from(FaultCode::CapabilityNotFound));
    }
    let agent_takes_version = match operation.and_then(|name| agent.operation(name)) {
        Some((_, operation)) => operation.takes_version(),
        None => agent.operations.iter().any(Operation::takes_version),
    };
    // Only versions that calls can reach.
    let versions = callable_versions(&agent);
    // As for calls: a version parameter that the agent declares as its input is passed through.
    let is_gateway_parameter = !agent_takes_version && !versions.is_empty();
    let query_version = || is_gateway_parameter.then(|| uri.query_parameter("version")).flatten();
    let requested =
        version.map(str::to_owned).or_else(|| version_in_path.and_then(percent_decode)).or_else(query_version);
    let selected = match &requested {
        None => versions.default_version().map(|(index, _)| index),
        Some(range) => Some(versions.select(range).map_err(|why| version_fault(why, &versions))?),
    };
    let label = selected.and_then(|index| versions.iter().nth(index)).map(|candidate| candidate.label.to_string());
    let id_with_version = match label.as_ref().filter(|_| requested.is_some()) {
        Some(label) => format!("{id}@{label}"),
        None => id.to_owned(),
    };
    // The version is in the path only: a second parameter would have to agree with it.
    let is_kept = |pair: &&str| !(is_gateway_parameter && requested.is_some() && pair.starts_with("version="));
    let query: Vec<&str> = uri.query().into_iter().flat_map(|query| query.split('&')).filter(is_kept).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let descriptor = format!("{}/agents/{id}/agent.json", call.base_url);
    Ok(ResolvedAgent {
        uri: uri.clone(),
        endpoint: format!("{}{query}", invoke_url(call.base_url, &id_with_version, operation.unwrap_or_default())),
        version: label,
        versions: versions.iter().map(|candidate| candidate.label.to_string()).collect(),
        operation: None,
        signature: None,
        trace: vec![TraceStep { kind: "own", location: descriptor.clone(), outcome: StepOutcome::Found, reason: None }],
        descriptor: Some(descriptor),
        expires: None,
    })
}

/// Builds the fault for a version that is malformed or unknown.
fn version_fault(why: VersionSelectionError, versions: &AgentVersions) -> Fault {
    match why {
        VersionSelectionError::Malformed => Fault::new(
            FaultCode::InvalidInput,
            "The version is not valid (write 1.2.3, or a range such as ^1.2 or 1.x)",
        ),
        VersionSelectionError::Unknown => {
            let message = format!("The agent has no such version (it has: {})", versions.labels());
            Fault::new(FaultCode::NotAcceptable, message)
        }
    }
}
