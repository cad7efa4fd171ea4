//! Batches for agents that accept one input at a time: bounded fan-out, results in order, each item with its own result
//! or error (R44).

use super::{
    admission::{AdmissionPipeline, Admitted},
    response::{CompleteReply, ReplyValidator, redact_reported_card},
    upstream::{UpstreamHead, number_idempotency_key, send_upstream},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode, Result},
    idempotency,
    limit::{MemoryReservation, Permit},
    telemetry::{Event, redact},
    transport::{BodyPrefix, RequestBody, UpstreamReply},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio::sync::{Mutex, MutexGuard};

/// The maximum size of a batch's response, in multiples of the maximum size of one reply.
const MAX_REPLIES: usize = 8;

/// A batch call.
pub(super) struct BatchCall<'a> {
    admission: AdmissionPipeline<'a>,
    admitted: &'a Admitted,
    head: UpstreamHead<'a>,
    /// The gateway's URL, as the caller knows it.
    base_url: &'a str,
    /// The concurrency slot that the call itself holds.
    own_slot: Mutex<()>,
}

/// An item of a batch, and the result of its validation.
struct BatchItem {
    index: usize,
    input: Bytes,
    validated: Result<()>,
}

impl<'a> BatchCall<'a> {
    /// Creates the call of an admitted batch.
    pub(super) fn new(
        admission: AdmissionPipeline<'a>,
        admitted: &'a Admitted,
        head: UpstreamHead<'a>,
        base_url: &'a str,
    ) -> Self {
        Self { admission, admitted, head, base_url, own_slot: Mutex::default() }
    }

    /// Calls the agent for every item and writes the array of results.
    pub(super) async fn run(self, items: Vec<(Bytes, Result<()>)>) -> Bytes {
        let contract_config = &self.admission.config.contract;
        let max_concurrency = usize::from(contract_config.batch.max_concurrency).max(1);
        let (batch, request_id) = (&self, self.head.call_id);
        let items = items.into_iter().enumerate();
        let items = items.map(|(index, (input, validated))| BatchItem { index, input, validated });
        let results =
            stream::iter(items).map(|item| async move { batch.call_item(item).await }).buffered(max_concurrency);
        let mut results = std::pin::pin!(results);
        let max_bytes = contract_config.max_body_size.get().saturating_mul(MAX_REPLIES);
        let mut array = BytesMut::from("[");
        // The results that the array holds count until it is an answer, which counts by itself.
        let mut reservations = Vec::new();
        while let Some(result) = results.next().await {
            if array.len() > 1 {
                array.extend_from_slice(b",");
            }
            let result = match result {
                Ok((bytes, _)) if array.len() + bytes.len() > max_bytes => {
                    Err(Fault::new(FaultCode::PayloadTooLarge, "The answers to this batch are too large together"))
                }
                result => result,
            };
            match result {
                Ok((bytes, reservation)) => {
                    array.extend_from_slice(&bytes);
                    reservations.extend(reservation);
                }
                Err(fault) => {
                    self.admission.gateway.metrics.record_event(Event::BatchItemFailed);
                    tracing::info!(request_id, "batch item failed: {}", redact(&fault.to_string()));
                    array.extend_from_slice(fault.to_error_object(request_id).to_string().as_bytes());
                }
            }
        }
        array.extend_from_slice(b"]");
        array.freeze()
    }

    /// Calls the agent for one item. The call itself was charged for the first item; every other item is charged here.
    async fn call_item(&self, item: BatchItem) -> Result<(Bytes, Option<MemoryReservation>)> {
        let BatchItem { index, input, validated } = item;
        validated?;
        if index > 0 {
            self.admission.charge_batch_item(self.admitted).await?;
        }
        let _slot = self.acquire_slot().await;
        let item_headers = self.head.headers.contains_key(idempotency::IDEMPOTENCY_KEY).then(|| {
            let mut headers = self.head.headers.clone();
            number_idempotency_key(&mut headers, index);
            headers
        });
        let item_head = UpstreamHead { headers: item_headers.as_ref().unwrap_or(self.head.headers), ..self.head };
        let gateway = self.admission.gateway;
        let reply = send_upstream(gateway, self.admitted, item_head, RequestBody::Whole(input)).await?;
        let bytes = self.validate_reply(reply).await?;
        let reservation = gateway.limits.reserve_answer(|| self.admitted.client(), bytes.len(), 0);
        Ok((bytes, reservation.map_err(|fault| fault.with_progress(CallProgress::PossiblySent))?))
    }

    /// Takes a concurrency slot for an item: the call's own, else another permit if one is free, else waits for the
    /// call's own. An item never waits for permits that its own call holds.
    async fn acquire_slot(&self) -> (Option<Permit>, Option<MutexGuard<'_, ()>>) {
        match self.own_slot.try_lock() {
            Ok(own) => (None, Some(own)),
            Err(_) => {
                let limits = &self.admission.gateway.limits;
                match limits.try_acquire_permit(&self.admitted.agent_route().limits, self.admitted.client()) {
                    Some(permit) => (Some(permit), None),
                    None => (None, Some(self.own_slot.lock().await)),
                }
            }
        }
    }

    async fn validate_reply(&self, mut reply: UpstreamReply) -> Result<Bytes> {
        let AdmissionPipeline { gateway, config } = self.admission;
        let contract_config = &config.contract;
        let BodyPrefix { bytes, complete } = reply.body.peek(contract_config.max_body_size.get()).await?;
        let validator = ReplyValidator { gateway, contract_config, admitted: self.admitted };
        validator.reject_failure(&reply, &bytes, complete)?;
        validator.check_json_output(&bytes).await?;
        let mut complete = CompleteReply { status: reply.status, headers: reply.headers, body: bytes };
        redact_reported_card(&config.directory, self.admitted.agent_route(), self.base_url, &mut complete);
        Ok(complete.body)
    }
}
