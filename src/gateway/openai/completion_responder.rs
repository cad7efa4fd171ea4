//! The answer to a request for a completion: calls the agent, and writes what it answers as an object or as a stream.

use super::{
    agent_answer::{AgentAnswer, no_text},
    agent_stream::AgentStream,
    chat_completion::{AnswerIdentity, chat_completion},
    completion_request::CompletionEndpoint,
    completion_stream::CompletionStream,
    config::OpenAiConfig,
    response_object::response_object,
    stream_writer::StreamWriter,
};
use crate::{
    explain::DecisionStep,
    gateway::{
        admission::{AdmissionRecorder as _, Admitted, AdmittedCall, BodyBound, CheckedCall},
        background::{
            BackgroundCall, BackgroundReply, KeyedCall, KeyedOutcome, ReportedFailures, claim_or_find, make_first_call,
            settle_streamed,
        },
        call::{CallError, CallResult},
        exchange::{AgentHeaders, Exchange},
        forwarded_query::AgentQuery,
        header_names::IDEMPOTENT_REPLAYED,
        response::{CompleteReply, ErrorEventDetector, is_event_stream},
        upstream::{BodyPump, OutgoingRequest, UpstreamHead, UpstreamTarget, gateway_headers, send_with_body},
    },
    http_server::{ResponseHead, ServeOutcome},
    transport::Admission as _,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::sync::Arc;

/// Answers a request for a completion.
pub(super) struct CompletionResponder {
    pub(super) identity: AnswerIdentity,
    pub(super) endpoint: CompletionEndpoint,
    /// Whether the answer is an event stream.
    pub(super) stream: bool,
    pub(super) includes_usage: bool,
    pub(super) rule: Option<Arc<OpenAiConfig>>,
}

impl CompletionResponder {
    /// Calls the agent with these header fields, once for each idempotency key, and writes its answer.
    pub(super) async fn run(
        self,
        exchange: &mut Exchange<'_>,
        checked: CheckedCall,
        headers: HeaderMap,
    ) -> CallResult<ServeOutcome> {
        if checked.idempotency_key().is_some() {
            return Box::pin(self.run_once(exchange, checked, headers)).await;
        }
        let call = exchange.admission().admit(exchange.call, checked).await?;
        self.call_agent(exchange, call, &headers).await
    }

    /// Makes the first call with its idempotency key, or writes the stored answer. An answer that is not streamed is
    /// stored as the agent gave it.
    async fn run_once(
        self,
        exchange: &mut Exchange<'_>,
        checked: CheckedCall,
        headers: HeaderMap,
    ) -> CallResult<ServeOutcome> {
        exchange.call.begin_step(DecisionStep::IdempotencyKey);
        // The model has the version as the caller wrote it.
        let form = format!("openai {}", self.identity.model);
        let key = checked.idempotency_key().unwrap_or_default();
        let keyed = KeyedCall { checked: &checked, key, form: &form };
        let mut claim = match claim_or_find(exchange, keyed).await? {
            KeyedOutcome::First(claim) => claim,
            KeyedOutcome::Stored(reply) => {
                let answer = self.read_reply(&reply)?;
                let agent = AgentHeaders { route: checked.route(), rate_limit_status: checked.rate_limit_status() };
                let replayed = HeaderMap::from_iter([(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"))]);
                return self.respond(exchange, agent, &answer, replayed).await;
            }
        };
        let call = exchange.admission().admit(exchange.call, checked).await?;
        if self.stream {
            claim.begin()?;
            let result = self.call_agent(exchange, call, &headers).await;
            settle_streamed(claim, &result).await;
            return result;
        }
        let mut background = BackgroundCall::new(exchange, call, AgentQuery { is_input: false, forwarded: None });
        background.headers = headers;
        let admitted = Arc::clone(&background.admitted);
        let sent_at = exchange.call.record_sent();
        let reply = make_first_call(exchange, background, claim, ReportedFailures::Fail).await;
        exchange.call.record_reply();
        exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
        let answer = match reply? {
            BackgroundReply::Complete { reply, .. } => self.read_reply(&reply)?,
            BackgroundReply::Streamed(reply) => {
                let agent = AgentStream { reply, pump: BodyPump::without_body() };
                agent.read_answer(exchange, &admitted, self.rule.as_deref()).await?
            }
        };
        self.respond(exchange, AgentHeaders::of(&admitted), &answer, HeaderMap::new()).await
    }

    fn read_reply(&self, reply: &CompleteReply) -> CallResult<AgentAnswer> {
        Ok(AgentAnswer::from_reply(&reply.headers, &reply.body, self.rule.as_deref())?)
    }

    async fn call_agent(
        self,
        exchange: &mut Exchange<'_>,
        call: AdmittedCall,
        headers: &HeaderMap,
    ) -> CallResult<ServeOutcome> {
        let AdmittedCall { admitted, input } = call;
        let set: Vec<_> = gateway_headers(exchange.call, &admitted).collect();
        let forwarded = exchange.forwarded_header();
        let sent_at = exchange.call.record_sent();
        let head = UpstreamHead {
            call_id: exchange.call.id(),
            target: UpstreamTarget::Operation,
            headers,
            query: None,
            forwarding: exchange.config.header_mutations(&forwarded, &set),
            instruction: None,
            attempts: exchange.call.stats.attempts(),
            trace: exchange.call.trace_scope(),
        };
        let max_body = BodyBound::of_streamed(admitted.agent_route(), exchange.config.max_streamed_body_size);
        let outgoing = OutgoingRequest { head, input, deadline: admitted.deadline().into_std(), max_body };
        let sent = send_with_body(exchange.gateway, exchange.session, &admitted, outgoing).await;
        exchange.call.record_reply();
        let response = match sent {
            Ok((reply, pump)) if self.stream && reply.status.is_success() && is_event_stream(&reply.headers) => {
                self.respond_with_stream(exchange, &admitted, AgentStream { reply, pump }).await
            }
            Ok((reply, pump)) => self.respond_complete(exchange, &admitted, AgentStream { reply, pump }).await,
            Err(error) => Err(error),
        };
        exchange.call.stats.upstream_duration = Some(sent_at.elapsed());
        response
    }

    /// Reads the whole answer, and writes it as an object, or as a stream with one part.
    async fn respond_complete(
        self,
        exchange: &mut Exchange<'_>,
        admitted: &Admitted,
        agent: AgentStream,
    ) -> CallResult<ServeOutcome> {
        let answer = agent.read_answer(exchange, admitted, self.rule.as_deref()).await?;
        self.respond(exchange, AgentHeaders::of(admitted), &answer, HeaderMap::new()).await
    }

    /// Writes a whole answer, with these header fields.
    async fn respond(
        self,
        exchange: &mut Exchange<'_>,
        agent: AgentHeaders<'_>,
        answer: &AgentAnswer,
        mut headers: HeaderMap,
    ) -> CallResult<ServeOutcome> {
        if self.stream {
            let mut stream = CompletionStream::new(&self.identity, self.endpoint, self.includes_usage);
            start_event_stream(exchange, agent, headers).await?;
            let mut writer = StreamWriter { exchange };
            let events = [stream.begin(), stream.part(answer)];
            return Ok(writer.finish(events.into_iter().chain(stream.end())).await);
        }
        let body = match self.endpoint {
            CompletionEndpoint::ChatCompletions => Bytes::from(chat_completion(&self.identity, answer).to_string()),
            CompletionEndpoint::Responses => response_object(&self.identity, answer),
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let reply = CompleteReply { status: StatusCode::OK, headers, body };
        exchange.respond_with_reply(reply, agent).await
    }

    /// Writes the parts of the answer as the agent sends them.
    async fn respond_with_stream(
        self,
        exchange: &mut Exchange<'_>,
        admitted: &Admitted,
        mut agent: AgentStream,
    ) -> CallResult<ServeOutcome> {
        start_event_stream(exchange, AgentHeaders::of(admitted), HeaderMap::new()).await?;
        let mut stream = CompletionStream::new(&self.identity, self.endpoint, self.includes_usage);
        let mut writer = StreamWriter { exchange };
        let detector = ErrorEventDetector::new(admitted.operation().declared_members);
        let mut parts = agent.parts(detector, self.rule.as_deref());
        if !writer.write(stream.begin(), false).await {
            return Ok(ServeOutcome::Aborted);
        }
        loop {
            let part = match parts.next_part(writer.exchange).await {
                Ok(part) => part,
                Err(CallError::CallerGone) => return Ok(writer.caller_gone()),
                Err(CallError::Fault(fault)) => return Ok(writer.fail(&mut stream, fault).await),
            };
            let Some(part) = part else { break };
            if !writer.write(stream.part(&part), false).await {
                return Ok(ServeOutcome::Aborted);
            }
        }
        // An agent whose events have no text that is known has not answered with an empty one.
        if parts.has_bytes() && !stream.is_known() {
            return Ok(writer.fail(&mut stream, no_text()).await);
        }
        Ok(writer.finish(stream.end()).await)
    }
}

/// Writes the head of an event stream, with these header fields.
///
/// # Errors
/// The caller is gone.
async fn start_event_stream(
    exchange: &mut Exchange<'_>,
    agent: AgentHeaders<'_>,
    mut headers: HeaderMap,
) -> CallResult<()> {
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    agent.add_to(&mut headers, exchange.call, None);
    if exchange.session.head().version == http::Version::HTTP_11 {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    exchange.session.prepare_keep_alive(exchange.connection).await;
    let started = exchange.start_stream(ResponseHead { status: StatusCode::OK, headers }).await;
    started.map_err(|_| CallError::CallerGone)
}
