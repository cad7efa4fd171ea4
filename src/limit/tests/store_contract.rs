//! The contract of limit stores, for the store in this process and for one that answers later.

use super::*;
use crate::limit::in_process::InProcessLimitStore;
use futures_util::FutureExt as _;
use std::{collections::HashMap, future::poll_fn, task::Poll};

/// A store that answers each request after its caller was suspended, as a store over the network does. It keeps the
/// buckets in one map, by their shared ids.
#[derive(Debug, Clone)]
struct DelayedStore {
    state: Arc<Mutex<DelayedState>>,
    local: Arc<InProcessLimitStore>,
    clock: LimitClock,
    trips: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct DelayedState {
    /// Times at which the buckets are full.
    full_at: HashMap<u128, Duration>,
    daily_counts: HashMap<BucketKey, u64>,
}

/// What a request says of one bucket.
struct BucketRequest {
    id: u128,
    rule: RateRule,
}

struct Request {
    count: u32,
    buckets: Vec<BucketRequest>,
    daily_quota: Option<(BucketKey, u64)>,
}

impl Request {
    fn new(draw: &LimitDraw<'_>) -> Self {
        let buckets =
            draw.buckets().map(|bucket| BucketRequest { id: bucket.shared_id(), rule: *bucket.buckets.rule() });
        let daily_quota = draw.quota.and_then(|quota| Some((quota.caller.bucket, quota.quota.per_day?.get())));
        Self { count: draw.count.get(), buckets: buckets.collect(), daily_quota }
    }
}

impl DelayedState {
    fn acquire(&mut self, request: &Request, now: Duration) -> DrawResult {
        let mut tightest = None;
        let mut updates = Vec::new();
        for BucketRequest { id, rule } in &request.buckets {
            let full_at =
                self.full_at.get(id).copied().unwrap_or_default().max(now) + rule.refill_interval * request.count;
            let capacity = rule.refill_interval * rule.burst.get();
            let Some(room) = (now + capacity).checked_sub(full_at) else {
                let delay = full_at - now - capacity;
                let retry_after = (request.count <= rule.burst.get()).then_some(delay);
                return Err(LimitExceeded { status: rule.status(0, retry_after), retry_after }.into());
            };
            let remaining = u32::try_from(room.as_nanos() / rule.refill_interval.as_nanos()).unwrap();
            tightest = Some(rule.status(remaining, None).more_restrictive(tightest));
            updates.push((*id, full_at));
        }
        if let Some((key, max)) = request.daily_quota {
            let used = self.daily_counts.entry(key).or_default();
            let status = RateLimitStatus {
                limit: LimitKind::DailyQuota,
                quota: max,
                remaining: max.saturating_sub(*used + u64::from(request.count)),
                reset: Duration::from_secs(1),
                window: Duration::from_secs(86_400),
            };
            if *used + u64::from(request.count) > max {
                return Err(LimitExceeded { status, retry_after: Some(status.reset) }.into());
            }
            *used += u64::from(request.count);
            tightest = Some(status.more_restrictive(tightest));
        }
        self.full_at.extend(updates);
        Ok(tightest)
    }

    fn refund(&mut self, request: &Request) {
        for BucketRequest { id, rule } in &request.buckets {
            let full_at = self.full_at.entry(*id).or_default();
            *full_at = full_at.saturating_sub(rule.refill_interval * request.count);
        }
        if let Some((key, _)) = request.daily_quota {
            *self.daily_counts.entry(key).or_default() -= u64::from(request.count);
        }
    }
}

impl LimitStore for DelayedStore {
    fn open_buckets(&self, rule: RateRule, scope: BucketScope) -> Arc<dyn RateBuckets> {
        self.local.open_buckets(rule, scope)
    }

    fn acquire<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, DrawResult> {
        let request = Request::new(draw);
        self.trips.fetch_add(1, Relaxed);
        StoreAnswer::Pending(Box::pin(async move {
            suspend_once().await;
            self.state.lock().acquire(&request, self.clock.elapsed())
        }))
    }

    fn inspect<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, Vec<InspectionResult>> {
        let request = Request::new(draw);
        StoreAnswer::Pending(Box::pin(async move {
            suspend_once().await;
            // The draw of a copy, which reports the tightest limit only.
            let state = self.state.lock();
            let mut copy = DelayedState { full_at: state.full_at.clone(), daily_counts: state.daily_counts.clone() };
            copy.acquire(&request, self.clock.elapsed()).transpose().into_iter().collect()
        }))
    }

    fn refund<'a>(&'a self, draw: &LimitDraw<'_>) -> StoreAnswer<'a, ()> {
        let request = Request::new(draw);
        StoreAnswer::Pending(Box::pin(async move {
            suspend_once().await;
            self.state.lock().refund(&request);
        }))
    }

    fn reconfigure(&self, _: &LimitConfig) {}

    fn evict_expired_quotas(&self, _: bool) {}

    fn quota_count(&self) -> usize {
        0
    }

    fn save(&self, _: SaveReason) -> Result<(), String> {
        Ok(())
    }

    fn reload(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Suspends its caller once, like an answer that has not arrived.
async fn suspend_once() {
    let mut is_suspended = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_suspended, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn in_process_store(clock: &LimitClock) -> InProcessLimitStore {
    InProcessLimitStore::open(&config(json!({})), clock.clone(), Metrics::new().unwrap()).unwrap()
}

fn delayed_store(clock: &LimitClock) -> DelayedStore {
    DelayedStore {
        state: Arc::default(),
        local: Arc::new(in_process_store(clock)),
        clock: clock.clone(),
        trips: Arc::default(),
    }
}

/// Every store, each with the clock that it reads.
fn all_stores() -> Vec<(Box<dyn LimitStore>, LimitClock)> {
    let clocks = [LimitClock::new(), LimitClock::new()];
    let stores: [Box<dyn LimitStore>; 2] =
        [Box::new(in_process_store(&clocks[0])), Box::new(delayed_store(&clocks[1]))];
    stores.into_iter().zip(clocks).collect()
}

fn tokens(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn open_per_key(store: &dyn LimitStore, limit: LimitKind, rate_text: &str) -> Arc<dyn RateBuckets> {
    store.open_buckets(RateRule::new(limit, rate(rate_text)), BucketScope::PerKey { max_keys: 100 })
}

fn bucket<'a>(buckets: &'a Arc<dyn RateBuckets>, caller: &str) -> BucketDraw<'a> {
    BucketDraw { buckets: &**buckets, key: BucketKey::for_caller(caller) }
}

async fn remaining(store: &dyn LimitStore, draw: LimitDraw<'_>) -> u64 {
    store.acquire(&draw).await.unwrap().unwrap().remaining
}

async fn refused_limit(store: &dyn LimitStore, draw: LimitDraw<'_>) -> (LimitKind, Option<Duration>) {
    match store.acquire(&draw).await.unwrap_err() {
        LimitRefusal::Exceeded(exceeded) => (exceeded.status.limit, exceeded.retry_after),
        refusal @ LimitRefusal::StoreUnavailable(_) => panic!("{refusal:?}"),
    }
}

#[tokio::test]
async fn a_bucket_starts_full_holds_its_burst_and_refills() {
    for (store, clock) in all_stores() {
        let buckets = open_per_key(&*store, LimitKind::Caller, "1/s burst 3");
        let draw = |count| LimitDraw::from_caller_buckets(tokens(count), [Some(bucket(&buckets, "c")), None]);
        assert_eq!(remaining(&*store, draw(1)).await, 2);
        assert_eq!(remaining(&*store, draw(2)).await, 0);
        let (limit, retry_after) = refused_limit(&*store, draw(1)).await;
        assert!(limit == LimitKind::Caller && retry_after.unwrap() <= Duration::from_secs(1), "{retry_after:?}");
        assert_eq!(refused_limit(&*store, draw(4)).await.1, None, "the bucket never holds so many");
        clock.advance(Duration::from_secs(1));
        assert_eq!(remaining(&*store, draw(1)).await, 0);
        clock.advance(Duration::from_secs(100));
        assert_eq!(remaining(&*store, draw(1)).await, 2, "no more than the burst");
        let other = LimitDraw::from_caller_buckets(tokens(3), [Some(bucket(&buckets, "d")), None]);
        assert_eq!(remaining(&*store, other).await, 0, "another key has another bucket");
    }
}

#[tokio::test]
async fn a_draw_takes_from_every_bucket_and_the_quota_or_from_none() {
    for (store, _) in all_stores() {
        let caller = open_per_key(&*store, LimitKind::Caller, "10/h");
        let pair = open_per_key(&*store, LimitKind::CallerAgent, "5/h");
        let agent = [store.open_buckets(RateRule::new(LimitKind::Agent, rate("4/h")), BucketScope::Single)];
        let caller_buckets = [Some(bucket(&caller, "c")), Some(bucket(&pair, "c"))];
        let agent_buckets = Some(AgentDraw { buckets: &agent, key: BucketKey::for_agent("a") });
        let quota = QuotaConfig { per_day: std::num::NonZeroU64::new(3), per_month: None };
        let quota = Some(QuotaDraw { caller: RateLimitKey::for_caller("c", None), quota });
        let draw = |count| LimitDraw { count: tokens(count), caller_buckets, agent_buckets, quota };
        assert_eq!(refused_limit(&*store, draw(11)).await.0, LimitKind::Caller);
        assert_eq!(refused_limit(&*store, draw(6)).await.0, LimitKind::CallerAgent);
        assert_eq!(refused_limit(&*store, draw(5)).await.0, LimitKind::Agent);
        assert_eq!(refused_limit(&*store, draw(4)).await.0, LimitKind::DailyQuota);
        let status = store.acquire(&draw(3)).await.unwrap().unwrap();
        assert_eq!((status.limit, status.remaining), (LimitKind::DailyQuota, 0), "the tightest limit is reported");
        let without_quota = LimitDraw { quota: None, ..draw(1) };
        assert_eq!(remaining(&*store, without_quota).await, 0, "refused draws took nothing from the agent's bucket");
        assert_eq!(refused_limit(&*store, without_quota).await.0, LimitKind::Agent);
        let caller_only = LimitDraw::from_caller_buckets(tokens(6), [Some(bucket(&caller, "c")), None]);
        assert_eq!(remaining(&*store, caller_only).await, 0, "refused draws took nothing from the caller's bucket");
    }
}

#[tokio::test]
async fn an_inspection_decides_as_a_draw_would_and_takes_nothing() {
    for (store, clock) in all_stores() {
        let caller = open_per_key(&*store, LimitKind::Caller, "1/s burst 3");
        let quota = QuotaConfig { per_day: std::num::NonZeroU64::new(4), per_month: None };
        let quota = Some(QuotaDraw { caller: RateLimitKey::for_caller("c", None), quota });
        let draw = |count| LimitDraw {
            quota,
            ..LimitDraw::from_caller_buckets(tokens(count), [Some(bucket(&caller, "c")), None])
        };
        for count in [1, 4, 2, 1, 1, 1] {
            let draw = draw(count);
            let inspected = store.inspect(&draw).await;
            let again = store.inspect(&draw).await;
            let describe = |results: &[InspectionResult]| -> Vec<Result<u64, LimitKind>> {
                let describe = |result: &InspectionResult| match result {
                    Ok(status) => Ok(status.remaining),
                    Err(refusal) => Err(refusal.limit()),
                };
                results.iter().map(describe).collect()
            };
            assert_eq!(describe(&inspected), describe(&again), "{count}");
            let tightest = inspected
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
                .map(|all| all.into_iter().map(|status| status.remaining).min().unwrap());
            let drawn = store.acquire(&draw).await.map(|status| status.unwrap().remaining);
            assert_eq!(tightest.map_err(|why| why.limit()), drawn.map_err(|why| why.limit()), "{count}");
        }
        clock.advance(Duration::from_secs(10));
        assert!(
            store.inspect(&draw(1)).await.into_iter().any(|result| result.is_err()) == refuses(&*store, draw(1)).await
        );
    }
}

async fn refuses(store: &dyn LimitStore, draw: LimitDraw<'_>) -> bool {
    store.acquire(&draw).await.is_err()
}

#[tokio::test]
async fn a_refund_returns_what_a_draw_acquired_and_never_overfills() {
    for (store, _) in all_stores() {
        let buckets = open_per_key(&*store, LimitKind::Caller, "5/h");
        let quota = QuotaConfig { per_day: std::num::NonZeroU64::new(5), per_month: None };
        let quota = Some(QuotaDraw { caller: RateLimitKey::for_caller("c", None), quota });
        let caller_buckets = [Some(bucket(&buckets, "c")), None];
        let draw = LimitDraw { quota, ..LimitDraw::from_caller_buckets(tokens(5), caller_buckets) };
        for _ in 0..3 {
            assert_eq!(remaining(&*store, draw).await, 0);
            assert_eq!(refused_limit(&*store, draw).await.0, LimitKind::Caller);
            store.refund(&draw).await;
        }
        assert_eq!(remaining(&*store, draw).await, 0);
        assert_eq!(refused_limit(&*store, draw).await.0, LimitKind::Caller);
    }
}

#[tokio::test]
async fn a_draw_without_limits_reports_no_status() {
    for (store, _) in all_stores() {
        let draw = LimitDraw::from_caller_buckets(NonZeroU32::MIN, [None, None]);
        assert_eq!(store.acquire(&draw).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_limiter_waits_for_its_store_and_makes_one_trip_for_each_draw() {
    let (clock, metrics) = (LimitClock::new(), Metrics::new().unwrap());
    let store = delayed_store(&clock);
    let limit_config = config(json!({
        "per_address": "1/h", "per_caller": "3/h", "per_caller_agent": "2/h", "per_agent": "9/h", "quota": {"per_day": 5},
    }));
    let limiter = CallLimiter::with_store(&limit_config, Arc::clone(&metrics), clock, Box::new(store.clone()));
    let peer = "192.0.2.1".parse().unwrap();
    let mut answer = std::pin::pin!(limiter.acquire_for_address(peer).into_future());
    assert!(answer.as_mut().now_or_never().is_none(), "the store has not answered");
    answer.await.unwrap();
    assert_eq!(limiter.acquire_for_address(peer).await.unwrap_err().http_status(), 429);

    let agent = limiter.register_agent(&"a".parse().unwrap(), AgentLimitSettings::default());
    let key = RateLimitKey::for_caller("c", None);
    let trips_before = store.trips.load(Relaxed);
    for remaining in [1, 0] {
        let status = limiter.acquire_for_calls(&agent, &key, NonZeroU32::MIN).await.unwrap().unwrap();
        assert_eq!((status.limit, status.remaining), (LimitKind::CallerAgent, remaining));
    }
    assert_rate_limited(limiter.acquire_for_calls(&agent, &key, NonZeroU32::MIN).await, "caller-agent");
    assert_eq!(store.trips.load(Relaxed) - trips_before, 3);
    assert!(
        metrics
            .render(ExpositionFormat::Text)
            .contains("gatepost_limited_requests_total{limit=\"caller-agent\",agent=\"-\"} 1")
    );
    assert!(limiter.acquire_for_directory(&key, true).await.is_ok());
    assert_rate_limited(limiter.acquire_for_directory(&key, false).await, "caller");
}

#[tokio::test]
async fn gateways_with_one_store_share_the_buckets_of_a_caller() {
    let clock = LimitClock::new();
    let store = delayed_store(&clock);
    let limit_config = config(json!({"per_caller": "3/h", "per_agent": "4/h"}));
    let gateways = [(); 3].map(|()| {
        CallLimiter::with_store(&limit_config, Metrics::new().unwrap(), clock.clone(), Box::new(store.clone()))
    });
    let mut admitted = HashMap::new();
    for (caller, gateway) in
        ["c", "d", "c", "d"].into_iter().flat_map(|caller| gateways.iter().map(move |each| (caller, each)))
    {
        let agent = gateway.register_agent(&"a".parse().unwrap(), AgentLimitSettings::default());
        let key = RateLimitKey::for_caller(caller, None);
        if gateway.acquire_for_calls(&agent, &key, NonZeroU32::MIN).await.is_ok() {
            *admitted.entry(caller).or_insert(0) += 1;
        }
    }
    assert_eq!((admitted["c"], admitted["d"]), (3, 1), "the agent's bucket holds four calls of all gateways");
}

#[test]
fn an_unavailable_store_refuses_with_503() {
    let fault = LimitRefusal::StoreUnavailable(LimitKind::Caller).into_fault();
    assert_eq!((fault.code(), fault.http_status(), fault.retry_after_secs()), (FaultCode::Overloaded, 503, Some(1)));
}

#[test]
fn bucket_keys_are_equal_in_every_gateway_process_and_release() {
    let address = |text: &str| BucketKey::for_address(text.parse().unwrap()).hash();
    let (caller, agent) = (BucketKey::for_caller("key:alice"), BucketKey::for_agent("key:alice"));
    let rule = |limit| RateRule::new(limit, rate("100/s burst 20")).id;
    let vectors: [(&str, u64, u64); 8] = [
        ("caller", caller.hash(), 0x2fe4_a88d_77ab_b50c),
        ("empty caller", BucketKey::for_caller("").hash(), 0x2afd_4ac1_65e1_86c4),
        ("agent", agent.hash(), 0x679f_64c6_0f73_a274),
        ("pair", BucketKey::for_pair(caller, agent).hash(), 0x322a_32a1_1e33_e755),
        ("IPv4", address("192.0.2.1"), 0xcf2e_79d9_c6c2_6fc6),
        ("IPv6", address("2001:db8:1:2::"), 0xaf74_302d_11e8_df1d),
        ("rule of callers", rule(LimitKind::Caller), 0x4ede_b8d9_d862_42b5),
        ("rule of agents", rule(LimitKind::Agent), 0x74e4_4ea3_a4d6_270a),
    ];
    let computed: Vec<_> = vectors.iter().map(|(name, hash, _)| format!("{name} {hash:#018x}")).collect();
    let expected: Vec<_> = vectors.iter().map(|(name, _, hash)| format!("{name} {hash:#018x}")).collect();
    assert_eq!(computed, expected, "a changed hash makes every shared bucket a new one");
    assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    assert_eq!(address("2001:db8:1:2::"), address("2001:db8:1:2:3:4:5:6"));
    assert_ne!(BucketKey::for_pair(caller, agent), BucketKey::for_pair(agent, caller));
    assert_ne!(rule(LimitKind::Caller), RateRule::new(LimitKind::Caller, rate("100/s burst 21")).id);
}

#[test]
fn a_shared_id_names_the_rule_and_the_key() {
    let store = in_process_store(&LimitClock::new());
    let buckets = open_per_key(&store, LimitKind::Caller, "100/s");
    let draw = bucket(&buckets, "c");
    assert_eq!(draw.shared_id() >> 64, u128::from(buckets.rule().id));
    assert_eq!(draw.shared_id() as u64, BucketKey::for_caller("c").hash());
}
