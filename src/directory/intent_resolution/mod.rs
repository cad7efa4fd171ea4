//! Semantic resolution (R9, R25): finds agents that may be called for an intent, with its context and a policy. Each
//! candidate has its invocation and the reasons for its rank; agents that the policy excludes are listed with the
//! reasons. The resolution does not call agents, and lists only agents visible to the caller.

mod operation_match;
mod policy_evaluation;
mod resolution_policy;

use super::{
    DirectoryCall, DirectoryConfig, DirectoryResponse,
    address_redaction::AddressRedactor,
    agent_document::RedactedDocument,
    agent_summary::{entry_text, round_score},
    bounded_list::to_json,
    json_object_builder::JsonObjectBuilder,
    media_types,
    openapi::schema_name,
    request_body::{self, BodyMembers, Violations},
    visible_agent_search::{HitRange, MAX_QUERY_CHARS, VisibleAgentSearch},
};
use crate::{
    agent::{Agent, Operation},
    fault::Result,
    search::{SearchFilters, SearchHit, StatusFilter},
};
use http::StatusCode;
use resolution_policy::ResolutionPolicy;
use serde_json::{Value, json};

/// Maximum number of agents evaluated for one request.
const MAX_EVALUATED: usize = 500;
/// Number of agents in one search.
const SEARCH_BATCH: usize = 100;
/// Maximum number of exclusions, and of agents evaluated to find them.
const MAX_EXCLUDED: usize = 50;

/// A parsed request.
struct IntentRequest {
    intent: String,
    /// Text of the search: the intent, and every string of the context.
    search_text: String,
    policy: ResolutionPolicy,
    top: usize,
}

/// An agent that satisfies the policy.
struct AgentCandidate {
    hit: SearchHit,
    /// Quality, to order candidates of equal scores.
    quality: f64,
    reasons: Vec<String>,
}

/// Serves resolutions of intents.
pub(super) struct IntentResolutionHandler<'a> {
    pub(super) search: VisibleAgentSearch<'a>,
    pub(super) config: &'a DirectoryConfig,
}

impl IntentResolutionHandler<'_> {
    /// `POST /agents/resolve`.
    pub(super) fn resolve_intent(&self, call: &DirectoryCall<'_>) -> Result<DirectoryResponse> {
        media_types::negotiate(call.headers, &[media_types::JSON])?;
        let mut request =
            parse_intent_request(&request_body::parse_json_body(call, &[media_types::JSON], 64 << 10, 16)?)?;
        request.policy.require_minimums(&self.config.resolution);
        let (mut candidates, mut excluded) = (Vec::new(), Vec::new());
        let mut evaluated = 0;
        while evaluated < MAX_EVALUATED {
            let results = self.search.find_agents(
                call,
                request.policy.filters.clone(),
                &request.search_text,
                HitRange { skip: evaluated, top: SEARCH_BATCH },
            );
            evaluated += results.hits.len();
            for hit in results.hits {
                let verdict = policy_evaluation::evaluate_policy(&request.policy, &hit.agent);
                if verdict.exclusions.is_empty() {
                    candidates.push(AgentCandidate { hit, quality: verdict.quality, reasons: verdict.reasons })
                } else {
                    excluded.push((hit.agent.id.clone(), verdict.exclusions))
                }
            }
            if !results.has_more || candidates.len() >= request.top {
                break;
            }
        }
        self.add_filtered_out(call, &request, &mut excluded);
        excluded.truncate(MAX_EXCLUDED);
        candidates.sort_by(compare_candidates);
        candidates.truncate(request.top);
        let candidates: Vec<Value> =
            candidates.iter().map(|candidate| self.candidate_json(call, &request, candidate)).collect();
        let excluded: Vec<Value> =
            excluded.iter().map(|(id, why)| json!({"id": id.as_str(), "reasons": why})).collect();
        Ok(DirectoryResponse::uncacheable(
            StatusCode::OK,
            to_json(&json!({"candidates": candidates, "excluded": excluded}))?,
        ))
    }

    /// Adds the agents that match the intent, but that the search filtered out.
    fn add_filtered_out(
        &self,
        call: &DirectoryCall<'_>,
        request: &IntentRequest,
        excluded: &mut Vec<(crate::agent::AgentId, Vec<String>)>,
    ) {
        if request.policy.filters == SearchFilters::default() {
            return;
        }
        let all_statuses = SearchFilters {
            status: vec![StatusFilter::Active, StatusFilter::Inactive, StatusFilter::Deprecated],
            ..SearchFilters::default()
        };
        for hit in self
            .search
            .find_agents(call, all_statuses, &request.search_text, HitRange { skip: 0, top: MAX_EXCLUDED })
            .hits
        {
            let verdict = policy_evaluation::evaluate_policy(&request.policy, &hit.agent);
            if !verdict.exclusions.is_empty() && !excluded.iter().any(|(id, _)| *id == hit.agent.id) {
                excluded.push((hit.agent.id.clone(), verdict.exclusions));
            }
        }
    }

    fn candidate_json(&self, call: &DirectoryCall<'_>, request: &IntentRequest, candidate: &AgentCandidate) -> Value {
        let agent = &*candidate.hit.agent;
        let redactor = AddressRedactor::new(agent, call.base_url, self.config.advertised_endpoints);
        let operation = operation_match::best_operation(agent, &request.intent);
        let mut fields = JsonObjectBuilder::default();
        fields.set("id", agent.id.as_str().into());
        fields.set("name", redactor.redact_text(entry_text(&agent.name)).into());
        fields.set_optional("version", agent.version.as_deref());
        let named_operation = operation.filter(|operation| !operation.name.is_empty());
        fields.set_optional("operation", named_operation.map(|operation| &*operation.name));
        fields.set("endpoint", redactor.operation_url(named_operation.map_or("", |operation| &operation.name)).into());
        fields.set("method", "POST".into());
        fields.set(
            "invocation",
            invocation_json(call.base_url, agent, operation, &RedactedDocument::new(agent, &redactor)),
        );
        let mut reasons = Vec::new();
        if let Some(score) = candidate.hit.score {
            fields.set("score", round_score(score).into());
            reasons.push(format!("matches the intent ({:.2})", round_score(score)));
        }
        reasons.extend(named_operation.map(|operation| format!("operation {} fits the intent best", operation.name)));
        reasons.extend(candidate.reasons.iter().cloned());
        fields.set("reasons", reasons.into());
        fields.into_value()
    }
}

/// Builds `invocation`: what a caller needs besides the address.
fn invocation_json(base: &str, agent: &Agent, operation: Option<&Operation>, document: &RedactedDocument) -> Value {
    let id = agent.id.as_str();
    let mut authentication = JsonObjectBuilder::default();
    authentication.set("type", document.authentication_type(agent).into());
    if !agent.authentication.scopes.is_empty() {
        authentication.set("scopes", agent.authentication.scopes.as_slice().into());
    }
    let instructions = document.member("authentication").and_then(|declared| declared.get("instructions"));
    authentication.set_optional("instructions", instructions.and_then(Value::as_str));
    let mut fields = JsonObjectBuilder::default();
    fields.set("content_type", "application/json".into());
    fields.set("authentication", authentication.into_value());
    fields.set("document", format!("{base}/agents/{id}").into());
    fields.set("openapi", format!("{base}/agents/{id}/openapi.json").into());
    let Some(operation) = operation else { return fields.into_value() };
    let sides = [("input_schema", "Input", &operation.inputs), ("output_schema", "Output", &operation.outputs)];
    for (name, suffix, _) in sides.into_iter().filter(|(_, _, declared)| declared.is_some()) {
        let schema = schema_name(operation, suffix);
        fields.set(name, format!("{base}/agents/{id}/openapi.json#/components/schemas/{schema}").into());
    }
    fields.into_value()
}

/// Orders by score in steps of a twentieth (smaller differences mean little), then by quality, then by id.
fn compare_candidates(one: &AgentCandidate, other: &AgentCandidate) -> std::cmp::Ordering {
    let score = |candidate: &AgentCandidate| (candidate.hit.score.unwrap_or_default() * 20.0).round();
    let by_score = score(other).total_cmp(&score(one));
    by_score.then(other.quality.total_cmp(&one.quality)).then_with(|| one.hit.agent.id.cmp(&other.hit.agent.id))
}

fn parse_intent_request(body: &Value) -> Result<IntentRequest> {
    let mut violations = Violations::default();
    let members = BodyMembers::new(body, &mut violations);
    let intent =
        members.text(&["intent", "query"], MAX_QUERY_CHARS, &mut violations).unwrap_or_default().trim().to_owned();
    if intent.is_empty() && members.member(&["intent", "query"]).is_none_or(|(_, intent)| intent.is_string()) {
        violations.add(members.member_pointer("intent"), "must describe the task in words");
    }
    let mut text = intent.clone();
    if let Some((_, context)) = members.member(&["context"]) {
        append_texts(context, &mut text);
    }
    let policy = members.object(&["policy"], &mut violations);
    let policy = policy.map(|policy| ResolutionPolicy::parse(&policy, &mut violations)).unwrap_or_default();
    let top = members.number(&["top", "limit"], 1..=100, &mut violations).unwrap_or(10);
    violations.into_result("The intent is not valid")?;
    Ok(IntentRequest { intent, search_text: text, policy, top })
}

/// Appends every string of a context, up to the length limit of a search.
fn append_texts(context: &Value, to: &mut String) {
    match context {
        Value::String(text) => {
            let remaining = MAX_QUERY_CHARS.saturating_sub(to.chars().count() + 1);
            to.push(' ');
            to.extend(text.chars().take(remaining));
        }
        Value::Array(items) => items.iter().for_each(|item| append_texts(item, to)),
        Value::Object(members) => members.values().for_each(|member| append_texts(member, to)),
        _ => {}
    }
}
