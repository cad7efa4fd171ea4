//! What asks for admission: the head of a call, and its input.

use super::{agent_authorization::CallerContext, incoming_request::IncomingRequest};
use crate::{
    fault::Result,
    gateway::{
        caller_identity::ToldCall, delegation::ChainHop, gateway_state::ConfigSnapshot, path_router::CallTarget,
        route::Route,
    },
    idempotency,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use std::num::NonZeroU32;

/// Where a call comes from, as far as its admission differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum CallSource {
    /// A request to an agent's path.
    HttpRequest,
    /// A request to an agent's own API, which has no operation.
    ApiRequest,
    /// A handshake for a WebSocket of an agent's own API, which has no operation.
    ApiHandshake,
    /// A request of another protocol, whose answer is translated.
    TranslatedRequest,
    /// A handshake, which has no input and whose messages are calls of their own.
    WebSocketHandshake,
    /// A message that is relayed over an admitted WebSocket.
    RelayedMessage,
    /// A call that the gateway makes for a pipeline step, a WebSocket message or an MQTT task.
    Subrequest,
}

impl CallSource {
    /// Whether the call is for an operation of the agent.
    pub(super) fn has_operation(self) -> bool {
        !matches!(self, Self::ApiRequest | Self::ApiHandshake)
    }

    /// Whether a page in a browser may have made the request; the origins of handshakes are checked when they are parsed.
    pub(super) fn may_be_page(self) -> bool {
        matches!(self, Self::HttpRequest | Self::ApiRequest | Self::TranslatedRequest)
    }
}

/// A call that asks for admission: the head of its request, its credentials and its target.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct AdmissionRequest<'a> {
    pub(in crate::gateway) source: CallSource,
    pub(in crate::gateway) caller: CallerContext<'a>,
    pub(in crate::gateway) target: CallTarget<'a>,
    /// The query of the request.
    pub(in crate::gateway) query: Option<&'a str>,
    /// How many calls the rate limits charge.
    pub(in crate::gateway) calls: NonZeroU32,
}

/// The input of a call that is not read yet.
pub(in crate::gateway) enum InputSource<'a> {
    /// The request's body.
    Body(IncomingRequest<'a>),
    /// The request's query (R49).
    Query(&'a str),
    /// An input that is complete.
    Complete(Bytes),
    /// An input that is complete, with an instruction that belongs to it.
    Instructed { input: Bytes, instruction: &'a str },
    /// No input: a WebSocket handshake.
    None,
}

impl AdmissionRequest<'_> {
    /// Returns the delegation chain with this call; a relayed message belongs to the chain of its handshake.
    ///
    /// # Errors
    /// As [`crate::gateway::DelegationPolicy`] refuses the chain.
    pub(super) fn extend_delegation_chain(
        &self,
        config: &ConfigSnapshot,
        hop: &ChainHop<'_>,
    ) -> Result<Option<HeaderValue>> {
        let Some(policy) = &config.delegation else { return Ok(None) };
        if self.source == CallSource::RelayedMessage {
            return Ok(None);
        }
        policy.extend_chain(self.caller.headers, hop).map(Some)
    }

    /// Returns the fields that tell the agent who calls; a relayed message has those of its handshake.
    ///
    /// # Errors
    /// As [`crate::gateway::caller_identity::CallerHeaders::tell`].
    pub(super) fn caller_headers(&self, route: &Route, call: &ToldCall<'_>) -> Result<Vec<(HeaderName, HeaderValue)>> {
        match &route.caller_headers {
            Some(fields) if self.source != CallSource::RelayedMessage => fields.tell(call),
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the idempotency key of a request; the keys of subrequests belong to the request that they are a part of.
    ///
    /// # Errors
    /// 400 for a malformed key.
    pub(super) fn idempotency_key(&self, config: &ConfigSnapshot) -> Result<Option<String>> {
        let headers = self.caller.headers;
        if !matches!(self.source, CallSource::HttpRequest | CallSource::TranslatedRequest)
            || !headers.contains_key(idempotency::IDEMPOTENCY_KEY)
            || !config.idempotency.is_enabled()
        {
            return Ok(None);
        }
        Ok(idempotency::parse_key(headers)?.map(str::to_owned))
    }
}
