//! Resolution without a fetch: names with an explicit transport (R51), and the operator's map.

use super::{
    config::MapTarget,
    resolution_step::{AgentLocation, ResolutionRequest, ResolutionStep, alias_from_hint},
    resolution_trace::{ResolutionTrace, StepOutcome},
};
use crate::{
    agent::{AgentUri, AgentUriAuthority, EndpointScheme},
    fault::{Fault, FaultCode},
    net::Url,
};

/// Resolves a name with an explicit transport to its own address, in the syntax of endpoints.
///
/// # Errors
/// The transport is unknown, or the name has no address for the transport.
pub(super) fn resolve_explicit_transport(
    uri: &AgentUri,
    protocol: &str,
    trace: &mut ResolutionTrace,
) -> Result<ResolutionStep, Fault> {
    let invalid_input = |why: String| Fault::new(FaultCode::InvalidInput, why);
    let Some(scheme) = EndpointScheme::from_name_transport(protocol) else {
        let supported = EndpointScheme::in_names().map(EndpointScheme::as_str).collect::<Vec<_>>().join(", ");
        return Err(invalid_input(format!("The transport '{protocol}' is not supported (supported: {supported})")));
    };
    let endpoint = match uri.authority() {
        _ if !scheme.has_host() => uri.to_string(),
        AgentUriAuthority::Host { .. } => format!("{protocol}://{}{}", uri.authority(), uri.path_and_query()),
        AgentUriAuthority::Did(_) | AgentUriAuthority::TransportAddress(_) => {
            return Err(invalid_input(format!("A DID has no address for agent+{protocol} (omit the transport)")));
        }
    };
    trace.record("explicit", uri.without_query_and_fragment(), StepOutcome::Found);
    Ok(ResolutionStep::Location(Box::new(AgentLocation { endpoint, ..AgentLocation::default() })))
}

/// Result of an entry of the map for one name.
pub(super) enum MapMatch {
    Step(ResolutionStep),
    /// URL of a descriptor, and the number of path segments in the entry's key.
    Descriptor(Url, usize),
}

/// Returns the result of the map entry with the longest path that the name is under.
///
/// # Errors
/// The rest of the name cannot be appended to the entry's target.
pub(super) fn match_operator_map(
    map: &[(AgentUri, MapTarget)],
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<Option<MapMatch>, Fault> {
    let prefix_len_of = |name: &AgentUri| {
        if request.uri.authority() != name.authority() {
            return None;
        }
        let key_segments: Vec<&str> = name.segments().collect();
        let is_below = request.segments.len() >= key_segments.len();
        (is_below && request.segments.iter().zip(&key_segments).all(|(one, other)| one == other))
            .then_some(key_segments.len())
    };
    let matches = map.iter().filter_map(|(name, target)| Some((prefix_len_of(name)?, name, target)));
    let Some((prefix_len, name, target)) = matches.max_by_key(|(prefix_len, ..)| *prefix_len) else { return Ok(None) };
    let unresolved = |why: String| {
        Fault::new(FaultCode::NotFound, "The name does not resolve to an agent")
            .with_detail(format!("resolver.map {name}: {why}"))
    };
    trace.record("map", name, StepOutcome::Found);
    let matched = match target {
        MapTarget::Descriptor(url) => MapMatch::Descriptor(url.clone(), prefix_len),
        MapTarget::Name(next) => MapMatch::Step(ResolutionStep::Alias(
            alias_from_hint(&next.to_string(), request, prefix_len).map_err(unresolved)?,
        )),
        MapTarget::Endpoint(endpoint) => {
            let endpoint = request.append_rest(endpoint, prefix_len).map_err(unresolved)?;
            MapMatch::Step(ResolutionStep::Location(Box::new(AgentLocation { endpoint, ..AgentLocation::default() })))
        }
    };
    Ok(Some(matched))
}
