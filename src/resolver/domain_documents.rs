//! Documents that a domain publishes about its agents (R53, R57, R58, R60): `agents.json`, descriptors along the path
//! of a name, and the descriptor of the domain's only agent.

use super::{
    descriptor_signature::check_signatures,
    document_cache::DocumentCache,
    resolution_step::{DescriptorError, ResolutionRequest, ResolutionStep, alias_from_hint, step_from_descriptor},
    resolution_trace::{ResolutionTrace, StepOutcome},
};
use crate::{agent::SchemeSplit, fault::Fault, net::Url, values::percent_decode};
use serde_json::{Map, Value};

/// Maximum number of descriptors fetched along one path, the longest path first.
const MAX_PATH_DESCRIPTORS: usize = 3;
/// Maximum number of path segments in a key of `agents.json`.
const MAX_KEY_SEGMENTS: usize = 8;

/// Resolves the name through `/.well-known/agents.json` at `root`.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn resolve_agents_json(
    documents: &DocumentCache,
    root: &Url,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    let Ok(url) = root.join("/.well-known/agents.json") else { return Ok(None) };
    let Some(document) = documents.get_document(&url, "agents.json", trace).await else { return Ok(None) };
    let Some(agents) = document.value.get("agents").and_then(Value::as_object) else {
        trace.record_with_reason("agents.json", &url, StepOutcome::Unusable, Some("has no object 'agents'".to_owned()));
        return Ok(None);
    };
    let Some((value, prefix_len)) = find_agents_json_entry(agents, request) else {
        if request.segments.is_empty() {
            trace.record_candidates(agents.keys().map(String::as_str));
        }
        trace.record_with_reason(
            "agents.json",
            &url,
            StepOutcome::Absent,
            Some("has no entry for the name".to_owned()),
        );
        return Ok(None);
    };
    let link_members = ["descriptor", "url", "href"];
    let link = value.as_str().or_else(|| link_members.into_iter().find_map(|name| value.get(name)?.as_str()));
    let link = link.filter(|link| link.len() <= 2_048);
    let link = link.map(|link| (link.to_owned(), document.url.join(link).ok()));
    // The document may be large; drop it before the next fetch.
    drop(document);
    match link {
        Some((link, _)) if link.starts_with("agent://") && !link.ends_with(".json") => {
            match alias_from_hint(&link, request, prefix_len) {
                Ok(name) => {
                    trace.record("agents.json", &url, StepOutcome::Found);
                    Ok(Some(ResolutionStep::Alias(name)))
                }
                Err(why) => {
                    trace.record_with_reason("agents.json", &url, StepOutcome::Unusable, Some(why));
                    Ok(None)
                }
            }
        }
        Some((link, _)) if link.starts_with("agent://") => {
            let https_link = link.replacen("agent://", "https://", 1);
            follow_agents_json_link(documents, &url, Url::parse(&https_link).ok(), request, prefix_len, trace).await
        }
        Some((_, joined)) => follow_agents_json_link(documents, &url, joined, request, prefix_len, trace).await,
        None => {
            trace.record_with_reason(
                "agents.json",
                &url,
                StepOutcome::Unusable,
                Some("entry has no valid URL".to_owned()),
            );
            Ok(None)
        }
    }
}

async fn follow_agents_json_link(
    documents: &DocumentCache,
    from: &Url,
    target: Option<Url>,
    request: &ResolutionRequest,
    prefix_len: usize,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    match target {
        Some(target) => {
            trace.record("agents.json", from, StepOutcome::Found);
            resolve_descriptor(documents, &target, request, prefix_len, trace).await
        }
        None => {
            trace.record_with_reason(
                "agents.json",
                from,
                StepOutcome::Unusable,
                Some("entry has no valid URL".to_owned()),
            );
            Ok(None)
        }
    }
}

/// Returns the entry with the longest key that the path starts with; for a bare domain, the only entry of the map.
fn find_agents_json_entry<'a>(
    agents: &'a Map<String, Value>,
    request: &ResolutionRequest,
) -> Option<(&'a Value, usize)> {
    if request.segments.is_empty() {
        let mut values = agents.values();
        return values.next().filter(|_| agents.len() == 1).map(|only| (only, 0));
    }
    let decoded: Option<Vec<String>> =
        request.segments.iter().take(MAX_KEY_SEGMENTS).map(|segment| percent_decode(segment)).collect();
    let decoded = decoded?;
    (1..=decoded.len())
        .rev()
        .find_map(|prefix_len| Some((agents.get(&decoded.get(..prefix_len)?.join("/"))?, prefix_len)))
}

/// Resolves the name through descriptors along its path, the innermost first, then the domain's own descriptor.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn resolve_descriptors(
    documents: &DocumentCache,
    root: &Url,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    let segment_count = request.segments.len();
    for prefix_len in (1..=segment_count).rev().take(MAX_PATH_DESCRIPTORS) {
        let path = request.segments.iter().take(prefix_len).map(String::as_str).collect::<Vec<_>>().join("/");
        let Ok(url) = root.join(&format!("/{path}/agent.json")) else { continue };
        if let Some(step) = resolve_descriptor(documents, &url, request, prefix_len, trace).await? {
            return Ok(Some(step));
        }
    }
    for path in ["/.well-known/agent.json", "/.well-known/agent-card.json"] {
        let Ok(url) = root.join(path) else { continue };
        if let Some(step) = resolve_descriptor(documents, &url, request, 0, trace).await? {
            return Ok(Some(step));
        }
    }
    Ok(None)
}

/// Resolves the name through the descriptor at `url`, if there is a usable one. The first `prefix_len` segments of the
/// name are the agent's own name.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn resolve_descriptor(
    documents: &DocumentCache,
    url: &Url,
    request: &ResolutionRequest,
    prefix_len: usize,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    let Some(mut document) = documents.get_document(url, "agent.json", trace).await else { return Ok(None) };
    let signature = check_signatures(documents, &mut document, request, trace).await?;
    let unusable = |trace: &mut ResolutionTrace, why: String| {
        trace.record_with_reason("agent.json", url, StepOutcome::Unusable, Some(why));
        Ok(None)
    };
    let step = step_from_descriptor(&document, request, prefix_len);
    drop(document);
    match step {
        Err(DescriptorError::Refused(fault)) => Err(fault),
        Err(DescriptorError::Unusable(why)) => unusable(trace, why),
        // A descriptor may name itself, which does not resolve anything.
        Ok(ResolutionStep::Alias(name))
            if name.without_query_and_fragment() == request.uri.without_query_and_fragment() =>
        {
            unusable(trace, "names itself".to_owned())
        }
        Ok(ResolutionStep::Location(location)) => match check_endpoint_address(documents, &location.endpoint).await {
            Ok(()) => {
                trace.record_signature(signature);
                trace.record("agent.json", url, StepOutcome::Found);
                Ok(Some(ResolutionStep::Location(location)))
            }
            Err(why) => {
                trace.record_with_reason("agent.json", url, StepOutcome::Unreachable, Some(why));
                Ok(None)
            }
        },
        Ok(step) => {
            trace.record_signature(signature);
            trace.record("agent.json", url, StepOutcome::Found);
            Ok(Some(step))
        }
    }
}

/// Checks an endpoint from a document against the address policy of fetches: a name must not give access to this
/// machine, or to networks that only this machine reaches.
pub(super) async fn check_endpoint_address(documents: &DocumentCache, endpoint: &str) -> Result<(), String> {
    let Some(SchemeSplit { scheme, rest, .. }) = SchemeSplit::parse(endpoint).filter(|split| split.scheme.has_host())
    else {
        return Ok(());
    };
    // The default ports of other schemes differ, which matters only for the gateway's own listeners.
    let http_scheme = if scheme.is_encrypted_or_local() { "https" } else { "http" };
    let url = Url::parse(&format!("{http_scheme}://{rest}")).map_err(|_| "is not a URL".to_owned())?;
    documents.client().check_address(&url).await.map_err(|why| why.to_string())
}
