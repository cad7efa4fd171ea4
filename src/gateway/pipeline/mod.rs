//! Pipelines: several agents, each called with what the one before it answered. Every step is an errand with its own
//! authentication, limits, contract and record; all of them share one deadline, and none begins before it is known
//! that the caller may make every one. With an idempotency key, all of it happens once.

mod keyed;
mod read;

use super::{
    Stop, accept,
    admit::Shown,
    asks::within,
    body::{Incoming, Pace},
    call::Call,
    errand::{Errand, Whole},
    fields::number_key,
    input,
    keyed::watched,
    listen::Outcome,
    reply,
    route::looks_like_json,
    serve::{Serving, host},
};
use crate::{
    auth::{Caller, Presented},
    contract,
    directory::Answer,
    fault::{Code, Fault, Result},
    limit::Standing,
    once,
    transport::Passage,
    unit::json,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use keyed::Keyed;
use pingora_core::protocols::http::ServerSession;
use read::{Pipeline, Step};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the description of a pipeline may take to arrive.
const BODY: Duration = Duration::from_secs(60);

impl Serving<'_> {
    /// Steps 6 to 12 for a pipeline.
    pub(super) async fn pipeline(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
    ) -> std::result::Result<Outcome, Stop> {
        let head = session.req_header().clone();
        let (caller, standing) = self.visited(call, &head.headers).await?;
        let pace = Pace { connection: self.connection, until: call.arrived() + BODY };
        let mut incoming = Incoming::new(session, pace);
        accept::json_body(incoming.headers())?;
        let body = incoming.whole(self.world.contract.max_body.get()).await?;
        let bounds = contract::Bounds { depth: self.world.contract.max_depth };
        let pipeline = Pipeline::read(&body, &contract::parse(&body, &bounds)?)?;
        let most = self.may(call, &pipeline, &steps_fields(&head.headers, 0)).await?;
        let until = within(call, most, &head.headers)?;
        call.is_from(&caller);
        let forwarded = self.connection.forwarded(host(&head));
        let running = Running { id: call.id().to_owned(), headers: head.headers.clone(), forwarded, until };
        let key = if self.world.once.is_on() { once::key(&running.headers)?.map(str::to_owned) } else { None };
        let answered = match key {
            None => answer(watched(session, self.run(pipeline, running)).await??),
            Some(key) => {
                let keyed = Keyed::new((&caller, self.connection.peer.ip()), key, (&body, &running.headers));
                self.run_once(session, (pipeline, running), keyed).await?
            }
        };
        reply::local(session, self.connection, call, (answered, standing)).await
    }

    /// Who asks, and that it may ask now: the pipeline is one request, and each of its steps is another.
    async fn visited(&self, call: &mut Call, headers: &HeaderMap) -> Result<(Arc<Caller>, Option<Standing>)> {
        let presented = Presented { headers, peer: self.connection.certificate() };
        let open = !self.world.auth.anonymous().grants.is_empty();
        let caller = self.world.auth.visit(&presented, open).await?;
        call.is_from(&caller);
        let account = self.gateway.account(&caller, self.connection.peer.ip());
        let standing = self.gateway.limits.browse(&account, false)?;
        Ok((caller, standing))
    }

    /// Whether every step may be made, before the first is; the longest time that one of its agents has.
    async fn may(&self, call: &mut Call, pipeline: &Pipeline, headers: &HeaderMap) -> Result<Duration> {
        let mut most = Duration::ZERO;
        for (index, step) in pipeline.steps.iter().enumerate() {
            let place = |fault| at(fault, index, step, 0);
            let found = self.gateway.identify(self.world, call, &step.agent, self.shown(headers)).await;
            let (route, _) = found.map_err(place)?;
            route.served().map_err(place)?;
            input::named(&route, step.operation.as_deref(), headers).map_err(place)?;
            most = most.max(route.way.bounds().total);
        }
        Ok(most)
    }

    /// Every step, one after the other. A step that fails is the last, and nothing is tried again.
    async fn run(&self, pipeline: Pipeline, running: Running) -> Result<Whole> {
        let Pipeline { steps, mut input } = pipeline;
        let (last, mut answered) = (steps.len() - 1, None);
        for (index, step) in steps.iter().enumerate() {
            let place = |fault| at(fault, index, step, index);
            let given = std::mem::take(&mut input);
            let whole = self.step(step, index, given, &running).await.map_err(place)?;
            match index == last {
                true => answered = Some(whole),
                false => input = output(whole).map_err(place)?,
            }
        }
        answered.ok_or_else(|| Fault::new(Code::Internal, "the gateway failed").detail("a pipeline without steps"))
    }

    async fn step(&self, step: &Step, index: usize, input: Bytes, running: &Running) -> Result<Whole> {
        if Instant::now() >= running.until {
            return Err(Fault::new(Code::Timeout, "the time for the whole pipeline was over before this step"));
        }
        let headers = steps_fields(&running.headers, index);
        let passage =
            Passage { forwarded: Some(&running.forwarded), key_header: self.world.key_header.as_ref(), fields: &[] };
        let errand = Errand {
            shown: self.shown(&headers),
            passage,
            id: Some(&running.id),
            agent: &step.agent,
            operation: step.operation.as_deref(),
            input,
            instruction: step.instruction.as_deref(),
            until: Some(running.until),
        };
        self.gateway.whole_errand(self.world, errand).await
    }

    fn shown<'a>(&'a self, headers: &'a HeaderMap) -> Shown<'a> {
        Shown { headers, peer: self.connection.certificate(), address: self.connection.peer.ip() }
    }
}

/// What all steps share.
struct Running {
    id: String,
    headers: HeaderMap,
    forwarded: HeaderValue,
    until: Instant,
}

/// The caller's fields as one step has them: without those that speak of the pipeline as a whole, and with an
/// idempotency key of the step's own, since no two steps are the same call.
fn steps_fields(headers: &HeaderMap, index: usize) -> HeaderMap {
    let mut fields = headers.clone();
    for own in ["x-operation", "prefer", "content-encoding", "if-match", "if-none-match", "range"] {
        fields.remove(own);
    }
    number_key(&mut fields, index);
    fields
}

/// The fault of a step, with its place and with how much has been done before it.
fn at(fault: Fault, index: usize, step: &Step, run: usize) -> Fault {
    let agent = json::cut(&step.agent, 128);
    let before = match run {
        0 => format!("step {index}: "),
        1 => format!("step {index}, after 1 step has run: "),
        _ => format!("step {index}, after {run} steps have run: "),
    };
    fault.preceded(&before).member("step", json!({"index": index, "agent": agent, "steps_run": run}))
}

/// What an agent answered, as the input of the next: JSON as it is, text as a string, nothing as null.
fn output(whole: Whole) -> Result<Bytes> {
    let wrong =
        |why: &str| Fault::new(Code::AgentError, format!("its answer cannot be the input of the next step: {why}"));
    let text = std::str::from_utf8(&whole.body).map_err(|_| wrong("it is no text"))?;
    if text.trim().is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    if looks_like_json(whole.headers.get(header::CONTENT_TYPE)) {
        json::read(&whole.body, json::DEEPEST).map_err(|why| wrong("it is not JSON").detail(why))?;
        return Ok(whole.body);
    }
    Ok(Bytes::from(json!(text).to_string()))
}

/// The last step's answer as the pipeline's.
fn answer(whole: Whole) -> Answer {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, whole.headers.get(header::CONTENT_TYPE).cloned().unwrap_or(json));
    let status = if whole.status == StatusCode::NO_CONTENT { whole.status } else { StatusCode::OK };
    Answer { status, headers, body: whole.body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_an_idempotency_key_of_its_own() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        headers.insert("x-operation", HeaderValue::from_static("all"));
        let fields = steps_fields(&headers, 3);
        assert_eq!(fields.get("idempotency-key").unwrap(), "k.3");
        assert!(!fields.contains_key("x-operation"));
    }
}
