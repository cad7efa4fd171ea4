//! Step 12: the response to an admitted call, from the agent's reply: a fault if the reply is a failure, a complete
//! response (`response_writer`) if it is short or must be validated, else a stream (`streamed_response`,
//! `resumable_stream`).

use super::{
    CallError, ConfigSnapshot, Gateway,
    admission::Admitted,
    call::Call,
    http_server::{CallerConnection, ServeOutcome},
    reply_validation::ReplyValidator,
    requested_version::AGENT_VERSION_HEADER,
    response_headers::{add_agent_response_headers, response_head},
    response_normalization::may_embed_error,
    response_writer,
    resumable_stream::FollowerResponse,
    route::is_json_content,
    streamed_response::{StreamedResponse, is_event_stream, is_message_sequence},
    upstream_request::BodyPump,
};
use crate::{
    auth::Caller,
    fault::{Fault, FaultCode},
    limit::RateLimitStatus,
    transport::{BodyPrefix, UpstreamReply, filter_reply_headers},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use std::sync::Arc;

/// Replies up to this size are inspected before their head is forwarded.
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
                self.read_prefix(session, &mut reply, &mut pump, MAX_INSPECTED).await.or_else(|error| match error {
                    CallError::CallerGone => Err(CallError::CallerGone),
                    CallError::Fault(_) => Ok(BodyPrefix { bytes: Bytes::new(), complete: false }),
                })?;
            self.validator().reject_failure(&reply, &bytes, complete)?;
            return Box::pin(self.stream_reply(session, call, reply, pump)).await;
        }
        let enforces_output = self.admitted.operation().contract.enforces_output();
        // A non-JSON reply to a JSON contract violates it too; a message sequence has no single body to validate.
        let enforces_output =
            enforces_output && reply.status != StatusCode::NO_CONTENT && !is_message_sequence(&reply.headers);
        let is_small = reply.body.length().is_some_and(|length| length <= MAX_INSPECTED as u64);
        if enforces_output || (is_json && is_small) {
            let max_bytes = if enforces_output { self.config.contract.max_body_size.get() } else { MAX_INSPECTED };
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
        mut reply: UpstreamReply,
        pump: BodyPump<'_>,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let mut head = self.reply_head(session, call, &reply, None);
        if is_event_stream(&reply.headers) && pump.is_body_sent() {
            match self.detach_stream(call, &mut head, reply) {
                Ok(follower) => {
                    let Self { config, connection, .. } = *self;
                    let response = FollowerResponse { config, connection, follower, is_original_caller: true };
                    return Ok(response.run(session, call, head).await);
                }
                Err(returned) => reply = *returned,
            }
        }
        Ok(StreamedResponse { responder: self, reply, pump }.run(session, call, head).await)
    }

    /// Writes a JSON body that the gateway assembled, with status 200.
    pub(super) async fn respond_json(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        body: Bytes,
    ) -> std::result::Result<ServeOutcome, CallError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let head = self.full_head(call, StatusCode::OK, headers, Some(body.len()));
        response_writer::write_response(session, self.connection, call, head, body).await
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
        response_writer::write_response(session, self.connection, call, head, body).await
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

    fn full_head(
        &self,
        call: &Call,
        status: StatusCode,
        mut headers: HeaderMap,
        length: Option<usize>,
    ) -> ResponseHeader {
        // R68; an agent that sets the header itself keeps its value.
        if let Some(label) = self.admitted.version().and_then(|version| version.label.clone()) {
            headers.entry(AGENT_VERSION_HEADER).or_insert(label);
        }
        add_agent_response_headers(&mut headers, call, self.admitted.agent_route(), self.rate_limit_status, length);
        response_head(status, headers)
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
            let prefix = reply.body.peek(max_bytes);
        }
        loop {
            tokio::select! {
                biased;
                prefix_result = &mut prefix => return Ok(prefix_result?),
                result = pump.advance(session) => result?,
            }
        }
    }
}
