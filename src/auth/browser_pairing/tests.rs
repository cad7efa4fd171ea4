//! Pairings of two gateways, with a store in memory that can be away.

use super::{
    browser_pairings::{BrowserPairingAccess, BrowserPairings, KeyCheck},
    pairing_code::MAX_WRONG_GUESSES,
    pairing_store::PairingStore,
};
use crate::store::{NewValue, Redemption, StateError, ValueKey};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const ORIGIN: &str = "https://app.example";
const HOUR: Duration = Duration::from_secs(3_600);

/// A store in memory. Nothing in it ends.
#[derive(Default)]
struct FakeStore {
    code: Mutex<Option<(Vec<u8>, u32)>>,
    pages: Mutex<HashMap<ValueKey, Vec<u8>>>,
    is_down: AtomicBool,
    lookups: AtomicUsize,
}

impl FakeStore {
    fn check(&self) -> Result<(), StateError> {
        if self.is_down.load(Relaxed) { Err(StateError::Unavailable) } else { Ok(()) }
    }
}

#[async_trait::async_trait]
impl PairingStore for FakeStore {
    async fn put_code(&self, code: &[u8], _: Duration) -> Result<(), StateError> {
        self.check()?;
        *self.code.lock() = Some((code.to_vec(), 0));
        Ok(())
    }

    async fn code(&self) -> Result<Option<Vec<u8>>, StateError> {
        self.check()?;
        Ok(self.code.lock().as_ref().map(|(code, _)| code.clone()))
    }

    async fn redeem_code(&self, code: &[u8], max_mismatches: u32) -> Result<Redemption, StateError> {
        self.check()?;
        let mut stored = self.code.lock();
        let Some((expected, mismatches)) = &mut *stored else { return Ok(Redemption::Absent) };
        if expected == code {
            *stored = None;
            return Ok(Redemption::Redeemed);
        }
        *mismatches += 1;
        if *mismatches >= max_mismatches {
            *stored = None;
        }
        Ok(Redemption::Mismatch)
    }

    async fn put_page(&self, page: NewValue) -> Result<(), StateError> {
        self.check()?;
        self.pages.lock().insert(page.key, page.value);
        Ok(())
    }

    async fn page(&self, key: &ValueKey) -> Result<Option<Vec<u8>>, StateError> {
        self.lookups.fetch_add(1, Relaxed);
        self.check()?;
        Ok(self.pages.lock().get(key).cloned())
    }
}

/// Two gateways with one store.
fn two_gateways() -> (Arc<FakeStore>, [Arc<BrowserPairings>; 2]) {
    let store = Arc::<FakeStore>::default();
    let gateway = || Arc::new(BrowserPairings::with_store(Arc::clone(&store) as _));
    (Arc::clone(&store), [gateway(), gateway()])
}

/// Checks a key; an error is the status of the fault.
async fn check(gateway: &Arc<BrowserPairings>, key: &str, origin: &str) -> Result<bool, u16> {
    match BrowserPairingAccess::new(gateway, &[ORIGIN.to_owned(), "https://b.example".to_owned()])
        .check_key(key, origin)
    {
        KeyCheck::Ready(is_valid) => Ok(is_valid),
        KeyCheck::Pending(check) => check.await.map_err(|fault| fault.http_status()),
    }
}

#[tokio::test]
async fn r88_a_code_of_one_gateway_is_redeemed_at_another_once_and_the_key_is_valid_at_both() {
    let (store, [one, two]) = two_gateways();
    let code = one.create_code().await.unwrap().code;
    let key = two.redeem_code(&code.to_lowercase(), ORIGIN, HOUR).await.unwrap().unwrap();
    for gateway in [&one, &two] {
        assert_eq!(gateway.redeem_code(&code, ORIGIN, HOUR).await.unwrap(), None);
        assert_eq!(check(gateway, &key, ORIGIN).await, Ok(true));
        assert_eq!(check(gateway, &key, "https://b.example").await, Ok(false));
        assert_eq!(check(gateway, &key, "https://not-allowed.example").await, Ok(false));
        assert_eq!(check(gateway, "gpb_0", ORIGIN).await, Ok(false));
    }
    let (pages, stored) = (store.pages.lock(), store.code.lock());
    assert!(stored.is_none());
    for (name, value) in pages.iter() {
        for secret in [&code, &key, ORIGIN] {
            let has = |bytes: &[u8]| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!has(name) && !has(value), "{secret} is in the store");
        }
    }
}

#[tokio::test]
async fn r88_five_wrong_guesses_over_all_gateways_end_a_code() {
    let (store, gateways) = two_gateways();
    let code = gateways[0].create_code().await.unwrap().code;
    let stored = store.code.lock().clone().unwrap().0;
    assert!(!stored.windows(4).any(|part| code.as_bytes().windows(4).any(|letters| letters == part)));
    for guess in 0..MAX_WRONG_GUESSES {
        let gateway = &gateways[guess as usize % 2];
        assert_eq!(gateway.redeem_code("WRNG-WRNG", ORIGIN, HOUR).await.unwrap(), None);
    }
    assert_eq!(gateways[0].redeem_code(&code, ORIGIN, HOUR).await.unwrap(), None);
    let first = gateways[0].create_code().await.unwrap().code;
    let second = gateways[1].create_code().await.unwrap().code;
    assert_eq!(gateways[0].redeem_code(&first, ORIGIN, HOUR).await.unwrap(), None, "a new code replaces every other");
    assert!(gateways[0].redeem_code(&second, ORIGIN, HOUR).await.unwrap().is_some());
}

#[tokio::test]
async fn r88_calls_of_a_page_need_one_trip_a_second_and_without_the_store_others_get_503() {
    let (store, [one, two]) = two_gateways();
    let code = one.create_code().await.unwrap().code;
    let key = two.redeem_code(&code, ORIGIN, HOUR).await.unwrap().unwrap();
    let started = Instant::now();
    for _ in 0..100 {
        assert_eq!(check(&one, &key, ORIGIN).await, Ok(true));
    }
    let trips = store.lookups.load(Relaxed);
    assert!(trips <= 1 + started.elapsed().as_secs() as usize, "{trips} trips");
    store.is_down.store(true, Relaxed);
    if started.elapsed() < Duration::from_millis(900) {
        assert_eq!(check(&one, &key, ORIGIN).await, Ok(true), "what was checked is valid for its second");
    }
    assert_eq!(check(&two, &key, ORIGIN).await, Err(503), "whether it is valid is unknown");
    assert_eq!(check(&two, "gpb_0", ORIGIN).await, Err(503));
    while check(&one, &key, ORIGIN).await != Err(503) {
        assert!(started.elapsed() < Duration::from_secs(5), "a key is cached for a second at most");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(one.create_code().await.unwrap_err().http_status(), 503);
    assert_eq!(one.redeem_code(&code, ORIGIN, HOUR).await.unwrap_err().http_status(), 503);
    store.is_down.store(false, Relaxed);
    assert_eq!(check(&one, &key, ORIGIN).await, Ok(true));
}
