//! Revocations of several gateways, with a store in memory that can be unavailable, lose its data, or be full.

use super::{
    new_revocation::{MAX_LIFETIME, Revocation},
    revocation_key::RevocationKey,
    revocation_store::RevocationStore,
    *,
};
use crate::{
    store::{NewValue, StateError, StoredValue, ValueChanges, ValueKey},
    telemetry::Metrics,
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A store in memory.
#[derive(Default)]
struct FakeStore {
    /// The values by their position.
    values: Mutex<BTreeMap<u64, NewValue>>,
    newest: Mutex<u64>,
    is_down: AtomicBool,
    is_full: AtomicBool,
    published: AtomicUsize,
}

impl FakeStore {
    fn has(&self, key: &ValueKey) -> bool {
        self.values.lock().values().any(|value| value.key == *key)
    }

    /// Loses what was stored after a position, and its position with it.
    fn lose_after(&self, position: u64) {
        self.values.lock().retain(|at, _| *at <= position);
        *self.newest.lock() = position;
    }
}

#[async_trait::async_trait]
impl RevocationStore for FakeStore {
    fn is_available(&self) -> bool {
        !self.is_down.load(Relaxed)
    }

    fn time(&self) -> Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
    }

    async fn publish(&self, revocations: &[NewValue]) -> Result<Vec<bool>, StateError> {
        if self.is_full.load(Relaxed) {
            return Ok(vec![false; revocations.len()]);
        }
        let (mut values, mut newest) = (self.values.lock(), self.newest.lock());
        for revocation in revocations {
            values.retain(|_, value| value.key != revocation.key);
            *newest += 1;
            values.insert(*newest, revocation.clone());
        }
        self.published.fetch_add(revocations.len(), Relaxed);
        Ok(vec![true; revocations.len()])
    }

    async fn read_after(&self, position: u64, limit: u32) -> Result<ValueChanges, StateError> {
        let (values, newest) = (self.values.lock(), *self.newest.lock());
        let after: Vec<_> = values.range(position + 1..).take(limit as usize).collect();
        let stored =
            |value: &NewValue| StoredValue { key: value.key, value: value.value.clone(), lifetime: value.lifetime };
        let is_last = after.len() < limit as usize;
        Ok(ValueChanges {
            position: if is_last { newest } else { *after.last().unwrap().0 },
            values: after.into_iter().map(|(_, value)| stored(value)).collect(),
            newest,
            count: values.len() as u64,
        })
    }
}

struct Gateways {
    store: Arc<FakeStore>,
    metrics: Arc<Metrics>,
}

impl Gateways {
    fn new() -> Self {
        Self { store: Arc::default(), metrics: Metrics::new().unwrap() }
    }

    async fn start(&self) -> Arc<RevocationList> {
        RevocationList::start_with(Some(Arc::clone(&self.store) as _), &self.metrics).await
    }
}

fn key(prefix: &str) -> NewRevocation {
    RevokedKey { prefix: prefix.to_owned(), overlap: None, expires: None }.to_revocation(Duration::ZERO)
}

/// Waits until the key is revoked, and returns how long that took.
async fn wait_until_revoked(list: &RevocationList, prefix: &str) -> Duration {
    let started = Instant::now();
    while !list.is_api_key_revoked(prefix.as_bytes()) {
        assert!(started.elapsed() < Duration::from_secs(10), "{prefix} is not revoked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

#[tokio::test]
async fn a_revocation_is_in_force_at_every_gateway_within_a_second_and_at_those_that_start_later() {
    let gateways = Gateways::new();
    let (first, second) = (gateways.start().await, gateways.start().await);
    assert_eq!(first.revoke(&[key("aaaaaaaaaaaa")]).await, Ok(Publication::Published));
    assert!(first.is_api_key_revoked(b"aaaaaaaaaaaa") && !first.is_api_key_revoked(b"bbbbbbbbbbbb"));
    let elapsed = wait_until_revoked(&second, "aaaaaaaaaaaa").await;
    assert!(elapsed < Duration::from_secs(1), "{elapsed:?}");
    let third = gateways.start().await;
    assert!(third.is_api_key_revoked(b"aaaaaaaaaaaa"), "it is known before the first call");
    assert_eq!(gateways.store.published.load(Relaxed), 1, "what was read is not published again");
}

#[tokio::test]
async fn without_the_store_a_gateway_keeps_what_it_knows_and_publishes_later_what_is_new() {
    let gateways = Gateways::new();
    let (first, second) = (gateways.start().await, gateways.start().await);
    first.revoke(&[key("aaaaaaaaaaaa")]).await.unwrap();
    wait_until_revoked(&second, "aaaaaaaaaaaa").await;
    gateways.store.is_down.store(true, Relaxed);
    assert_eq!(first.revoke(&[key("bbbbbbbbbbbb")]).await, Ok(Publication::Pending));
    assert!(first.is_api_key_revoked(b"bbbbbbbbbbbb"), "it is in force here at once");
    assert!(second.is_api_key_revoked(b"aaaaaaaaaaaa") && !second.is_api_key_revoked(b"bbbbbbbbbbbb"));
    gateways.store.is_down.store(false, Relaxed);
    wait_until_revoked(&second, "bbbbbbbbbbbb").await;
}

#[tokio::test]
async fn what_a_restarted_store_has_lost_is_published_again_by_those_who_know_it() {
    let gateways = Gateways::new();
    let (first, second) = (gateways.start().await, gateways.start().await);
    let keys: Vec<String> = (0..1_500).map(|at| format!("{at:012}")).collect();
    let revocations: Vec<NewRevocation> = keys.iter().map(|prefix| key(prefix)).collect();
    first.revoke(&revocations).await.unwrap();
    wait_until_revoked(&second, keys.last().unwrap()).await;
    drop(first);
    gateways.store.lose_after(0);
    let third = gateways.start().await;
    for prefix in &keys {
        wait_until_revoked(&third, prefix).await;
    }
    assert!(second.is_api_key_revoked(keys[0].as_bytes()));
    let published = gateways.store.published.load(Relaxed);
    assert_eq!(published, 2 * keys.len(), "each is published once more");
}

#[tokio::test]
async fn what_a_failover_has_lost_is_published_again() {
    let gateways = Gateways::new();
    let (first, second) = (gateways.start().await, gateways.start().await);
    first.revoke(&[key("aaaaaaaaaaaa")]).await.unwrap();
    first.revoke(&[key("bbbbbbbbbbbb")]).await.unwrap();
    wait_until_revoked(&second, "bbbbbbbbbbbb").await;
    gateways.store.lose_after(1);
    let lost = RevocationKey::of_api_key(b"bbbbbbbbbbbb").0;
    let started = Instant::now();
    while !gateways.store.has(&lost) {
        assert!(started.elapsed() < Duration::from_secs(10), "it was not published again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_full_store_leaves_a_revocation_in_force_here() {
    let gateways = Gateways::new();
    let first = gateways.start().await;
    gateways.store.is_full.store(true, Relaxed);
    assert_eq!(first.revoke(&[key("aaaaaaaaaaaa")]).await, Ok(Publication::Pending));
    assert!(first.is_api_key_revoked(b"aaaaaaaaaaaa"));
    let too_many: Vec<NewRevocation> = (0..100_001).map(|at| key(&format!("{at:012}"))).collect();
    assert_eq!(first.revoke(&too_many).await, Err(TooManyRevocations));
    assert!(!first.is_api_key_revoked(b"000000000001"), "all or none");
}

#[tokio::test]
async fn a_gateway_that_shares_no_state_revokes_for_itself_and_forgets_at_the_end_of_the_lifetime() {
    let list = RevocationList::default();
    assert_eq!(list.revoke(&[key("aaaaaaaaaaaa")]).await, Ok(Publication::NotShared));
    assert!(list.is_api_key_revoked(b"aaaaaaaaaaaa"));
    let set = revocation_set::RevocationSet::default();
    set.insert(&NewRevocation { lifetime: Duration::from_millis(20), ..key("bbbbbbbbbbbb") });
    set.remove_expired();
    assert_eq!((set.len(), set.unpublished_count()), (1, 1));
    tokio::time::sleep(Duration::from_millis(30)).await;
    set.remove_expired();
    assert_eq!((set.len(), set.unpublished_count()), (0, 0));
}

#[tokio::test]
async fn a_rotated_key_ends_after_its_overlap_and_no_later_revocation_is_weaker() {
    let gateways = Gateways::new();
    let list = gateways.start().await;
    let rotated = |overlap| RevokedKey { prefix: "aaaaaaaaaaaa".to_owned(), overlap, expires: None };
    let hour = Duration::from_secs(3_600);
    list.revoke(&[rotated(Some(hour)).to_revocation(list.time())]).await.unwrap();
    assert!(!list.is_api_key_revoked(b"aaaaaaaaaaaa"), "the overlap is not over");
    list.revoke(&[rotated(Some(hour)).to_revocation(list.time() - 2 * hour)]).await.unwrap();
    assert!(list.is_api_key_revoked(b"aaaaaaaaaaaa"));
    // Another gateway, which does not know the earlier end yet, overwrites it in the store.
    let later = rotated(Some(hour)).to_revocation(list.time());
    gateways.store.publish(&[later.to_value()]).await.unwrap();
    let started = Instant::now();
    loop {
        let values: Vec<NewValue> = gateways.store.values.lock().values().cloned().collect();
        if Revocation::decode(&values[0].value).from < Revocation::decode(&later.to_value().value).from {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "the weaker revocation stays in the store");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(list.is_api_key_revoked(b"aaaaaaaaaaaa"));
}

#[test]
fn a_revocation_in_an_unknown_format_revokes_everything() {
    let revocation = Revocation { from: -5, issued_until: 1_800_000_000 };
    assert_eq!(Revocation::decode(&revocation.encode()), revocation);
    for unknown in [&[][..], &[1], &[2; 17], &[1; 18]] {
        assert_eq!(Revocation::decode(unknown), Revocation { from: i64::MIN, issued_until: i64::MAX });
    }
}

#[test]
fn names_of_revocations_are_unambiguous_and_a_second_form_of_a_signature_is_the_same_token() {
    let of = RevocationKey::of_token_id;
    assert_ne!(of("a", "bc"), of("ab", "c"));
    assert_ne!(of("a", "b"), RevocationKey::of_subject("a", "b"));
    let jwt = RevocationKey::of_token("eyJhbGciOiJFUzI1NiJ9.e30.c2ln");
    assert_eq!(jwt, RevocationKey::of_token("eyJhbGciOiJFUzI1NiJ9.e30.b3RoZXI"));
    assert_eq!(jwt, RevocationKey::of_signed_text(b"eyJhbGciOiJFUzI1NiJ9.e30"));
    assert_ne!(RevocationKey::of_token("opaque.a.b"), RevocationKey::of_token("opaque.a.c"));
}

#[test]
fn a_request_names_one_token_or_a_subject_and_its_lifetime_is_bounded() {
    let request = |value| serde_json::from_value::<TokenRevocationRequest>(value).unwrap();
    let select = |value| request(value).select(Duration::from_secs(1_800_000_000));
    for invalid in [
        json!({}),
        json!({"token": ""}),
        json!({"token": "a b"}),
        json!({"token": "a", "issuer": "b"}),
        json!({"issuer": "a"}),
        json!({"jti": "a"}),
        json!({"issuer": "a", "jti": "b", "subject": "c"}),
        json!({"issuer": "a", "jti": "b".repeat(3_000)}),
    ] {
        assert!(select(invalid.clone()).is_err(), "{invalid}");
    }
    let days = |days: u64| Duration::from_secs(days * 86_400);
    let by_id = select(json!({"issuer": "https://i.example", "jti": "7"})).unwrap();
    assert_eq!((by_id.lifetime(), &*by_id.subject), (days(30), "jti 7"));
    assert_eq!(by_id.detail.as_deref(), Some("issuer https://i.example"));
    let subject = select(json!({"issuer": "a", "subject": "b", "max_lifetime": "12h"})).unwrap();
    assert_eq!(subject.revocation.revocation.issued_until, 1_800_000_000);
    assert_eq!(subject.lifetime(), days(1) / 2 + Duration::from_secs(300));
    assert_eq!(select(json!({"token": "opaque", "max_lifetime": "3650d"})).unwrap().lifetime(), MAX_LIFETIME);
    let jwt = |claims: &serde_json::Value| {
        use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(&json!({"alg": "ES256"})), part(claims))
    };
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let token = select(json!({"token": jwt(&json!({"exp": now + 3_600}))})).unwrap();
    let rest = token.lifetime().as_secs();
    assert!((3_890..=3_901).contains(&rest), "until it expires, with the leeway: {rest}");
    assert!(!format!("{token:?} {}", token.subject).contains("c2ln"));
    for (exp, lifetime) in
        [(json!(i64::MAX), days(30)), (json!(253_402_300_799_i64), MAX_LIFETIME), (json!(1), Duration::from_secs(300))]
    {
        assert_eq!(select(json!({"token": jwt(&json!({"exp": exp}))})).unwrap().lifetime(), lifetime, "{exp}");
    }
}
