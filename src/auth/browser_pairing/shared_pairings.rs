//! The code and the paired pages of gateways that share a state. A valid key is cached for a second, so that the calls of a
//! page do not need a trip each.

use super::{
    pairing_code::{CODE_LIFETIME, MAX_WRONG_GUESSES, seal_code, seal_like},
    pairing_store::PairingStore,
};
use crate::{
    fault::{Fault, FaultCode},
    store::{NewValue, Redemption, StateError},
    values::sha256,
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// How long a valid key is cached.
const CACHE_TTL: Duration = Duration::from_secs(1);
const MAX_CACHED_KEYS: u64 = 1_000;
/// How many keys and codes are checked at once, and how long others wait. Callers choose what is checked.
const MAX_CONCURRENT_CHECKS: usize = 64;
const QUEUE_TIMEOUT: Duration = Duration::from_millis(500);
/// `Retry-After` while the shared state is away.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The code and the paired pages.
pub(super) struct SharedPairings {
    store: Arc<dyn PairingStore>,
    /// Hashes of the origins of valid keys, by the hashes of the keys.
    valid_keys: moka::sync::Cache<[u8; 32], [u8; 32]>,
    checks: Semaphore,
}

impl fmt::Debug for SharedPairings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SharedPairings").finish_non_exhaustive()
    }
}

impl SharedPairings {
    pub(super) fn new(store: Arc<dyn PairingStore>) -> Self {
        let valid_keys = moka::sync::Cache::builder().max_capacity(MAX_CACHED_KEYS).time_to_live(CACHE_TTL).build();
        Self { store, valid_keys, checks: Semaphore::new(MAX_CONCURRENT_CHECKS) }
    }

    /// Replaces the code of all gateways.
    ///
    /// # Errors
    /// 503: the shared state is away.
    pub(super) async fn set_code(&self, code: String) -> Result<(), Fault> {
        let sealed = run_blocking(move || seal_code(&code)).await?.ok_or_else(|| Fault::from(FaultCode::Internal))?;
        let stored = self.store.put_code(&sealed, CODE_LIFETIME).await;
        stored.map_err(|why| unavailable("No code can be created at the moment", &why))
    }

    /// Takes the code if it is equal, and returns whether it was.
    ///
    /// # Errors
    /// 503: the shared state is away. Whether the attempt counts is unknown.
    pub(super) async fn redeem_code(&self, code: String) -> Result<bool, Fault> {
        let failed = |why: StateError| unavailable("The code cannot be checked at the moment", &why);
        let _permit = self.begin_check().await?;
        let Some(stored) = self.store.code().await.map_err(failed)? else { return Ok(false) };
        let sealed = run_blocking(move || seal_like(&code, &stored)).await?;
        let redemption = self.store.redeem_code(&sealed, MAX_WRONG_GUESSES).await;
        Ok(redemption.map_err(failed)? == Redemption::Redeemed)
    }

    /// Adds a page.
    ///
    /// # Errors
    /// 503: the shared state is away, and the code is used up.
    pub(super) async fn add_page(&self, key: &str, origin: &str, lifetime: Duration) -> Result<(), Fault> {
        let value = sha256(origin.as_bytes()).to_vec();
        let stored = self.store.put_page(NewValue { key: sha256(key.as_bytes()), value, lifetime }).await;
        let message = "The page cannot be paired at the moment (ask the operator for a new code)";
        stored.map_err(|why| unavailable(message, &why))
    }

    /// Returns whether a key that is cached is valid for pages of `origin`; `None` if it is not cached.
    pub(super) fn check_cached_key(&self, key: &str, origin: &str) -> Option<bool> {
        let valid_for = self.valid_keys.get(&sha256(key.as_bytes()))?;
        Some(valid_for == sha256(origin.as_bytes()))
    }

    /// Returns whether `key` was issued to pages of `origin` and has not expired.
    ///
    /// # Errors
    /// 503: the shared state is away.
    pub(super) async fn check_key(&self, key: &str, origin: &str) -> Result<bool, Fault> {
        let _permit = self.begin_check().await?;
        // Another call of the page may have been first.
        if let Some(is_valid) = self.check_cached_key(key, origin) {
            return Ok(is_valid);
        }
        let hash = sha256(key.as_bytes());
        let page = self.store.page(&hash).await;
        let page = page.map_err(|why| unavailable("The page's key cannot be checked at the moment", &why))?;
        let Some(valid_for) = page.and_then(|origin| <[u8; 32]>::try_from(origin).ok()) else { return Ok(false) };
        self.valid_keys.insert(hash, valid_for);
        Ok(valid_for == sha256(origin.as_bytes()))
    }

    async fn begin_check(&self) -> Result<SemaphorePermit<'_>, Fault> {
        let permit = timeout(QUEUE_TIMEOUT, self.checks.acquire()).await.ok().and_then(Result::ok);
        permit.ok_or_else(|| {
            let fault = Fault::new(FaultCode::Overloaded, "Too many pages are checked at the moment");
            fault.with_retry_after(RETRY_AFTER)
        })
    }
}

/// Computes a slow hash on a thread that may block.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|why| Fault::from(FaultCode::Internal).with_detail(why))
}

/// Returns the fault while the shared state is away: whether a code or key is valid is unknown then.
#[cold]
fn unavailable(message: &'static str, why: &StateError) -> Fault {
    Fault::new(FaultCode::Overloaded, message).with_detail(why).with_retry_after(RETRY_AFTER)
}
