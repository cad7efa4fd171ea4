//! A call to an agent that goes on whether or not its caller listens: it owns everything that it needs.

use super::{
    Gateway, Stop, World,
    admit::Admitted,
    batch::Batch,
    errand::Whole,
    forward::Told,
    input::Input,
    judge::Judge,
    serve::caught,
    stream::{is_events, is_sequence},
};
use crate::{
    auth::Caller,
    fault::{Code, Fault, Result},
    task::{Answer, Live, Outcome},
    transport::{Beginning, Body, Passage, Reply},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How much longer than its deadline a call may hold its place.
const GRACE: Duration = Duration::from_secs(5);

/// A call with everything that it needs.
pub(super) struct Work {
    pub(super) gateway: Arc<Gateway>,
    pub(super) world: Arc<World>,
    pub(super) admitted: Arc<Admitted>,
    pub(super) caller: Arc<Caller>,
    pub(super) peer: IpAddr,
    pub(super) forwarded: HeaderValue,
    pub(super) headers: HeaderMap,
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) id: String,
    /// The input; whole, or a batch.
    pub(super) input: Input,
}

/// What came of it.
pub(super) enum Got {
    /// An answer that is whole, and judged.
    Whole(Whole),
    /// An answer that is passed on piece by piece; it is not judged.
    Passes(Reply),
}

impl Work {
    /// Makes the call; an answer of at most `most` bytes that is no stream is read and judged.
    ///
    /// # Errors
    /// Whatever the caller would be answered.
    pub(super) async fn run(mut self, most: usize) -> Result<Got> {
        guarded(self.admitted.until(), self.answer(most)).await
    }

    /// Makes the call for a task: a stream's events are told as they come.
    pub(super) async fn run_as_task(mut self, live: &Live, most: usize) -> Outcome {
        match guarded(self.admitted.until(), self.answer_later(live, most)).await {
            Ok(answer) => Outcome::Answered(answer),
            Err(fault) => Outcome::Failed(fault),
        }
    }

    async fn answer(&mut self, most: usize) -> Result<Got> {
        let mut reply = match self.send().await? {
            Got::Passes(reply) if !is_sequence(&reply.headers) => reply,
            got => return Ok(got),
        };
        let Beginning { bytes, complete } = reply.body.beginning(most).await?;
        if !complete {
            return Ok(Got::Passes(reply));
        }
        let judge = self.judge();
        judge.verdict(&reply, &bytes, true)?;
        judge.kept(&reply, &bytes)?;
        Ok(Got::Whole(Whole { status: reply.status, headers: reply.headers, body: bytes }))
    }

    /// Sends the input; a batch is answered whole.
    async fn send(&mut self) -> Result<Got> {
        let input = std::mem::replace(&mut self.input, Input::Stream(Bytes::new()));
        let passage = Passage {
            forwarded: Some(&self.forwarded),
            key_header: self.world.key_header.as_ref(),
            fields: &self.fields,
        };
        let told = Told { id: &self.id, headers: &self.headers, passage, instruction: None };
        let (gateway, admitted) = (&self.gateway, &*self.admitted);
        match input {
            Input::Batch(items) => {
                let account = gateway.account(&self.caller, self.peer);
                let (rules, own) = (&self.world.contract, tokio::sync::Mutex::default());
                let body = Batch { gateway, admitted, account, told, rules, own }.run(items, &self.id).await;
                let mut headers = HeaderMap::new();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                Ok(Got::Whole(Whole { status: StatusCode::OK, headers, body }))
            }
            Input::Whole(bytes) | Input::Stream(bytes) => {
                gateway.send(admitted, told, Body::from(bytes)).await.map(Got::Passes)
            }
        }
    }

    async fn answer_later(&mut self, live: &Live, most: usize) -> Result<Answer> {
        let mut reply = match self.answer(most).await? {
            Got::Whole(whole) => return Ok(kept(&whole.headers, (whole.status, whole.body), false)),
            Got::Passes(reply) => reply,
        };
        if !reply.status.is_success() {
            self.judge().whole(&mut reply).await?;
        }
        if is_events(&reply.headers) {
            let (body, cut) = pour(&mut reply, live, most).await?;
            return Ok(kept(&reply.headers, (reply.status, body), cut));
        }
        let Beginning { bytes, complete } = reply.body.beginning(most).await?;
        if !complete {
            return Err(Fault::new(Code::AgentError, "the agent's answer is too large to be kept"));
        }
        Ok(kept(&reply.headers, (reply.status, bytes), false))
    }

    fn judge(&self) -> Judge<'_> {
        Judge { gateway: &self.gateway, rules: &self.world.contract, admitted: &self.admitted }
    }
}

/// Nobody waits for such a call: it ends in time by itself, and its panic ends nothing else.
async fn guarded<T>(until: Instant, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Err(Fault::new(Code::Timeout, "The agent did not finish in time."));
    let timed = async {
        let called = tokio::time::timeout_at(until + GRACE, call).await;
        called.unwrap_or_else(late).map_err(Stop::Fault)
    };
    caught(timed).await.map_err(fault)
}

fn kept(headers: &HeaderMap, (status, body): (StatusCode, Bytes), cut: bool) -> Answer {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    Answer { status: status.as_u16(), media: media.into(), body, cut }
}

/// A stop as a fault; work has nobody who could leave.
fn fault(stop: Stop) -> Fault {
    match stop {
        Stop::Fault(fault) => fault,
        Stop::Gone => Fault::new(Code::Internal, "the gateway failed").detail("work that nobody waits for stopped"),
    }
}

/// Moves a stream of events to whoever follows; keeps at most `most` bytes of its text, and says whether that is not
/// all of it.
pub(super) async fn pour(reply: &mut Reply, live: &Live, most: usize) -> Result<(Bytes, bool)> {
    let (mut text, mut cut) = (Vec::new(), false);
    while let Some(bytes) = reply.body.chunk().await.transpose()? {
        cut |= text.len() + bytes.len() > most;
        if !cut {
            text.extend_from_slice(&bytes);
        }
        live.push(&bytes).await;
    }
    live.rest().await;
    Ok((text.into(), cut))
}
