//! WebFinger (RFC 7033, R63): resolves a name through the links that its host publishes for it.

use super::{
    did::resolve_to_endpoint,
    document_cache::DocumentCache,
    domain_documents::resolve_descriptor,
    json_member_access::text_member,
    resolution_step::{ResolutionRequest, ResolutionStep, alias_from_hint, endpoint_from_hint},
    resolution_trace::{ResolutionTrace, StepOutcome},
};
use crate::{fault::Fault, net::Url};
use serde_json::{Map, Value};

/// Maximum number of links considered in one response.
const MAX_LINKS: usize = 64;

/// Resolves the name through its host's WebFinger.
///
/// # Errors
/// A fault for the caller: the agent lacks the requested version.
pub(super) async fn resolve_webfinger(
    documents: &DocumentCache,
    root: &Url,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<Option<ResolutionStep>, Fault> {
    let Ok(mut url) = root.join("/.well-known/webfinger") else { return Ok(None) };
    url.query_pairs_mut().append_pair("resource", &request.uri.without_query_and_fragment().to_string());
    let Some(document) = documents.get_document(&url, "webfinger", trace).await else { return Ok(None) };
    let unusable = |trace: &mut ResolutionTrace, why: String| {
        trace.record_with_reason("webfinger", &url, StepOutcome::Unusable, Some(why));
        Ok(None)
    };
    let links = document.value.get("links").and_then(Value::as_array).into_iter().flatten();
    let links: Vec<&Map<String, Value>> = links.take(MAX_LINKS).filter_map(Value::as_object).collect();
    let Some(link) =
        links.iter().find(|link| is_agent_link(link)).or_else(|| links.iter().find(|link| is_self_link(link)))
    else {
        return unusable(trace, "has no link to an agent".to_owned());
    };
    let (href, is_descriptor) = (text_member(link, "href").unwrap_or_default().to_owned(), is_descriptor_link(link));
    let base = document.url.clone();
    drop(document);
    // WebFinger describes the whole name: no rest of the name is appended to the target.
    let segment_count = request.segments.len();
    if href.starts_with("agent://") {
        return match alias_from_hint(&href, request, segment_count) {
            Ok(name) if name.without_query_and_fragment() != request.uri.without_query_and_fragment() => {
                trace.record("webfinger", &url, StepOutcome::Found);
                Ok(Some(ResolutionStep::Alias(name)))
            }
            Ok(_) => unusable(trace, "names itself".to_owned()),
            Err(why) => unusable(trace, why),
        };
    }
    let endpoint = match endpoint_from_hint(&href, &base) {
        Ok(endpoint) if !href.is_empty() => endpoint,
        Ok(_) => return unusable(trace, "link has no href".to_owned()),
        Err(why) => return unusable(trace, why),
    };
    match Url::parse(&endpoint) {
        Ok(target) if is_descriptor || target.path().ends_with(".json") => {
            trace.record("webfinger", &url, StepOutcome::Found);
            resolve_descriptor(documents, &target, request, segment_count, trace).await
        }
        _ => {
            let request = ResolutionRequest { segments: Vec::new(), ..request.clone() };
            resolve_to_endpoint(documents, &url, &request, &endpoint, "webfinger", trace).await
        }
    }
}

fn is_agent_link(link: &Map<String, Value>) -> bool {
    text_member(link, "rel").is_some_and(|rel| rel.to_ascii_lowercase().contains("agent"))
}

fn is_self_link(link: &Map<String, Value>) -> bool {
    text_member(link, "rel") == Some("self") && text_member(link, "type").is_some_and(|media| media.contains("json"))
}

/// Returns whether a link targets a descriptor rather than the agent itself.
fn is_descriptor_link(link: &Map<String, Value>) -> bool {
    let media = text_member(link, "type").unwrap_or_default();
    let rel = text_member(link, "rel").unwrap_or_default().to_ascii_lowercase();
    media.contains("json") || rel.contains("descriptor") || rel.contains("card")
}
