//! DIDs as authorities (R48, R63): fetches `did:web` documents over https and finds the service that is the agent.

use super::{
    did_web::{document_root, is_document_of},
    document_cache::{DocumentCache, ResolverDocument},
    domain_documents::{check_endpoint_address, resolve_descriptor},
    json_member_access::text_member,
    resolution_step::{AgentLocation, ResolutionRequest, ResolutionStep, alias_from_hint, endpoint_from_hint},
    resolution_trace::{ResolutionTrace, StepOutcome},
};
use crate::{fault::Fault, net::Url};
use serde_json::{Map, Value};

/// Maximum number of services considered in one document.
const MAX_SERVICES: usize = 64;

/// Resolves the DID through the services of its document.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn resolve_did(
    documents: &DocumentCache,
    did: &str,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    let Some(root) = document_root(did) else {
        trace.record_with_reason("did", did, StepOutcome::Unusable, Some("only did:web is supported".to_owned()));
        return Ok(None);
    };
    let Some(url) = root.did_document_url() else { return Ok(None) };
    let Some(document) = documents.get_document(&url, "did", trace).await else { return Ok(None) };
    let unusable = |trace: &mut ResolutionTrace, why: String| {
        trace.record_with_reason("did", &url, StepOutcome::Unusable, Some(why));
        Ok(None)
    };
    if !is_document_of(did, &document.value) {
        return unusable(trace, "id is not this DID".to_owned());
    }
    let Some((url_text, is_descriptor)) = find_agent_service(&document) else {
        return unusable(trace, "has no service of an agent".to_owned());
    };
    let (target, base) = (url_text.to_owned(), document.url.clone());
    drop(document);
    if let Some(hint) = target.strip_prefix("agent://") {
        return match alias_from_hint(&format!("agent://{hint}"), request, 0) {
            Ok(name) => {
                trace.record("did", &url, StepOutcome::Found);
                Ok(Some(ResolutionStep::Alias(name)))
            }
            Err(why) => unusable(trace, why),
        };
    }
    let endpoint = match endpoint_from_hint(&target, &base) {
        Ok(endpoint) => endpoint,
        Err(why) => return unusable(trace, why),
    };
    match Url::parse(&endpoint) {
        Ok(descriptor_url) if is_descriptor => {
            trace.record("did", &url, StepOutcome::Found);
            resolve_descriptor(documents, &descriptor_url, request, 0, trace).await
        }
        _ => resolve_to_endpoint(documents, &url, request, &endpoint, "did", trace).await,
    }
}

/// Resolves to the endpoint that the document at `from` names, extended by the rest of the requested name.
pub(super) async fn resolve_to_endpoint(
    documents: &DocumentCache,
    from: &Url,
    request: &ResolutionRequest,
    endpoint: &str,
    kind: &'static str,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    if let Err(why) = check_endpoint_address(documents, endpoint).await {
        trace.record_with_reason(kind, from, StepOutcome::Unreachable, Some(why));
        return Ok(None);
    }
    match request.append_rest(endpoint, 0) {
        Ok(endpoint) => {
            trace.record(kind, from, StepOutcome::Found);
            Ok(Some(ResolutionStep::Location(Box::new(AgentLocation { endpoint, ..AgentLocation::default() }))))
        }
        Err(why) => {
            trace.record_with_reason(kind, from, StepOutcome::Unusable, Some(why));
            Ok(None)
        }
    }
}

/// Returns the endpoint of the first service whose type or id contains "agent", and whether it is a descriptor.
fn find_agent_service(document: &ResolverDocument) -> Option<(&str, bool)> {
    let services = document.value.get("service")?.as_array()?.iter().take(MAX_SERVICES).filter_map(Value::as_object);
    services.filter(|service| type_or_id_contains(service, "agent")).find_map(|service| {
        let url = service_url(service.get("serviceEndpoint")?)?;
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let is_descriptor = path.ends_with(".json")
            || type_or_id_contains(service, "descriptor")
            || type_or_id_contains(service, "card");
        Some((url, is_descriptor))
    })
}

fn type_or_id_contains(service: &Map<String, Value>, word: &str) -> bool {
    let types = match service.get("type") {
        Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(kind)) => vec![kind.as_str()],
        _ => Vec::new(),
    };
    let id = text_member(service, "id").and_then(|id| id.rsplit_once('#')).map(|(_, id)| id);
    types.into_iter().chain(id).any(|text| text.to_ascii_lowercase().contains(word))
}

/// Reads a `serviceEndpoint`: a string, the first of an array, or the member `uri` of an object (DID Core §5.4).
fn service_url(endpoint: &Value) -> Option<&str> {
    match endpoint {
        Value::String(text) => Some(text),
        Value::Array(items) => items.first().filter(|item| !item.is_array()).and_then(service_url),
        Value::Object(members) => text_member(members, "uri").or_else(|| text_member(members, "url")),
        _ => None,
    }
}
