//! Background calls: calls to an agent that own all their state and go on after their caller has left.

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

/// How long after its deadline a call may hold its concurrency permit.
const GRACE: Duration = Duration::from_secs(5);

/// A call to an agent, with everything that it needs.
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

/// The reply to a background call.
pub(super) enum Got {
    /// A reply that was read completely and validated.
    Whole(Whole),
    /// A reply that is passed on as it arrives, without validation.
    Passes(Reply),
}

impl Work {
    /// Makes the call. Reads and validates a reply of at most `most` bytes that is not a stream.
    ///
    /// # Errors
    /// The faults that the caller receives.
    pub(super) async fn run(mut self, most: usize) -> Result<Got> {
        guarded(self.admitted.until(), self.answer(most)).await
    }

    /// Makes the call for a task. The events of a stream go to the task's followers as they arrive.
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

    /// Sends the input; a batch returns a complete reply.
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
            return Err(Fault::new(Code::AgentError, "The agent's answer is too large to be stored"));
        }
        Ok(kept(&reply.headers, (reply.status, bytes), false))
    }

    fn judge(&self) -> Judge<'_> {
        Judge { gateway: &self.gateway, rules: &self.world.contract, admitted: &self.admitted }
    }
}

/// Runs a call without a waiting caller: bounds its time, and turns a panic into a fault.
async fn guarded<T>(until: Instant, call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Err(Fault::new(Code::Timeout, "The agent did not finish in time"));
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

/// Converts an early return into a fault; a background call has no caller that could leave.
fn fault(stop: Stop) -> Fault {
    match stop {
        Stop::Fault(fault) => fault,
        Stop::Gone => Fault::new(Code::Internal, "The gateway failed").detail("a background call lost its caller"),
    }
}

/// Publishes a stream of events to the task's followers. Returns the first `most` bytes of its text, and whether the
/// stream was longer.
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
