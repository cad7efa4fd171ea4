//! The `Idempotency-Key` header of a request, and the idempotency keys of one gateway.

use super::{
    config::IdempotencyConfig,
    first_call_claim::FirstCallClaim,
    first_call_waiter::FirstCallWaiter,
    first_outcome::FirstOutcome,
    idempotency_store::{IdempotencyStore, KeyRefusal, NewKey, StoredKey},
    in_process::InProcessIdempotencyStore,
    key_hash::KeyHash,
    shared::SharedIdempotencyStore,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    store::SharedState,
    telemetry::Metrics,
    values::{ClientKey, StoreAnswer},
};
use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName};
use std::{sync::Arc, time::Duration};

/// Name of the request header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_LENGTH: usize = 255;

/// Returns the idempotency key of a request: 1 to 255 visible ASCII characters, in one header.
///
/// # Errors
/// `InvalidInput` for several keys or an invalid one.
pub fn parse_key(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let text = first.to_str().unwrap_or_default();
    let is_valid = (1..=MAX_KEY_LENGTH).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    match all.next() {
        None if is_valid => Ok(Some(text)),
        None => {
            let message = format!("Idempotency-Key is invalid (1 to {MAX_KEY_LENGTH} visible ASCII characters)");
            Err(Fault::new(FaultCode::InvalidInput, message))
        }
        Some(_) => {
            Err(Fault::new(FaultCode::InvalidInput, "The request has several Idempotency-Key headers (send one)"))
        }
    }
}

/// A request with an idempotency key.
#[derive(Clone, Copy, Debug)]
pub struct KeyedRequest<'a> {
    /// The caller.
    pub owner: &'a str,
    /// The client whose share the key counts against.
    pub client: ClientKey,
    /// The agent, or the path of pipelines.
    pub target: &'a str,
    /// The idempotency key.
    pub key: &'a str,
    /// Digest of the request, from [`request_digest`](super::request_digest).
    pub digest: [u8; 32],
}

/// Result of looking up a key.
#[derive(Debug)]
pub enum KeyLookup {
    /// The key is new: the call is the first one.
    Claimed(FirstCallClaim),
    /// The first call is complete.
    Completed(FirstOutcome),
    /// The first call is in progress.
    InProgress(FirstCallWaiter),
}

/// The idempotency keys of one gateway. A reload reconfigures them and keeps the stored outcomes.
#[derive(Debug)]
pub struct IdempotencyKeys {
    config: ArcSwap<IdempotencyConfig>,
    store: Arc<dyn IdempotencyStore>,
}

impl IdempotencyKeys {
    /// Creates the keys, in a store without any.
    pub fn new(config: &IdempotencyConfig) -> Self {
        Self::with_store(config, Arc::new(InProcessIdempotencyStore::new(config)))
    }

    /// Creates the keys in the state that gateways share; requires a tokio runtime.
    pub fn shared(config: &IdempotencyConfig, state: &Arc<SharedState>, metrics: &Arc<Metrics>) -> Self {
        Self::with_store(config, Arc::new(SharedIdempotencyStore::new(config, state, metrics)))
    }

    pub(super) fn with_store(config: &IdempotencyConfig, store: Arc<dyn IdempotencyStore>) -> Self {
        Self { config: ArcSwap::from_pointee(config.clone()), store }
    }

    /// Applies a changed configuration; stored outcomes stay.
    pub fn reconfigure(&self, config: &IdempotencyConfig) {
        self.config.store(Arc::new(config.clone()));
        self.store.reconfigure(config);
    }

    /// Waits until no call of this gateway with a key is in progress, and their outcomes are stored.
    pub async fn settle(&self) {
        self.store.settle().await;
    }

    /// Whether idempotency keys are in use.
    pub fn is_enabled(&self) -> bool {
        self.config.load().is_enabled()
    }

    /// Maximum size of one response, in bytes.
    pub fn max_response_size(&self) -> usize {
        self.config.load().max_response_size.get()
    }

    /// Looks up the key of a request, and claims it if it is new.
    ///
    /// # Errors
    /// `IdempotencyMismatch` if the key was used with another request; `RateLimited` if too many calls of the client with
    /// keys are in progress; `Overloaded` if too many of all clients are, or if the store is unavailable.
    pub fn look_up_or_claim(&self, request: &KeyedRequest<'_>) -> StoreAnswer<'_, Result<KeyLookup>> {
        let key = KeyHash::new(request.owner, request.target, request.key);
        let new_key = NewKey { key, digest: request.digest, client: request.client };
        self.store.look_up_or_claim(new_key).map(|result| match result {
            Ok(StoredKey::Claimed(claimed)) => {
                Ok(KeyLookup::Claimed(FirstCallClaim::new(Arc::clone(&self.store), claimed)))
            }
            Ok(StoredKey::Completed(outcome)) => Ok(KeyLookup::Completed(outcome)),
            Ok(StoredKey::InProgress(waiter)) => Ok(KeyLookup::InProgress(waiter)),
            Err(refusal) => Err(refusal_fault(refusal)),
        })
    }
}

fn refusal_fault(refusal: KeyRefusal) -> Fault {
    let overloaded = |text| Fault::new(FaultCode::Overloaded, text).with_retry_after(Duration::from_secs(1));
    match refusal {
        KeyRefusal::DifferentRequest => Fault::new(
            FaultCode::IdempotencyMismatch,
            "The Idempotency-Key was already used with another body or operation (send a new key)",
        ),
        KeyRefusal::TooManyOfClient => Fault::new(
            FaultCode::RateLimited,
            "Too many calls of the caller with an Idempotency-Key are in progress, its share (limits.max_share)",
        )
        .with_retry_after(Duration::from_secs(1)),
        KeyRefusal::TooManyInProgress => overloaded("Too many calls with an Idempotency-Key are in progress"),
        KeyRefusal::StoreUnavailable => overloaded("The Idempotency-Key cannot be looked up now"),
        KeyRefusal::DataLost { retry_after } => {
            let text = "The gateway lost its stored Idempotency-Keys, and refuses new ones until it is certain that none of \
                        them was used before";
            Fault::new(FaultCode::Overloaded, text)
                .with_retry_after(retry_after)
                .with_setting("idempotency.on_data_loss")
        }
    }
}
