//! A request of OpenAI's API: a list of models, or a call of the agent that `model` names.

use super::{
    agent_answer::{AgentAnswer, no_text},
    chat_completion::{AnswerIdentity, chat_completion},
    completion_call::{authenticate, check_call, read_request, set_agent_headers},
    completion_request::{CompletionEndpoint, CompletionRequest},
    completion_stream::CompletionStream,
    config::OpenAiConfig,
    model_list::{find_model, list_models},
    response_object::response_object,
};
use crate::{
    directory::DirectoryResponse,
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{
            AdmissionRecorder as _, Admitted, AdmittedCall, BodyAccount, BodyBound, IncomingBody, LocalAccess,
            LocalCaller, rate_limit_account,
        },
        call::{CallError, CallResult, CallState},
        exchange::{AgentHeaders, Exchange},
        path_router::OpenAiRequest,
        response::{CompleteReply, ErrorEventDetector, EventSplitter, ReplyValidator, event_data, is_event_stream},
        upstream::{BodyPump, OutgoingRequest, UpstreamHead, UpstreamTarget, gateway_headers, send_with_body},
    },
    http_server::{ResponseHead, ServeOutcome},
    transport::{Admission as _, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The timeout of the request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Handles a request (steps 5 to 12).
pub(in crate::gateway) async fn handle_openai_request(
    exchange: &mut Exchange<'_>,
    request: OpenAiRequest,
) -> CallResult<ServeOutcome> {
    let endpoint = match request {
        OpenAiRequest::Models => return respond_with_models(exchange, None).await,
        OpenAiRequest::Model(id) => return respond_with_models(exchange, Some(&id)).await,
        OpenAiRequest::ChatCompletions => CompletionEndpoint::ChatCompletions,
        OpenAiRequest::Responses => CompletionEndpoint::Responses,
    };
    let request = read_charged_request(exchange, endpoint).await?;
    let (admission, head) = (exchange.admission(), exchange.session.head());
    let caller = exchange.connection.caller_context(&head.headers);
    let checked = check_call(admission, exchange.call, caller, &request).await?;
    let rule = checked.route().openai.clone();
    let mut headers = head.headers.clone();
    set_agent_headers(&mut headers, &request);
    let admitted_call = admission.admit(exchange.call, checked).await?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let identity = AnswerIdentity { id: exchange.call.id().to_owned(), model: request.model, created };
    let completion =
        Completion { identity, endpoint, stream: request.stream, includes_usage: request.includes_usage, rule };
    completion.run(exchange, admitted_call, &headers).await
}

async fn respond_with_models(exchange: &mut Exchange<'_>, id: Option<&str>) -> CallResult<ServeOutcome> {
    exchange.call.mark_directory_request();
    let allow_anonymous = exchange.config.auth.anonymous_caller().grants.has_grant();
    let access = LocalAccess { allow_anonymous, is_search: false, changes_state: false };
    let LocalCaller { caller, rate_limit_status } = exchange.authenticate_and_limit(access).await?;
    let body = match id {
        None => list_models(exchange, &caller),
        Some(id) => find_model(exchange, &caller, id)?,
    };
    let mut headers = json_headers();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
    let response = DirectoryResponse { status: StatusCode::OK, headers, body: Bytes::from(body.to_string()) };
    exchange.respond_locally(response, rate_limit_status.as_ref()).await
}

/// Reads the request of a caller that has a valid credential. One that names no call that limits could charge counts as a
/// request of the directory.
async fn read_charged_request(exchange: &mut Exchange<'_>, endpoint: CompletionEndpoint) -> Result<CompletionRequest> {
    let context = exchange.connection.caller_context(&exchange.session.head().headers);
    let caller = authenticate(exchange.admission(), exchange.call, &context).await?;
    let (limits, config) = (&exchange.gateway.limits, &exchange.config.contract);
    let account = BodyAccount { limits, client: exchange.client() };
    let incoming = IncomingBody::new(&mut *exchange.session, exchange.call.arrived_at() + BODY_TIMEOUT);
    let request = read_request(config, endpoint, incoming, account).await;
    if request.is_err() {
        let account = rate_limit_account(&caller, exchange.connection.client_address());
        limits.acquire_for_directory(&account, false).await?;
    }
    request
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

/// The answer that a client waits for.
struct Completion {
    identity: AnswerIdentity,
    endpoint: CompletionEndpoint,
    stream: bool,
    includes_usage: bool,
    rule: Option<Arc<OpenAiConfig>>,
}

impl Completion {
    async fn run(
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
        if self.stream {
            let mut stream = CompletionStream::new(&self.identity, self.endpoint, self.includes_usage);
            let body = [stream.begin(), stream.part(&answer), stream.end()].concat();
            let headers = HeaderMap::from_iter(event_stream_headers());
            let reply = CompleteReply { status: StatusCode::OK, headers, body: body.into() };
            return exchange.respond_with_reply(reply, AgentHeaders::of(admitted)).await;
        }
        let body = match self.endpoint {
            CompletionEndpoint::ChatCompletions => chat_completion(&self.identity, &answer),
            CompletionEndpoint::Responses => response_object(&self.identity, &answer),
        };
        let body = Bytes::from(body.to_string());
        let reply = CompleteReply { status: StatusCode::OK, headers: json_headers(), body };
        exchange.respond_with_reply(reply, AgentHeaders::of(admitted)).await
    }

    /// Writes the parts of the answer as the agent sends them.
    async fn respond_with_stream(
        self,
        exchange: &mut Exchange<'_>,
        admitted: &Admitted,
        mut agent: AgentStream,
    ) -> CallResult<ServeOutcome> {
        let mut headers = HeaderMap::from_iter(event_stream_headers());
        AgentHeaders::of(admitted).add_to(&mut headers, exchange.call, None);
        if exchange.session.head().version == http::Version::HTTP_11 {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        exchange.session.prepare_keep_alive(exchange.connection).await;
        exchange
            .start_stream(ResponseHead { status: StatusCode::OK, headers })
            .await
            .map_err(|_| CallError::CallerGone)?;
        let mut stream = CompletionStream::new(&self.identity, self.endpoint, self.includes_usage);
        let mut writer = StreamWriter { exchange };
        let mut events = EventSplitter::default();
        let mut detector = ErrorEventDetector::new(admitted.operation().declared_members);
        // An agent whose events have no text that is known has not answered with an empty one.
        let mut has_events = false;
        let begin = stream.begin();
        if !writer.write(begin, false).await {
            return Ok(ServeOutcome::Aborted);
        }
        loop {
            let chunk = match agent.next_chunk(writer.exchange).await {
                Ok(chunk) => chunk,
                Err(CallError::CallerGone) => return Ok(writer.caller_gone()),
                Err(CallError::Fault(fault)) => return Ok(writer.fail(&mut stream, fault).await),
            };
            let is_last = chunk.is_none();
            let ready = match chunk {
                Some(chunk) => events.push(chunk),
                None => events.take_rest(),
            };
            if !events.can_append_event() {
                // The rest of such an event would be lost.
                let fault = Fault::new(FaultCode::AgentError, "An event of the agent's stream is too long");
                return Ok(writer.fail(&mut stream, fault).await);
            }
            let failure = if is_last { detector.finish() } else { detector.push(&ready) };
            if let Some(fault) = failure {
                return Ok(writer.fail(&mut stream, fault).await);
            }
            let parts = event_data(&ready).map(|data| AgentAnswer::from_event(&data, self.rule.as_deref()));
            let mut written: Vec<Bytes> = parts.map(|part| stream.part(&part)).collect();
            has_events |= !written.is_empty();
            if is_last && has_events && !stream.has_text() {
                return Ok(writer.fail(&mut stream, no_text()).await);
            }
            if is_last {
                written.push(stream.end());
            }
            if !writer.write(written.concat().into(), is_last).await {
                return Ok(ServeOutcome::Aborted);
            }
            if is_last {
                writer.exchange.call.state = CallState::Answered(StatusCode::OK.as_u16());
                return Ok(ServeOutcome::Complete);
            }
        }
    }
}

fn event_stream_headers() -> [(http::HeaderName, HeaderValue); 2] {
    [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ]
}

/// The reply of the agent, while the caller is watched.
struct AgentStream {
    reply: UpstreamReply,
    pump: BodyPump,
}

impl AgentStream {
    async fn next_chunk(&mut self, exchange: &mut Exchange<'_>) -> CallResult<Option<Bytes>> {
        loop {
            tokio::select! {
                biased;
                chunk = self.reply.body.next_chunk() => return Ok(chunk.transpose()?),
                result = self.pump.advance(exchange.session) => result?,
            }
        }
    }

    /// Reads and judges the whole reply.
    async fn read_answer(
        mut self,
        exchange: &mut Exchange<'_>,
        admitted: &Admitted,
        rule: Option<&OpenAiConfig>,
    ) -> CallResult<AgentAnswer> {
        let Exchange { gateway, config, .. } = *exchange;
        let validator = ReplyValidator { gateway, contract_config: &config.contract, admitted };
        let is_stream = is_event_stream(&self.reply.headers);
        let (body, reported) = {
            let mut reading = std::pin::pin!(validator.read_and_judge(&mut self.reply));
            loop {
                tokio::select! {
                    biased;
                    read = &mut reading => break read?,
                    result = self.pump.advance(exchange.session) => result?,
                }
            }
        };
        if let Some(fault) = reported {
            return Err(fault.into());
        }
        if !is_stream {
            return Ok(AgentAnswer::from_body(&body, rule)?);
        }
        let mut whole = AgentAnswer::default();
        let mut has_events = false;
        for part in event_data(&body).map(|data| AgentAnswer::from_event(&data, rule)) {
            has_events = true;
            whole.text.push_str(&part.text);
            whole.usage = part.usage.or(whole.usage);
        }
        if has_events && whole.text.is_empty() { Err(no_text().into()) } else { Ok(whole) }
    }
}

/// Writes the events of a stream.
struct StreamWriter<'r, 'a> {
    exchange: &'r mut Exchange<'a>,
}

impl StreamWriter<'_, '_> {
    /// Writes a part; returns whether the caller is still there.
    async fn write(&mut self, bytes: Bytes, is_last: bool) -> bool {
        if bytes.is_empty() && !is_last {
            return true;
        }
        self.exchange.call.stats.bytes_out += bytes.len() as u64;
        let is_written = self.exchange.session.write_body(bytes, is_last).await.is_ok();
        if !is_written {
            self.caller_gone();
        }
        is_written
    }

    fn caller_gone(&mut self) -> ServeOutcome {
        self.exchange.call.state = CallState::CallerGone(StatusCode::OK.as_u16());
        ServeOutcome::Aborted
    }

    /// Ends the stream with the event of a failure.
    async fn fail(&mut self, stream: &mut CompletionStream<'_>, fault: Fault) -> ServeOutcome {
        let event = stream.failure(&fault);
        let is_written = self.write(event, true).await;
        self.exchange.call.state = CallState::FailedMidResponse(StatusCode::OK.as_u16(), fault);
        if is_written { ServeOutcome::Complete } else { ServeOutcome::Aborted }
    }
}
