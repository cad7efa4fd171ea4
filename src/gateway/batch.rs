//! Batches for agents that accept one input at a time: bounded fan-out, results in order, each item with its own result
//! or error (R44).

use super::{Gateway, admit::Admitted, fields::number_key, forward::Told, judge::Judge};
use crate::{
    contract,
    fault::{Code, Fault, Result},
    limit::{Account, Permit},
    once,
    telemetry::{Event, redact},
    transport::{Beginning, Body, Reply},
};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use std::num::NonZeroU32;
use tokio::sync::{Mutex, MutexGuard};

/// The bound of a batch's whole response, in multiples of the bound of one reply.
const ANSWERS: usize = 8;

/// A batch call.
pub(super) struct Batch<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) admitted: &'a Admitted,
    pub(super) account: Account<'a>,
    pub(super) told: Told<'a>,
    pub(super) rules: &'a contract::Config,
    /// The concurrency slot that the call itself holds.
    pub(super) own: Mutex<()>,
}

impl Batch<'_> {
    /// Calls the agent for every item and writes the array of results.
    pub(super) async fn run(self, items: Vec<(Bytes, Result<()>)>, request_id: &str) -> Bytes {
        let at_once = usize::from(self.rules.batch.concurrency).max(1);
        let this = &self;
        let answers = stream::iter(items.into_iter().enumerate())
            .map(|(index, (item, checked))| async move { this.item(index, item, checked).await })
            .buffered(at_once);
        let mut answers = std::pin::pin!(answers);
        let most = self.rules.max_body.get().saturating_mul(ANSWERS);
        let mut list = BytesMut::from("[");
        while let Some(answer) = answers.next().await {
            if list.len() > 1 {
                list.extend_from_slice(b",");
            }
            let answer = match answer {
                Ok(bytes) if list.len() + bytes.len() > most => {
                    Err(Fault::new(Code::PayloadTooLarge, "The answers to this batch are too large together"))
                }
                answer => answer,
            };
            match answer {
                Ok(bytes) => list.extend_from_slice(&bytes),
                Err(fault) => {
                    self.gateway.metrics.count(Event::ItemFailed);
                    tracing::info!(request_id, "batch item failed: {}", redact(&fault.to_string()));
                    list.extend_from_slice(fault.error_object(request_id).to_string().as_bytes());
                }
            }
        }
        list.extend_from_slice(b"]");
        list.freeze()
    }

    /// Calls the agent for one item. The call itself was charged for the first item; every other item is charged here.
    async fn item(&self, index: usize, item: Bytes, checked: Result<()>) -> Result<Bytes> {
        checked?;
        if index > 0 {
            self.gateway.limits.admit(&self.admitted.agent().limits, &self.account, NonZeroU32::MIN)?;
        }
        let _place = self.place().await;
        let own = self.told.headers.contains_key(once::FIELD).then(|| {
            let mut headers = self.told.headers.clone();
            number_key(&mut headers, index);
            headers
        });
        let told = Told { headers: own.as_ref().unwrap_or(self.told.headers), ..self.told };
        let reply = self.gateway.send(self.admitted, told, Body::Whole(item)).await?;
        self.answer(reply).await
    }

    /// Takes a concurrency slot for an item: the call's own, else another permit if one is free, else waits for the
    /// call's own. An item never waits for permits that its own call holds.
    async fn place(&self) -> (Option<Permit>, Option<MutexGuard<'_, ()>>) {
        match self.own.try_lock() {
            Ok(own) => (None, Some(own)),
            Err(_) => match self.gateway.limits.try_enter(&self.admitted.agent().limits) {
                Some(further) => (Some(further), None),
                None => (None, Some(self.own.lock().await)),
            },
        }
    }

    async fn answer(&self, mut reply: Reply) -> Result<Bytes> {
        let most = self.rules.max_body.get();
        let Beginning { bytes, complete } = reply.body.beginning(most).await?;
        let judge = Judge { gateway: self.gateway, rules: self.rules, admitted: self.admitted };
        judge.verdict(&reply, &bytes, complete)?;
        let bounds = contract::Bounds { depth: self.rules.max_depth };
        let value = contract::parse(&bytes, &bounds)
            .map_err(|why| Fault::new(Code::AgentError, "The agent's answer is not JSON").detail(why))?;
        let broken = self.admitted.operation().contract.admit_output(&value)?;
        self.gateway.reported(&self.admitted.agent().agent, "output", &broken);
        Ok(bytes)
    }
}
