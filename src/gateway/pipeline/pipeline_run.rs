//! A run of a pipeline: its steps in order, each with the answer of the previous one.

use super::pipeline_definition::{PipelineDefinition, PipelineStep};
use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::{
        call_parameters::CallDeadline,
        caller_connection::CallerConnection,
        gateway_state::{ConfigSnapshot, Gateway},
        header_names::{OPERATION, PREFER},
        response::CompleteReply,
        route::is_json_content,
        subrequest::{Subrequest, SubrequestSender, SubrequestTrace},
        upstream::number_idempotency_key,
    },
    trace::{SpanKind, SpanScope, TraceOrigin},
    values::json,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::json;
use std::{sync::Arc, time::Instant};

/// A pipeline whose steps are authorised. It owns what it needs, so that it can go on without its caller.
pub(super) struct PipelineRun {
    pub(super) gateway: Arc<Gateway>,
    pub(super) config: Arc<ConfigSnapshot>,
    pub(super) connection: Arc<CallerConnection>,
    pub(super) definition: PipelineDefinition,
    pub(super) call_id: String,
    /// The caller's headers.
    pub(super) headers: HeaderMap,
    pub(super) forwarded: HeaderValue,
    /// The deadline of all steps together.
    pub(super) deadline: CallDeadline,
    /// The span of the pipeline.
    pub(super) trace: Option<SpanScope>,
}

impl PipelineRun {
    /// Runs the steps in order. A step that fails ends the pipeline; nothing is retried.
    ///
    /// # Errors
    /// The fault of the step, with its index and agent.
    pub(super) async fn run(mut self) -> Result<CompleteReply> {
        let PipelineDefinition { steps, mut input } = self.definition;
        self.definition = PipelineDefinition { steps: Vec::new(), input: Bytes::new() };
        let (last, mut final_reply) = (steps.len() - 1, None);
        for (index, step) in steps.iter().enumerate() {
            let in_step = |fault| with_step(fault, index, step, index);
            let step_input = std::mem::take(&mut input);
            let reply = self.run_step(step, index, step_input).await.map_err(in_step)?;
            if index == last {
                final_reply = Some(reply);
            } else {
                input = next_input(reply).map_err(in_step)?;
            }
        }
        final_reply.ok_or_else(|| Fault::from(FaultCode::Internal).with_detail("a pipeline without steps"))
    }

    async fn run_step(&self, step: &PipelineStep, index: usize, input: Bytes) -> Result<CompleteReply> {
        if Instant::now() >= self.deadline.at {
            let fault = Fault::new(FaultCode::Timeout, "The time of the pipeline ended before this step");
            return Err(self.deadline.timeout.name_in(fault.with_deadline()));
        }
        let headers = step_headers(&self.headers, index);
        let forwarding = self.config.header_mutations(&self.forwarded, &[]);
        let subrequest = Subrequest {
            context: self.connection.caller_context(&headers),
            forwarding,
            call_id: Some(&self.call_id),
            exempt_from_shedding: true,
            agent: &step.agent,
            operation: step.operation.as_deref(),
            input: Ok(input),
            instruction: step.instruction.as_deref(),
            deadline: Some(self.deadline),
            trace: self.trace.as_ref().map(|trace| SubrequestTrace {
                origin: TraceOrigin::Part(trace),
                name: "pipeline step",
                kind: SpanKind::Internal,
            }),
        };
        SubrequestSender { gateway: &self.gateway, config: &self.config }.fetch(subrequest).await
    }
}

/// Headers that apply to the whole pipeline.
const WHOLE_PIPELINE_HEADERS: [HeaderName; 6] =
    [OPERATION, PREFER, header::CONTENT_ENCODING, header::IF_MATCH, header::IF_NONE_MATCH, header::RANGE];

/// Returns the caller's headers for one step: without those that apply to the whole pipeline, and with an idempotency
/// key of the step, because no two steps are the same call.
pub(super) fn step_headers(caller_headers: &HeaderMap, index: usize) -> HeaderMap {
    let mut headers = caller_headers.clone();
    for name in WHOLE_PIPELINE_HEADERS {
        headers.remove(name);
    }
    number_idempotency_key(&mut headers, index);
    headers
}

/// Adds the step's index and agent, and the number of steps that ran before it, to a fault.
pub(super) fn with_step(fault: Fault, index: usize, step: &PipelineStep, steps_run: usize) -> Fault {
    let agent = json::truncate(&step.agent, 128);
    let prefix = match steps_run {
        0 => format!("Step {index}: "),
        1 => format!("Step {index}, after 1 step has run: "),
        _ => format!("Step {index}, after {steps_run} steps have run: "),
    };
    fault
        .with_message_prefix(&prefix)
        .with_member("step", json!({"index": index, "agent": agent, "steps_run": steps_run}))
}

/// Returns an agent's answer as the input of the next step: JSON unchanged, text as a string, an empty answer as null.
fn next_input(reply: CompleteReply) -> Result<Bytes> {
    let unusable = |why: &str| {
        Fault::new(FaultCode::AgentError, format!("The answer cannot be the input of the next step: {why}"))
    };
    let text = std::str::from_utf8(&reply.body).map_err(|_| unusable("it is not text"))?;
    if text.trim().is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    if is_json_content(reply.headers.get(header::CONTENT_TYPE)) {
        json::parse(&reply.body, json::MAX_DEPTH).map_err(|why| unusable("it is not JSON").with_detail(why))?;
        return Ok(reply.body);
    }
    Ok(Bytes::from(json!(text).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_gets_its_own_idempotency_key() {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("k"));
        headers.insert("x-operation", HeaderValue::from_static("all"));
        let step = step_headers(&headers, 3);
        assert_eq!(step.get("idempotency-key").unwrap(), "k.3");
        assert!(!step.contains_key("x-operation"));
    }
}
