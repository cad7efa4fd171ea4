//! Semantic resolution (R9, R25): from an intent, its context and a policy to agents that may be called for it, each
//! with how it is called and why it stands where it does; and to those that the policy keeps out, with the reasons.
//! It takes no part in the call itself, and names no agent that the caller may not see.

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

/// Agents that are judged for one request.
const MOST_JUDGED: usize = 500;
/// Agents that are searched for at a time.
const AT_A_TIME: usize = 100;
/// Exclusions that are told, and agents that are looked at for them.
const MOST_EXCLUDED: usize = 50;

/// What is asked.
struct Asked {
    intent: String,
    /// The intent, and every text of the context: what is searched for.
    text: String,
    policy: Policy,
    top: usize,
}

/// An agent that fits.
struct Candidate {
    hit: Hit,
    /// For those that match the intent alike.
    quality: f64,
    reasons: Vec<String>,
}

impl Directory {
    /// `POST /agents/resolve`.
    pub(super) fn resolve(&self, ask: &Ask<'_>) -> Result<Answer> {
        media::choose(ask.headers, &[media::JSON])?;
        let asked = read(&body::json(ask, &[media::JSON], 64 << 10, 16)?)?;
        let (mut candidates, mut excluded) = (Vec::new(), Vec::new());
        let mut judged = 0;
        while judged < MOST_JUDGED {
            let found = self.find(ask, asked.policy.filters.clone(), &asked.text, (judged, AT_A_TIME));
            judged += found.hits.len();
            for hit in found.hits {
                let verdict = judge::judge(&asked.policy, &hit.agent);
                match verdict.against.is_empty() {
                    true => candidates.push(Candidate { hit, quality: verdict.quality, reasons: verdict.r#for }),
                    false => excluded.push((hit.agent.id.clone(), verdict.against)),
                }
            }
            if !found.more || candidates.len() >= asked.top {
                break;
            }
        }
        self.filtered_out(ask, &asked, &mut excluded);
        excluded.truncate(MOST_EXCLUDED);
        candidates.sort_by(better);
        candidates.truncate(asked.top);
        let candidates: Vec<Value> = candidates.iter().map(|one| self.candidate(ask, &asked, one)).collect();
        let excluded: Vec<Value> =
            excluded.iter().map(|(id, why)| json!({"id": id.as_str(), "reasons": why})).collect();
        let page = Page::json(media::JSON, &json!({"candidates": candidates, "excluded": excluded}))?;
        Ok(Answer::written(StatusCode::OK, page.into_body()))
    }

    /// Those that match the intent and that the filters kept out of the search.
    fn filtered_out(&self, ask: &Ask<'_>, asked: &Asked, excluded: &mut Vec<(crate::agent::AgentId, Vec<String>)>) {
        if asked.policy.filters == Filters::default() {
            return;
        }
        let every = Filters { status: vec![Word::Active, Word::Inactive, Word::Deprecated], ..Filters::default() };
        for hit in self.find(ask, every, &asked.text, (0, MOST_EXCLUDED)).hits {
            let verdict = judge::judge(&asked.policy, &hit.agent);
            if !verdict.against.is_empty() && !excluded.iter().any(|(id, _)| *id == hit.agent.id) {
                excluded.push((hit.agent.id.clone(), verdict.against));
            }
        }
    }

    fn candidate(&self, ask: &Ask<'_>, asked: &Asked, candidate: &Candidate) -> Value {
        let agent = &*candidate.hit.agent;
        let veil = Veil::over(agent, ask.base, self.config.endpoints);
        let operation = operation::fitting(agent, &asked.intent);
        let mut fields = Fields::default();
        fields.set("id", agent.id.as_str().into());
        fields.set("name", veil.text(&agent.name).into());
        fields.maybe("version", agent.version.as_deref());
        let named = operation.filter(|operation| !operation.name.is_empty());
        fields.maybe("operation", named.map(|operation| &*operation.name));
        fields.set("endpoint", veil.operation(named.map_or("", |operation| &operation.name)).into());
        fields.set("method", "POST".into());
        fields.set("invocation", invocation(ask.base, agent, operation, &Doc::of(agent, &veil)));
        let mut reasons = Vec::new();
        if let Some(score) = candidate.hit.score {
            fields.set("score", rounded(score).into());
            reasons.push(format!("matches the intent ({:.2})", rounded(score)));
        }
        reasons.extend(named.map(|operation| format!("its operation {} fits the intent best", operation.name)));
        reasons.extend(candidate.reasons.iter().cloned());
        fields.set("reasons", reasons.into());
        fields.done()
    }
}

/// What a caller needs besides the address.
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

/// By the intent, to a twentieth: less than that says little. Then by quality; then by id, so that the same question has the same answer.
fn better(one: &Candidate, other: &Candidate) -> std::cmp::Ordering {
    let score = |candidate: &Candidate| (candidate.hit.score.unwrap_or_default() * 20.0).round();
    let by_score = score(other).total_cmp(&score(one));
    by_score.then(other.quality.total_cmp(&one.quality)).then_with(|| one.hit.agent.id.cmp(&other.hit.agent.id))
}

fn read(body: &Value) -> Result<Asked> {
    let mut wrong = Wrong::default();
    let members = Members::of(body, &mut wrong);
    let intent = members.text(&["intent", "query"], LONGEST_TEXT, &mut wrong).unwrap_or_default().trim().to_owned();
    if intent.is_empty() && members.value(&["intent", "query"]).is_none_or(|(_, intent)| intent.is_string()) {
        wrong.say(members.pointer("intent"), "must say in words what is to be done");
    }
    let mut text = intent.clone();
    if let Some((_, context)) = members.value(&["context"]) {
        gather(context, &mut text);
    }
    let policy = members.object(&["policy"], &mut wrong);
    let policy = policy.map(|policy| Policy::read(&policy, &mut wrong)).unwrap_or_default();
    let top = members.number(&["top", "limit"], 1..=100, &mut wrong).unwrap_or(10);
    wrong.none("the intent is not valid")?;
    Ok(Asked { intent, text, policy, top })
}

/// Every text of a context, as far as a search reads.
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
