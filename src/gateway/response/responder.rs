//! Step 12: the response to an admitted call, from the agent's reply: a fault if the reply is a failure, a complete
//! response (`response_writer`) if it is short or must be validated, else a stream (`streamed_response`,
//! `resumable_stream`).

use super::{
    CompleteReply, ErrorDetails, ReplyValidator, StreamedResponse, is_event_stream, is_message_sequence,
    may_embed_error,
    media_types::{has_content_coding, is_media_type_requested, unrequested_stream},
    reported_agent_card::{begins_json_rpc, may_be_agent_card, redact_reported_card},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    gateway::{
        admission::Admitted,
        call::{CallError, CallResult},
        exchange::{AgentHeaders, Exchange},
        header_names::AGENT_VERSION,
        route::is_json_content,
        tasks::{FollowerResponse, detach_stream},
        upstream::BodyPump,
    },
    http_server::{ResponseHead, ServeOutcome},
    task::EventFollower,
    transport::{BodyPrefix, UpstreamReply, filter_reply_headers},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use std::sync::Arc;

/// Replies up to this size are inspected before their head is forwarded.
const MAX_INSPECTED: usize = 64 << 10;
/// Replies that may be a card are inspected up to this size: those of agents with a card, and JSON-RPC responses.
const MAX_CARD: usize = 1 << 20;

/// Writes the response to an admitted call.
pub(in crate::gateway) struct Responder<'r, 'a> {
    pub(in crate::gateway) exchange: &'r mut Exchange<'a>,
    pub(in crate::gateway) admitted: &'r Arc<Admitted>,
}

impl Responder<'_, '_> {
    /// Writes the agent's reply, or returns the fault that it contains.
    pub(in crate::gateway) async fn respond(
        mut self,
        mut reply: UpstreamReply,
        mut pump: BodyPump,
    ) -> CallResult<ServeOutcome> {
        let is_json = is_json_content(reply.headers.get(header::CONTENT_TYPE));
        if !reply.status.is_success() {
            // An agent that breaks off inside its error response has still failed.
            let BodyPrefix { bytes, complete } =
                self.read_prefix(&mut reply, &mut pump, MAX_INSPECTED).await.or_else(|error| match error {
                    CallError::CallerGone => Err(CallError::CallerGone),
                    CallError::Fault(_) => Ok(BodyPrefix { bytes: Bytes::new(), complete: false }),
                })?;
            self.judge(&reply, &bytes, complete)?;
            return Box::pin(self.stream_reply(reply, pump)).await;
        }
        let enforces_output = self.admitted.operation().contract.enforces_output();
        // A non-JSON reply to a JSON contract violates it too, unless the agent declares the format.
        let enforces_output = enforces_output
            && reply.status != StatusCode::NO_CONTENT
            && !self.admitted.operation().is_other_output(reply.headers.get(header::CONTENT_TYPE));
        // A message sequence has no single body to validate, and passes only to a caller that asked for it.
        let is_sequence = enforces_output && is_message_sequence(&reply.headers);
        if is_sequence && !is_media_type_requested(&self.exchange.session.head().headers, &reply.headers) {
            return Err(unrequested_stream().with_progress(CallProgress::PossiblySent).into());
        }
        let enforces_output = enforces_output && !is_sequence;
        let is_small = reply.body.length().is_some_and(|length| length <= MAX_INSPECTED as u64);
        if enforces_output || (is_json && is_small) {
            let max_bytes =
                if enforces_output { self.exchange.config.contract.max_body_size.get() } else { MAX_INSPECTED };
            let BodyPrefix { bytes, complete } = self.read_prefix(&mut reply, &mut pump, max_bytes).await?;
            if !complete {
                return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large to be validated").into());
            }
            self.judge(&reply, &bytes, true)?;
            self.validator().check_output(&bytes).await?;
            return self.respond_validated(reply, bytes).await;
        }
        let beginning = if is_json { self.read_prefix(&mut reply, &mut pump, 0).await?.bytes } else { Bytes::new() };
        let withholds_errors = self.admitted.agent_route().error_details == ErrorDetails::None;
        let is_unreadable = withholds_errors && has_content_coding(&reply.headers);
        if is_json && (is_unreadable || self.may_be_inspected(&beginning)) {
            let may_be_card = self.admitted.agent_route().has_agent_card || begins_json_rpc(&beginning);
            let max_bytes = if may_be_card { MAX_CARD } else { MAX_INSPECTED };
            // No error may pass unread, however long it is.
            let max_of_errors = self.exchange.config.contract.max_body_size.get();
            let max_bytes = if withholds_errors { max_of_errors.max(MAX_CARD) } else { max_bytes };
            let BodyPrefix { bytes, complete } = self.read_prefix(&mut reply, &mut pump, max_bytes).await?;
            self.judge(&reply, &bytes, complete)?;
            if complete && may_be_agent_card(&bytes) {
                self.validator().check_output(&bytes).await?;
                return self.respond_validated(reply, bytes).await;
            }
        }
        // Boxed as above: the common reply is complete, and its future need not have space for a stream.
        Box::pin(self.stream_reply(reply, pump)).await
    }

    /// Writes a JSON body that the gateway assembled, with status 200.
    pub(in crate::gateway) async fn respond_json(self, body: Bytes) -> CallResult<ServeOutcome> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let head = self.full_head(StatusCode::OK, headers, Some(body.len()));
        self.exchange.respond(head, body).await
    }

    /// Whether the beginning of a JSON body leaves open whether it is an error, or a card of an agent that has one.
    fn may_be_inspected(&self, beginning: &[u8]) -> bool {
        self.admitted.agent_route().has_agent_card || begins_json_rpc(beginning) || may_embed_error(beginning)
    }

    /// Writes a complete JSON reply, without the addresses of a card.
    async fn respond_validated(self, reply: UpstreamReply, body: Bytes) -> CallResult<ServeOutcome> {
        let UpstreamReply { status, headers, .. } = reply;
        let mut reply = CompleteReply { status, headers, body };
        if may_be_agent_card(&reply.body) {
            let directory = &self.exchange.config.directory;
            redact_reported_card(directory, self.admitted.agent_route(), &self.exchange.base_url(), &mut reply);
        }
        self.respond_complete(reply).await
    }

    /// Writes an agent's reply that is complete and validated.
    pub(in crate::gateway) async fn respond_complete(self, reply: CompleteReply) -> CallResult<ServeOutcome> {
        let length = Some(reply.body.len());
        let head = self.reply_head(reply.status, &reply.headers, length);
        self.exchange.respond(head, reply.body).await
    }

    async fn stream_reply(self, mut reply: UpstreamReply, pump: BodyPump) -> CallResult<ServeOutcome> {
        let mut head = self.reply_head(reply.status, &reply.headers, reply.body.length().map(|length| length as usize));
        let Self { exchange, admitted } = self;
        if is_event_stream(&reply.headers) && pump.is_body_sent() {
            match detach_stream(exchange, admitted, &mut head, reply) {
                Ok(follower) => {
                    let original_call = Some(admitted.operation().declared_members);
                    let response =
                        FollowerResponse { exchange, follower: EventFollower::Local(follower), original_call };
                    return Ok(response.run(head).await);
                }
                Err(returned) => reply = *returned,
            }
        }
        Ok(StreamedResponse { exchange, admitted, reply, pump }.run(head).await)
    }

    fn reply_head(&self, status: StatusCode, headers: &HeaderMap, length: Option<usize>) -> ResponseHead {
        let headers = filter_reply_headers(headers, status);
        // RFC 9110 §8.6: a 204 has no Content-Length.
        if status == StatusCode::NO_CONTENT {
            return self.full_head(status, headers, None);
        }
        let mut head = self.full_head(status, headers, length);
        if length.is_none() && self.exchange.session.head().version == Version::HTTP_11 {
            head.headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        head
    }

    fn full_head(&self, status: StatusCode, mut headers: HeaderMap, length: Option<usize>) -> ResponseHead {
        // R68; an agent that sets the header itself keeps its value.
        if let Some(label) = self.admitted.version().and_then(|version| version.label.clone()) {
            headers.entry(AGENT_VERSION).or_insert(label);
        }
        AgentHeaders::of(self.admitted).add_to(&mut headers, self.exchange.call, length);
        ResponseHead { status, headers }
    }

    /// Returns the fault that the reply contains, and records a failure that passes to the caller.
    fn judge(&mut self, reply: &UpstreamReply, body: &[u8], complete: bool) -> CallResult<()> {
        let reported = self.validator().judge(reply, body, complete)?;
        self.exchange.call.record_agent_error(reported);
        Ok(())
    }

    fn validator(&self) -> ReplyValidator<'_> {
        let Exchange { gateway, config, .. } = &*self.exchange;
        ReplyValidator { gateway, contract_config: &config.contract, admitted: self.admitted }
    }

    /// Reads the first bytes of a reply while watching the caller.
    async fn read_prefix(
        &mut self,
        reply: &mut UpstreamReply,
        pump: &mut BodyPump,
        max_bytes: usize,
    ) -> CallResult<BodyPrefix> {
        tokio::pin! {
            let prefix = reply.body.peek(max_bytes);
        }
        loop {
            tokio::select! {
                biased;
                prefix_result = &mut prefix => {
                    self.exchange.call.record_reply();
                    return Ok(prefix_result?);
                }
                result = pump.advance(self.exchange.session) => result?,
            }
        }
    }
}
