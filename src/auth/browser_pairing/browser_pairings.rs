//! Browser pairing (R88): an operator creates a code, and a browser page redeems it once for a key that is valid for
//! the page's origin and for a limited time. Gateways that share a state have one code, and accept the keys of each other.

use super::{
    local_pairings::LocalPairings,
    pairing_code::{CODE_LIFETIME, NewPairingCode, generate_code, normalize_code},
    pairing_store::PairingStore,
    shared_pairings::SharedPairings,
};
use crate::{
    fault::{Fault, FaultCode},
    store::SharedState,
    values::encode_hex,
};
use aws_lc_rs::rand;
use futures_util::{FutureExt as _, future::BoxFuture};
use std::{sync::Arc, time::Duration};

/// Prefix of page keys; API keys start with `gp_`.
pub(super) const PAGE_KEY_PREFIX: &str = "gpb_";

/// Pairings, and the origins whose pages may use them.
#[derive(Clone, Debug)]
pub struct BrowserPairingAccess {
    pairings: Arc<BrowserPairings>,
    origins: Vec<String>,
}

/// How far the check of a page's key has come.
pub(super) enum KeyCheck<'a> {
    /// Whether the key is valid.
    Ready(bool),
    /// The shared state must be asked.
    Pending(BoxFuture<'a, Result<bool, Fault>>),
}

impl BrowserPairingAccess {
    /// Allows the pages of `origins` to use the pairings of the process.
    pub fn new(pairings: &Arc<BrowserPairings>, origins: &[String]) -> Self {
        Self { pairings: Arc::clone(pairings), origins: origins.to_vec() }
    }

    /// Checks whether `key` is valid for pages of `origin`.
    pub(super) fn check_key<'a>(&'a self, key: &'a str, origin: &'a str) -> KeyCheck<'a> {
        if !self.origins.iter().any(|allowed| allowed == origin) {
            return KeyCheck::Ready(false);
        }
        match &self.pairings.0 {
            Storage::Local(local) => KeyCheck::Ready(local.is_valid_key(key, origin)),
            Storage::Shared(shared) => match shared.check_cached_key(key, origin) {
                Some(is_valid) => KeyCheck::Ready(is_valid),
                None => KeyCheck::Pending(shared.check_key(key, origin).boxed()),
            },
        }
    }
}

/// Pairing codes and paired pages. One instance per process.
#[derive(Debug, Default)]
pub struct BrowserPairings(Storage);

/// Where the codes and the pages are.
#[derive(Debug)]
enum Storage {
    Local(LocalPairings),
    Shared(SharedPairings),
}

impl Default for Storage {
    fn default() -> Self {
        Self::Local(LocalPairings::default())
    }
}

impl BrowserPairings {
    /// Returns pairings in the state that gateways share, or in memory if there is none.
    pub fn new(shared: Option<&Arc<SharedState>>) -> Self {
        match shared {
            Some(shared) => Self::with_store(Arc::clone(shared) as _),
            None => Self::default(),
        }
    }

    /// Returns pairings in a store.
    pub(super) fn with_store(store: Arc<dyn PairingStore>) -> Self {
        Self(Storage::Shared(SharedPairings::new(store)))
    }

    /// Creates a code, and invalidates the previous code.
    ///
    /// # Errors
    /// The system has no randomness, or 503: the shared state is away.
    pub async fn create_code(&self) -> Result<NewPairingCode, Fault> {
        let code = generate_code().ok_or_else(no_randomness)?;
        match &self.0 {
            Storage::Local(local) => local.set_code(&code, CODE_LIFETIME),
            Storage::Shared(shared) => shared.set_code(code.clone()).await?,
        }
        let (first, last) = code.split_at(4);
        Ok(NewPairingCode { code: format!("{first}-{last}"), lifetime: CODE_LIFETIME })
    }

    /// Redeems `code` once for a key that is valid for pages of `origin` during `lifetime`; `None` if it is not valid.
    ///
    /// # Errors
    /// The system has no randomness, or 503: the shared state is away, and the code may be used up.
    pub async fn redeem_code(&self, code: &str, origin: &str, lifetime: Duration) -> Result<Option<String>, Fault> {
        let code = normalize_code(code);
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| no_randomness())?;
        let key = format!("{PAGE_KEY_PREFIX}{}", encode_hex(&bytes));
        match &self.0 {
            Storage::Local(local) => {
                if !local.redeem_code(&code) {
                    return Ok(None);
                }
                local.add_page(&key, origin, lifetime);
            }
            Storage::Shared(shared) => {
                if !shared.redeem_code(code).await? {
                    return Ok(None);
                }
                shared.add_page(&key, origin, lifetime).await?;
            }
        }
        Ok(Some(key))
    }
}

#[cold]
fn no_randomness() -> Fault {
    Fault::from(FaultCode::Internal).with_detail("the system has no randomness")
}
