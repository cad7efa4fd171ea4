//! Pipelines: several agents, each called with the answer of the previous one. Every step is a subrequest with its own
//! authentication, limits, contract and access-log entry. All steps share one deadline, and no step starts before every
//! step is authorised. With an idempotency key the whole pipeline runs once.

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

/// The timeout of the request body, which describes the pipeline.
const BODY: Duration = Duration::from_secs(60);

impl Serving<'_> {
    /// Handles a pipeline (steps 6 to 12).
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

    /// Authenticates the caller and charges the pipeline as one request; each step is charged as another.
    async fn visited(&self, call: &mut Call, headers: &HeaderMap) -> Result<(Arc<Caller>, Option<Standing>)> {
        let presented = Presented { headers, peer: self.connection.certificate() };
        let open = !self.world.auth.anonymous().grants.is_empty();
        let caller = self.world.auth.visit(&presented, open).await?;
        self.gateway.let_in(call, &caller)?;
        call.is_from(&caller);
        let account = self.gateway.account(&caller, self.connection.peer.ip());
        let standing = self.gateway.limits.browse(&account, false)?;
        Ok((caller, standing))
    }

    /// Authorises every step before the first one runs; returns the longest total timeout of the agents.
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

    /// Runs the steps in order. A step that fails ends the pipeline; nothing is retried.
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
        answered.ok_or_else(|| Fault::new(Code::Internal, "The gateway failed").detail("a pipeline without steps"))
    }

    async fn step(&self, step: &Step, index: usize, input: Bytes, running: &Running) -> Result<Whole> {
        if Instant::now() >= running.until {
            return Err(Fault::new(Code::Timeout, "The time of the pipeline ended before this step"));
        }
        let headers = steps_fields(&running.headers, index);
        let passage =
            Passage { forwarded: Some(&running.forwarded), key_header: self.world.key_header.as_ref(), fields: &[] };
        let errand = Errand {
            shown: self.shown(&headers),
            passage,
            id: Some(&running.id),
            part: true,
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

/// What all steps of a run share.
struct Running {
    id: String,
    headers: HeaderMap,
    forwarded: HeaderValue,
    until: Instant,
}

/// Returns the caller's headers for one step: without those that apply to the whole pipeline, and with an idempotency
/// key of the step, because no two steps are the same call.
fn steps_fields(headers: &HeaderMap, index: usize) -> HeaderMap {
    let mut fields = headers.clone();
    for own in ["x-operation", "prefer", "content-encoding", "if-match", "if-none-match", "range"] {
        fields.remove(own);
    }
    number_key(&mut fields, index);
    fields
}

/// Adds the step's index and agent, and the number of steps that ran before it, to a fault.
fn at(fault: Fault, index: usize, step: &Step, run: usize) -> Fault {
    let agent = json::cut(&step.agent, 128);
    let before = match run {
        0 => format!("Step {index}: "),
        1 => format!("Step {index}, after 1 step has run: "),
        _ => format!("Step {index}, after {run} steps have run: "),
    };
    fault.preceded(&before).member("step", json!({"index": index, "agent": agent, "steps_run": run}))
}

/// Returns an agent's answer as the input of the next step: JSON unchanged, text as a string, an empty answer as null.
fn output(whole: Whole) -> Result<Bytes> {
    let wrong =
        |why: &str| Fault::new(Code::AgentError, format!("The answer cannot be the input of the next step: {why}"));
    let text = std::str::from_utf8(&whole.body).map_err(|_| wrong("it is not text"))?;
    if text.trim().is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    if looks_like_json(whole.headers.get(header::CONTENT_TYPE)) {
        json::read(&whole.body, json::DEEPEST).map_err(|why| wrong("it is not JSON").detail(why))?;
        return Ok(whole.body);
    }
    Ok(Bytes::from(json!(text).to_string()))
}

/// Returns the answer of the last step as the pipeline's response.
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
    fn each_step_gets_its_own_idempotency_key() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        headers.insert("x-operation", HeaderValue::from_static("all"));
        let fields = steps_fields(&headers, 3);
        assert_eq!(fields.get("idempotency-key").unwrap(), "k.3");
        assert!(!fields.contains_key("x-operation"));
    }
}
