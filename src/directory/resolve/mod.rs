//! Semantic resolution (R9, R25): finds agents that may be called for an intent, with its context and a policy. Each
//! candidate has its invocation and the reasons for its rank; agents that the policy excludes are listed with the
//! reasons. The resolution does not call agents, and lists only agents visible to the caller.

mod judge;
mod operation;
mod policy;

use super::{
    Answer, Ask, Directory,
    address::Veil,
    body::{self, Members, Wrong},
    caching::Page,
    credentials::aidip,
    document::Doc,
    fields::Fields,
    list::LONGEST_TEXT,
    media,
    openapi::schema_name,
    summary::rounded,
};
use crate::{
    agent::{Agent, Operation},
    fault::Result,
    search::{Filters, Hit, Word},
};
use http::StatusCode;
use policy::Policy;
use serde_json::{Value, json};

/// Maximum number of agents evaluated for one request.
const MOST_JUDGED: usize = 500;
/// Number of agents in one search.
const AT_A_TIME: usize = 100;
/// Maximum number of exclusions, and of agents evaluated to find them.
const MOST_EXCLUDED: usize = 50;

/// A parsed request.
struct Asked {
    intent: String,
    /// Text of the search: the intent, and every string of the context.
    text: String,
    policy: Policy,
    top: usize,
}

/// An agent that satisfies the policy.
struct Candidate {
    hit: Hit,
    /// Quality, to order candidates of equal scores.
    quality: f64,
    reasons: Vec<String>,
}

impl Directory {
    /// `POST /agents/resolve`.
    pub(super) fn resolve(&self, call: &Ask<'_>) -> Result<Answer> {
        media::choose(call.headers, &[media::JSON])?;
        let asked = read(&body::json(call, &[media::JSON], 64 << 10, 16)?)?;
        let (mut candidates, mut excluded) = (Vec::new(), Vec::new());
        let mut judged = 0;
        while judged < MOST_JUDGED {
            let found = self.find(call, asked.policy.filters.clone(), &asked.text, (judged, AT_A_TIME));
            judged += found.hits.len();
            for hit in found.hits {
                let verdict = judge::judge(&asked.policy, &hit.agent);
                match verdict.against.is_empty() {
                    true => candidates.push(Candidate { hit, quality: verdict.quality, reasons: verdict.reasons }),
                    false => excluded.push((hit.agent.id.clone(), verdict.against)),
                }
            }
            if !found.more || candidates.len() >= asked.top {
                break;
            }
        }
        self.filtered_out(call, &asked, &mut excluded);
        excluded.truncate(MOST_EXCLUDED);
        candidates.sort_by(better);
        candidates.truncate(asked.top);
        let candidates: Vec<Value> = candidates.iter().map(|one| self.candidate(call, &asked, one)).collect();
        let excluded: Vec<Value> =
            excluded.iter().map(|(id, why)| json!({"id": id.as_str(), "reasons": why})).collect();
        let page = Page::json(media::JSON, &json!({"candidates": candidates, "excluded": excluded}))?;
        Ok(Answer::written(StatusCode::OK, page.into_body()))
    }

    /// Adds the agents that match the intent, but that the search filtered out.
    fn filtered_out(&self, call: &Ask<'_>, asked: &Asked, excluded: &mut Vec<(crate::agent::AgentId, Vec<String>)>) {
        if asked.policy.filters == Filters::default() {
            return;
        }
        let every = Filters { status: vec![Word::Active, Word::Inactive, Word::Deprecated], ..Filters::default() };
        for hit in self.find(call, every, &asked.text, (0, MOST_EXCLUDED)).hits {
            let verdict = judge::judge(&asked.policy, &hit.agent);
            if !verdict.against.is_empty() && !excluded.iter().any(|(id, _)| *id == hit.agent.id) {
                excluded.push((hit.agent.id.clone(), verdict.against));
            }
        }
    }

    fn candidate(&self, call: &Ask<'_>, asked: &Asked, candidate: &Candidate) -> Value {
        let agent = &*candidate.hit.agent;
        let redactor = Veil::over(agent, call.base, self.config.advertised_endpoints);
        let operation = operation::fitting(agent, &asked.intent);
        let mut fields = Fields::default();
        fields.set("id", agent.id.as_str().into());
        fields.set("name", redactor.text(&agent.name).into());
        fields.maybe("version", agent.version.as_deref());
        let named = operation.filter(|operation| !operation.name.is_empty());
        fields.maybe("operation", named.map(|operation| &*operation.name));
        fields.set("endpoint", redactor.operation(named.map_or("", |operation| &operation.name)).into());
        fields.set("method", "POST".into());
        fields.set("invocation", invocation(call.base, agent, operation, &Doc::of(agent, &redactor)));
        let mut reasons = Vec::new();
        if let Some(score) = candidate.hit.score {
            fields.set("score", rounded(score).into());
            reasons.push(format!("matches the intent ({:.2})", rounded(score)));
        }
        reasons.extend(named.map(|operation| format!("operation {} fits the intent best", operation.name)));
        reasons.extend(candidate.reasons.iter().cloned());
        fields.set("reasons", reasons.into());
        fields.done()
    }
}

/// Builds `invocation`: what a caller needs besides the address.
fn invocation(base: &str, agent: &Agent, operation: Option<&Operation>, doc: &Doc) -> Value {
    let id = agent.id.as_str();
    let mut authentication = Fields::default();
    authentication.set("type", aidip(agent.authentication.kind).into());
    if !agent.authentication.scopes.is_empty() {
        authentication.set("scopes", agent.authentication.scopes.as_slice().into());
    }
    let instructions = doc.get("authentication").and_then(|given| given.get("instructions"));
    authentication.maybe("instructions", instructions.and_then(Value::as_str));
    let mut fields = Fields::default();
    fields.set("content_type", "application/json".into());
    fields.set("authentication", authentication.done());
    fields.set("document", format!("{base}/agents/{id}").into());
    fields.set("openapi", format!("{base}/agents/{id}/openapi.json").into());
    let Some(operation) = operation else { return fields.done() };
    let sides = [("input_schema", "Input", &operation.inputs), ("output_schema", "Output", &operation.outputs)];
    for (name, side, _) in sides.into_iter().filter(|(_, _, declared)| declared.is_some()) {
        let place = schema_name(operation, side);
        fields.set(name, format!("{base}/agents/{id}/openapi.json#/components/schemas/{place}").into());
    }
    fields.done()
}

/// Orders by score in steps of a twentieth (smaller differences mean little), then by quality, then by id.
fn better(one: &Candidate, other: &Candidate) -> std::cmp::Ordering {
    let score = |candidate: &Candidate| (candidate.hit.score.unwrap_or_default() * 20.0).round();
    let by_score = score(other).total_cmp(&score(one));
    by_score.then(other.quality.total_cmp(&one.quality)).then_with(|| one.hit.agent.id.cmp(&other.hit.agent.id))
}

fn read(body: &Value) -> Result<Asked> {
    let mut violations = Wrong::default();
    let members = Members::of(body, &mut violations);
    let intent =
        members.text(&["intent", "query"], LONGEST_TEXT, &mut violations).unwrap_or_default().trim().to_owned();
    if intent.is_empty() && members.value(&["intent", "query"]).is_none_or(|(_, intent)| intent.is_string()) {
        violations.say(members.pointer("intent"), "must describe the task in words");
    }
    let mut text = intent.clone();
    if let Some((_, context)) = members.value(&["context"]) {
        gather(context, &mut text);
    }
    let policy = members.object(&["policy"], &mut violations);
    let policy = policy.map(|policy| Policy::read(&policy, &mut violations)).unwrap_or_default();
    let top = members.number(&["top", "limit"], 1..=100, &mut violations).unwrap_or(10);
    violations.none("The intent is not valid")?;
    Ok(Asked { intent, text, policy, top })
}

/// Appends every string of a context, up to the length limit of a search.
fn gather(context: &Value, to: &mut String) {
    match context {
        Value::String(text) => {
            let left = LONGEST_TEXT.saturating_sub(to.chars().count() + 1);
            to.push(' ');
            to.extend(text.chars().take(left));
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, to)),
        Value::Object(members) => members.values().for_each(|member| gather(member, to)),
        _ => {}
    }
}
