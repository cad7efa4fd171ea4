//! Batches for agents that accept one input at a time: bounded fan-out, results in order, each item with its own result
//! or error (R44).

use super::{
    Gateway, admission::Admitted, reply_validation::ReplyValidator, response_headers::number_idempotency_key,
    upstream_request::UpstreamHead,
};
use crate::{
    contract,
    fault::{Fault, FaultCode, Result},
    idempotency,
    limit::{Permit, RateLimitKey},
    telemetry::{Event, redact},
    transport::{BodyPrefix, RequestBody, UpstreamReply},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use std::num::NonZeroU32;
use tokio::sync::{Mutex, MutexGuard};

/// The maximum size of a batch's response, in multiples of the maximum size of one reply.
const MAX_REPLIES: usize = 8;

/// A batch call.
pub(super) struct BatchCall<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) admitted: &'a Admitted,
    pub(super) account: RateLimitKey<'a>,
    pub(super) head: UpstreamHead<'a>,
    pub(super) contract_config: &'a contract::ContractConfig,
    /// The concurrency slot that the call itself holds.
    pub(super) own_slot: Mutex<()>,
}

impl BatchCall<'_> {
    /// Calls the agent for every item and writes the array of results.
    pub(super) async fn run(self, items: Vec<(Bytes, Result<()>)>, request_id: &str) -> Bytes {
        let max_concurrency = usize::from(self.contract_config.batch.max_concurrency).max(1);
        let batch = &self;
        let results = stream::iter(items.into_iter().enumerate())
            .map(|(index, (item, checked))| async move { batch.call_item(index, item, checked).await })
            .buffered(max_concurrency);
        let mut results = std::pin::pin!(results);
        let max_bytes = self.contract_config.max_body_size.get().saturating_mul(MAX_REPLIES);
        let mut array = BytesMut::from("[");
        while let Some(result) = results.next().await {
            if array.len() > 1 {
                array.extend_from_slice(b",");
            }
            let result = match result {
                Ok(bytes) if array.len() + bytes.len() > max_bytes => {
                    Err(Fault::new(FaultCode::PayloadTooLarge, "The answers to this batch are too large together"))
                }
                result => result,
            };
            match result {
                Ok(bytes) => array.extend_from_slice(&bytes),
                Err(fault) => {
                    self.gateway.metrics.record_event(Event::BatchItemFailed);
                    tracing::info!(request_id, "batch item failed: {}", redact(&fault.to_string()));
                    array.extend_from_slice(fault.to_error_object(request_id).to_string().as_bytes());
                }
            }
        }
        array.extend_from_slice(b"]");
        array.freeze()
    }

    /// Calls the agent for one item. The call itself was charged for the first item; every other item is charged here.
    async fn call_item(&self, index: usize, item: Bytes, checked: Result<()>) -> Result<Bytes> {
        checked?;
        if index > 0 {
            self.gateway
                .limits
                .acquire_for_calls(&self.admitted.agent_route().limits, &self.account, NonZeroU32::MIN)
                .await?;
        }
        let _slot = self.acquire_slot().await;
        let item_headers = self.head.headers.contains_key(idempotency::IDEMPOTENCY_KEY).then(|| {
            let mut headers = self.head.headers.clone();
            number_idempotency_key(&mut headers, index);
            headers
        });
        let item_head = UpstreamHead { headers: item_headers.as_ref().unwrap_or(self.head.headers), ..self.head };
        let reply = self.gateway.send_upstream(self.admitted, item_head, RequestBody::Whole(item)).await?;
        self.validate_reply(reply).await
    }

    /// Takes a concurrency slot for an item: the call's own, else another permit if one is free, else waits for the
    /// call's own. An item never waits for permits that its own call holds.
    async fn acquire_slot(&self) -> (Option<Permit>, Option<MutexGuard<'_, ()>>) {
        match self.own_slot.try_lock() {
            Ok(own) => (None, Some(own)),
            Err(_) => match self.gateway.limits.try_acquire_permit(&self.admitted.agent_route().limits) {
                Some(permit) => (Some(permit), None),
                None => (None, Some(self.own_slot.lock().await)),
            },
        }
    }

    async fn validate_reply(&self, mut reply: UpstreamReply) -> Result<Bytes> {
        let max_bytes = self.contract_config.max_body_size.get();
        let BodyPrefix { bytes, complete } = reply.body.peek(max_bytes).await?;
        let validator =
            ReplyValidator { gateway: self.gateway, contract_config: self.contract_config, admitted: self.admitted };
        validator.reject_failure(&reply, &bytes, complete)?;
        let bounds = contract::JsonBounds { max_depth: self.contract_config.max_depth };
        let value = contract::parse_json(&bytes, &bounds)
            .map_err(|why| Fault::new(FaultCode::AgentError, "The agent's answer is not JSON").with_detail(why))?;
        let violations = self.admitted.operation().contract.check_output(&value)?;
        self.gateway.report_contract_violations(&self.admitted.agent_route().agent, "output", &violations);
        Ok(bytes)
    }
}
