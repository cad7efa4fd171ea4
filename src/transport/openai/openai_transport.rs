//! The transport to one server of OpenAI's chat completions: HTTP, with the input and the answer translated.

use super::{
    config::EndpointConfig,
    model_answer::{self, MAX_ANSWER},
    model_operation::ModelOperation,
    model_request::ModelRequest,
    server_error::{MAX_ERROR, ServerError},
    streamed_answer::StreamedAnswer,
};
use crate::{
    agent::Agent,
    fault::{Fault, FaultCode, Result},
    transport::{
        endpoint_probe::{ModelList, ProbeFailure, ProbeRequest, ProbeResult, ReachedEndpoint},
        http::{self as http_transport, HttpTarget},
        request_preview::RequestPreview,
        timeouts::UpstreamTimeouts,
        upstream_body::RequestBody,
        upstream_reply::{BodyPrefix, UpstreamReply},
        upstream_transport::{Transport, UpstreamCall},
    },
    values::{AcceptHeader, join_path},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header, uri::PathAndQuery};
use std::sync::Arc;
use tokio::time::Instant;

/// The longest input, in bytes. It is read whole, because it becomes a part of another message.
const MAX_INPUT: usize = 8 << 20;
/// What follows the base URL.
const CHAT_COMPLETIONS: &str = "/chat/completions";
const MODELS: &str = "/models";

/// The transport to one server.
#[derive(Debug)]
pub(in crate::transport) struct OpenAiTransport {
    target: Arc<HttpTarget>,
    config: Arc<EndpointConfig>,
    model: String,
    operations: Vec<ModelOperation>,
}

/// A call in the server's form.
struct TranslatedCall<'c> {
    operation: &'c ModelOperation,
    path: PathAndQuery,
    headers: HeaderMap,
    body: Bytes,
}

impl OpenAiTransport {
    /// Creates the transport to the server of `agent`, which is at `target`.
    pub(in crate::transport) fn new(target: Arc<HttpTarget>, agent: &Agent, config: Arc<EndpointConfig>) -> Self {
        let model = config.model_of(agent.id.as_str());
        let operations = agent.operations.iter().map(|operation| ModelOperation::compile(operation, &config));
        Self { target, model, operations: operations.collect(), config }
    }

    /// Translates a call with this input.
    fn translate(&self, call: &UpstreamCall<'_>, input: &[u8]) -> Result<TranslatedCall<'_>> {
        let named = self.operations.iter().find(|operation| *operation.name == *call.operation);
        let no_operation = || Fault::new(FaultCode::Internal, "The agent has no operation");
        let operation = named.or_else(|| self.operations.first()).ok_or_else(no_operation)?;
        // The parts of a JSON document are none.
        let stream = !operation.answers_with_json && AcceptHeader::from_headers(call.headers).prefers_event_stream();
        let request = ModelRequest { config: &self.config, model: &self.model, operation, stream };
        let body = request.to_body(input)?;
        let mut headers = call.headers.clone();
        headers.remove(header::CONTENT_ENCODING);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accepted = if stream { "text/event-stream, application/json;q=0.9" } else { "application/json" };
        headers.insert(header::ACCEPT, HeaderValue::from_static(accepted));
        let base = call.path.as_ref().unwrap_or_else(|| self.target.path());
        let invalid = || Fault::from(FaultCode::AgentError).with_detail("the endpoint's path cannot be extended");
        let path = join_path(base.path(), CHAT_COMPLETIONS, base.query()).ok_or_else(invalid)?;
        Ok(TranslatedCall { operation, path, headers, body })
    }
}

#[async_trait::async_trait]
impl Transport for OpenAiTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.target.timeouts
    }

    async fn is_reachable(&self) -> bool {
        http_transport::is_reachable(&self.target).await
    }

    async fn probe(&self, deadline: Instant) -> std::result::Result<ReachedEndpoint, ProbeFailure> {
        http_transport::probe_connection(&self.target, deadline).await
    }

    async fn send_probe(&self, request: ProbeRequest, deadline: Instant) -> ProbeResult {
        Some(http_transport::send_probe(&self.target, request, deadline).await)
    }

    fn model_list(&self) -> Option<ModelList> {
        let base = self.target.path();
        let path = join_path(base.path(), MODELS, base.query())?;
        Some(ModelList { path, model: self.model.clone() })
    }

    fn refusal_of_literal_address(&self) -> Option<Fault> {
        self.target.refusal_of_literal_address()
    }

    fn preview(&self, mut call: UpstreamCall<'_>, deadline: Instant) -> Option<Result<RequestPreview>> {
        let RequestBody::Whole(input) = std::mem::replace(&mut call.body, RequestBody::Empty) else { return None };
        Some(self.translate(&call, &input).and_then(|translated| {
            let TranslatedCall { path, headers, body, .. } = translated;
            let call = UpstreamCall { path: Some(path), query: None, headers: &headers, ..call };
            let head = http_transport::preview_request(&self.target, call, deadline)?;
            Ok(RequestPreview { head, body_length: Some(body.len()) })
        }))
    }

    async fn call(&self, mut call: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply> {
        let input = std::mem::replace(&mut call.body, RequestBody::Empty).collect(MAX_INPUT).await?;
        let TranslatedCall { operation, path, headers, body } = self.translate(&call, &input)?;
        // The query of a call has no place in the request.
        let request = UpstreamCall {
            method: Method::POST,
            path: Some(path),
            query: None,
            headers: &headers,
            body: body.into(),
            ..call
        };
        let mut reply = http_transport::call_with_retry(&self.target, request, deadline).await?;
        if !reply.status.is_success() {
            // A server that breaks off inside its error response has still failed.
            let read = reply.body.peek(MAX_ERROR).await.ok().filter(|prefix| prefix.complete);
            let error = ServerError::parse(&read.map(|prefix| prefix.bytes).unwrap_or_default(), reply.status);
            return Ok(error.into_reply(&reply.headers, reply.credential_sent));
        }
        if is_event_stream(&reply.headers) {
            return StreamedAnswer::new(reply).into_reply().await;
        }
        let BodyPrefix { bytes, complete } = reply.body.peek(MAX_ANSWER).await?;
        if !complete {
            return Err(Fault::new(FaultCode::AgentError, "The agent's answer is too large"));
        }
        model_answer::to_reply(&bytes, operation, reply.credential_sent)
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}
