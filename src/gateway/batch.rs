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

/// The bound of a batch's whole response, in multiples of the bound of one reply.
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
        let at_once = usize::from(self.contract_config.batch.max_concurrency).max(1);
        let this = &self;
        let answers = stream::iter(items.into_iter().enumerate())
            .map(|(index, (item, checked))| async move { this.call_item(index, item, checked).await })
            .buffered(at_once);
        let mut answers = std::pin::pin!(answers);
        let most = self.contract_config.max_body_size.get().saturating_mul(MAX_REPLIES);
        let mut list = BytesMut::from("[");
        while let Some(answer) = answers.next().await {
            if list.len() > 1 {
                list.extend_from_slice(b",");
            }
            let answer = match answer {
                Ok(bytes) if list.len() + bytes.len() > most => {
                    Err(Fault::new(FaultCode::PayloadTooLarge, "The answers to this batch are too large together"))
                }
                answer => answer,
            };
            match answer {
                Ok(bytes) => list.extend_from_slice(&bytes),
                Err(fault) => {
                    self.gateway.metrics.record_event(Event::BatchItemFailed);
                    tracing::info!(request_id, "batch item failed: {}", redact(&fault.to_string()));
                    list.extend_from_slice(fault.to_error_object(request_id).to_string().as_bytes());
                }
            }
        }
        list.extend_from_slice(b"]");
        list.freeze()
    }

    /// Calls the agent for one item. The call itself was charged for the first item; every other item is charged here.
    async fn call_item(&self, index: usize, item: Bytes, checked: Result<()>) -> Result<Bytes> {
        checked?;
        if index > 0 {
            self.gateway.limits.acquire_for_calls(
                &self.admitted.agent_route().limits,
                &self.account,
                NonZeroU32::MIN,
            )?;
        }
        let _place = self.acquire_slot().await;
        let item_headers = self.head.headers.contains_key(idempotency::IDEMPOTENCY_KEY).then(|| {
            let mut headers = self.head.headers.clone();
            number_idempotency_key(&mut headers, index);
            headers
        });
        let told = UpstreamHead { headers: item_headers.as_ref().unwrap_or(self.head.headers), ..self.head };
        let reply = self.gateway.send_upstream(self.admitted, told, RequestBody::Whole(item)).await?;
        self.validate_reply(reply).await
    }

    /// Takes a concurrency slot for an item: the call's own, else another permit if one is free, else waits for the
    /// call's own. An item never waits for permits that its own call holds.
    async fn acquire_slot(&self) -> (Option<Permit>, Option<MutexGuard<'_, ()>>) {
        match self.own_slot.try_lock() {
            Ok(own) => (None, Some(own)),
            Err(_) => match self.gateway.limits.try_acquire_permit(&self.admitted.agent_route().limits) {
                Some(further) => (Some(further), None),
                None => (None, Some(self.own_slot.lock().await)),
            },
        }
    }

    async fn validate_reply(&self, mut reply: UpstreamReply) -> Result<Bytes> {
        let most = self.contract_config.max_body_size.get();
        let BodyPrefix { bytes, complete } = reply.body.peek(most).await?;
        let judge =
            ReplyValidator { gateway: self.gateway, contract_config: self.contract_config, admitted: self.admitted };
        judge.reject_failure(&reply, &bytes, complete)?;
        let bounds = contract::JsonBounds { max_depth: self.contract_config.max_depth };
        let value = contract::parse_json(&bytes, &bounds)
            .map_err(|why| Fault::new(FaultCode::AgentError, "The agent's answer is not JSON").with_detail(why))?;
        let violations = self.admitted.operation().contract.check_output(&value)?;
        self.gateway.report_contract_violations(&self.admitted.agent_route().agent, "output", &violations);
        Ok(bytes)
    }
}
