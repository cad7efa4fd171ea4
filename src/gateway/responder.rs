//! Step 12: the response to the caller. Every response is written here and in `streamed_response`; every fault goes
//! through one function and one table.

use super::{
    CallError, ConfigSnapshot, Gateway,
    admission::Admitted,
    call::{Call, CallState},
    cors,
    http_server::{self, CallerConnection, ServeOutcome},
    reply_validation::ReplyValidator,
    requested_version::AGENT_VERSION_HEADER,
    response_headers::{REQUEST_ID, add_call_headers, agent_response_head, append_if_valid, response_head},
    response_normalization::may_embed_error,
    resumable_stream::FollowerResponse,
    route::{Route, is_json_content},
    streamed_response::{StreamedResponse, is_event_stream, is_message_sequence},
    subrequest::CompleteReply,
    upstream_request::BodyPump,
};
use crate::{
    auth::Caller,
    directory,
    fault::{ErrorFormat, Fault, FaultCode},
    limit::RateLimitStatus,
    transport::{BodyPrefix, UpstreamReply, filter_reply_headers},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use std::sync::Arc;

/// A reply of at most this size is inspected before its head is passed on.
const MAX_INSPECTED: usize = 64 << 10;

/// Writes the response to an admitted call.
pub(super) struct Responder<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) config: &'a ConfigSnapshot,
    pub(super) connection: &'a CallerConnection,
    pub(super) admitted: &'a Arc<Admitted>,
    pub(super) caller: &'a Caller,
    pub(super) rate_limit_status: Option<&'a RateLimitStatus>,
}

impl Responder<'_> {
    /// Writes the agent's reply, or returns the fault that it contains.
    pub(super) async fn respond(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        mut reply: UpstreamReply,
        mut pump: BodyPump<'_>,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let is_json = is_json_content(reply.headers.get(header::CONTENT_TYPE));
        if !reply.status.is_success() {
            // An agent that breaks off inside its error response has still failed.
            let BodyPrefix { bytes, complete } =
                self.read_prefix(session, &mut reply, &mut pump, MAX_INSPECTED).await.or_else(|stop| match stop {
                    CallError::CallerGone => Err(CallError::CallerGone),
                    CallError::Fault(_) => Ok(BodyPrefix { bytes: Bytes::new(), complete: false }),
                })?;
            self.validator().reject_failure(&reply, &bytes, complete)?;
            return Box::pin(self.stream_reply(session, call, reply, pump)).await;
        }
        let enforced = self.admitted.operation().contract.enforces_output();
        // A non-JSON reply to a JSON contract violates it too; a message sequence has no single body to validate.
        let enforced = enforced && reply.status != StatusCode::NO_CONTENT && !is_message_sequence(&reply.headers);
        let small = reply.body.length().is_some_and(|length| length <= MAX_INSPECTED as u64);
        if enforced || (is_json && small) {
            let max_bytes = if enforced { self.config.contract.max_body_size.get() } else { MAX_INSPECTED };
            let BodyPrefix { bytes, complete } = self.read_prefix(session, &mut reply, &mut pump, max_bytes).await?;
            if !complete {
                return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large to be validated").into());
            }
            self.validator().reject_failure(&reply, &bytes, true)?;
            self.validator().check_output(&bytes)?;
            return self.respond_complete(session, call, &reply, bytes).await;
        }
        if is_json && may_embed_error(&self.read_prefix(session, &mut reply, &mut pump, 0).await?.bytes) {
            let BodyPrefix { bytes, complete } =
                self.read_prefix(session, &mut reply, &mut pump, MAX_INSPECTED).await?;
            self.validator().reject_failure(&reply, &bytes, complete)?;
        }
        // Boxed as above: the common reply is complete, and its future need not have space for a stream.
        Box::pin(self.stream_reply(session, call, reply, pump)).await
    }

    async fn stream_reply(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        reply: UpstreamReply,
        pump: BodyPump<'_>,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let mut head = self.reply_head(session, call, &reply, None);
        let mut reply = reply;
        if is_event_stream(&reply.headers) && pump.is_body_sent() {
            match self.detach_stream(call, &mut head, reply) {
                Ok(follower) => {
                    let Self { config, connection, .. } = *self;
                    let following = FollowerResponse { config, connection, follower, is_original_caller: true };
                    return Ok(following.run(session, call, head).await);
                }
                Err(back) => reply = *back,
            }
        }
        Ok(StreamedResponse { responder: self, reply, pump }.run(session, call, head).await)
    }

    /// Writes a JSON body of the gateway with 200.
    pub(super) async fn respond_json(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        body: Bytes,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let head = self.full_head(call, StatusCode::OK, headers, Some(body.len()));
        write_response(session, self.connection, call, head, body).await
    }

    /// Writes an agent's reply that is complete and validated.
    pub(super) async fn respond_complete(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        reply: &UpstreamReply,
        body: Bytes,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let head = self.reply_head(session, call, reply, Some(body.len()));
        write_response(session, self.connection, call, head, body).await
    }

    fn reply_head(
        &self,
        session: &ServerSession,
        call: &Call,
        reply: &UpstreamReply,
        length: Option<usize>,
    ) -> ResponseHeader {
        let headers = filter_reply_headers(&reply.headers, reply.status);
        let length = length.or_else(|| reply.body.length().map(|length| length as usize));
        // RFC 9110 §8.6: a 204 has no Content-Length.
        if reply.status == StatusCode::NO_CONTENT {
            return self.full_head(call, reply.status, headers, None);
        }
        let mut head = self.full_head(call, reply.status, headers, length);
        if length.is_none() && session.req_header().version == Version::HTTP_11 {
            let _ = head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        head
    }

    fn full_head(&self, call: &Call, status: StatusCode, mut headers: HeaderMap, len: Option<usize>) -> ResponseHeader {
        // R68; an agent that sets the header itself keeps its value.
        if let Some(label) = self.admitted.version().and_then(|version| version.label.clone()) {
            headers.entry(AGENT_VERSION_HEADER).or_insert(label);
        }
        agent_response_head(call, (self.admitted.agent_route(), self.rate_limit_status), (status, headers), len)
    }

    fn validator(&self) -> ReplyValidator<'_> {
        ReplyValidator { gateway: self.gateway, contract_config: &self.config.contract, admitted: self.admitted }
    }

    /// Reports contract violations of a reply that has already been written.
    pub(super) fn report_violations(&self, body: &[u8]) {
        // The result is ignored: an enforced contract is validated before the reply is written.
        let _ = self.validator().check_output(body);
    }

    /// Reads the first bytes of a reply while watching the caller.
    async fn read_prefix(
        &self,
        session: &mut ServerSession,
        reply: &mut UpstreamReply,
        pump: &mut BodyPump<'_>,
        max_bytes: usize,
    ) -> std::result::Result<BodyPrefix, CallError> {
        tokio::pin! {
            let begin = reply.body.peek(max_bytes);
        }
        loop {
            tokio::select! {
                biased;
                begun = &mut begin => return Ok(begun?),
                moved = pump.advance(session) => moved?,
            }
        }
    }
}

/// Writes a stored reply of an agent; its headers are those that callers may receive.
pub(super) async fn write_stored_reply(
    session: &mut ServerSession,
    (connection, standing): (&CallerConnection, Option<&RateLimitStatus>),
    call: &mut Call,
    (route, whole): (&Route, CompleteReply),
) -> std::result::Result<ServeOutcome, CallError> {
    let CompleteReply { status, headers, body } = whole;
    let length = (status != StatusCode::NO_CONTENT).then_some(body.len());
    let head = agent_response_head(call, (route, standing), (status, headers), length);
    write_response(session, connection, call, head, body).await
}

/// Writes a response of the directory.
pub(super) async fn write_local_response(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    (answer, standing): (directory::DirectoryResponse, Option<RateLimitStatus>),
) -> std::result::Result<ServeOutcome, CallError> {
    let directory::DirectoryResponse { status, mut headers, body } = answer;
    // RFC 9110 §8.6, §15.4.5: neither has content, and Content-Length would describe another response.
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    add_call_headers(&mut headers, call, standing.as_ref());
    write_response(session, connection, call, response_head(status, headers), body).await
}

/// Writes a complete response, and records how the call ended.
async fn write_response(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    head: ResponseHeader,
    body: Bytes,
) -> std::result::Result<ServeOutcome, CallError> {
    let status = head.status.as_u16();
    call.state = match write_all(session, connection, head, body).await {
        Some(length) => {
            call.stats.bytes_out += length;
            CallState::Answered(status)
        }
        None => CallState::CallerGone(status),
    };
    Ok(if matches!(call.state, CallState::CallerGone(_)) { ServeOutcome::Aborted } else { ServeOutcome::Complete })
}

/// Writes head and body. Returns the bytes of the body, or `None` if the caller is gone.
async fn write_all(
    session: &mut ServerSession,
    connection: &CallerConnection,
    head: ResponseHeader,
    body: Bytes,
) -> Option<u64> {
    http_server::prepare_keep_alive(session, connection).await;
    // Pingora's HTTP/1 writer omits the body of a HEAD response; its HTTP/2 writer does not.
    let is_head = session.is_http2() && session.req_header().method == http::Method::HEAD;
    let body = if is_head { Bytes::new() } else { body };
    let length = body.len() as u64;
    session.set_write_timeout(Some(connection.limits.body_idle_timeout.get()));
    session.write_response_header(Box::new(head)).await.ok()?;
    session.write_response_body(body, true).await.ok()?;
    Some(length)
}

/// Writes a fault: the only place where a fault becomes a response.
pub(super) async fn write_fault(
    session: &mut ServerSession,
    connection: &CallerConnection,
    call: &mut Call,
    fault: Fault,
    format: ErrorFormat,
) -> ServeOutcome {
    let (head, body) = fault_response(call, &fault, format);
    let written = write_all(session, connection, head, body).await;
    call.stats.bytes_out += written.unwrap_or_default();
    call.state = CallState::Refused(fault);
    if written.is_some() { ServeOutcome::Complete } else { ServeOutcome::Aborted }
}

fn fault_response(call: &Call, fault: &Fault, format: ErrorFormat) -> (ResponseHeader, Bytes) {
    let (media, body) = match call.json_rpc_id() {
        Some(id) => ("application/json", fault.to_json_rpc_response(&id, call.id()).to_string().into_bytes()),
        None => (format.media_type(), fault.to_body(format, call.id())),
    };
    let body = Bytes::from(body);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(call.id()) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(secs) = fault.retry_after_secs() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    for (name, value) in fault.headers() {
        append_if_valid(&mut headers, name, value);
    }
    if let Some(page) = &call.cors_origin {
        cors::set_cors_headers(&mut headers, page.as_ref());
    }
    let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (response_head(status, headers), body)
}
