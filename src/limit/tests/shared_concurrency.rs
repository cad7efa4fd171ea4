//! Tests of the concurrency that gateways share: several gateways and a model of the server, in virtual time.

use super::*;
use crate::{
    limit::shared_concurrency::LeaseServer,
    store::{LeaseBatch, LeaseEntry, LeaseReply, StateError},
};
use futures_util::future::join_all;
use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
};
use tokio::time::{Instant, sleep, timeout};

const LIFETIME: Duration = Duration::from_secs(5);

/// A gateway's lease in the model.
#[derive(Clone, Copy, Debug)]
struct ModelLease {
    slots: u32,
    waiting: u32,
    sequence: u64,
    ends_at: Instant,
}

/// What the server knows: of each agent, the lease of each gateway. It decides as the script and the function do.
#[derive(Debug, Default)]
struct LeaseModel(Mutex<HashMap<u128, BTreeMap<u32, ModelLease>>>);

impl LeaseModel {
    fn exchange(&self, gateway: u32, sequence: u64, entry: &LeaseEntry) -> LeaseReply {
        let (mut agents, now) = (self.0.lock(), Instant::now());
        let leases = agents.entry(entry.id).or_default();
        leases.retain(|_, lease| lease.ends_at > now);
        let others: Vec<ModelLease> =
            leases.iter().filter(|(other, _)| **other != gateway).map(|(_, lease)| *lease).collect();
        let of_others: u32 = others.iter().map(|lease| lease.slots).sum();
        let (mut share, mut limit) = (entry.max, entry.max);
        if others.iter().any(|lease| lease.waiting > 0) {
            let contenders = others.iter().filter(|lease| lease.slots > 0 || lease.waiting > 0).count();
            share = entry.max / (u32::try_from(contenders).unwrap() + 1);
            let is_needed = others.iter().any(|lease| lease.waiting > 0 && lease.slots < share);
            limit = share.max(entry.held + u32::from(!is_needed));
        }
        let slots = match leases.get(&gateway) {
            Some(lease) if lease.sequence >= sequence => lease.slots,
            _ => {
                let free = entry.max.saturating_sub(of_others);
                let slots = entry.held.max(entry.wanted.min(limit).min(free));
                let waiting = entry.waiting.saturating_sub(slots - entry.held);
                leases.insert(gateway, ModelLease { slots, waiting, sequence, ends_at: now + LIFETIME });
                slots
            }
        };
        LeaseReply { slots, total: of_others + slots, share }
    }

    /// Returns the slots of all gateways.
    fn leased(&self) -> u32 {
        let (agents, now) = (self.0.lock(), Instant::now());
        let leases = agents.values().flat_map(BTreeMap::values);
        leases.filter(|lease| lease.ends_at > now).map(|lease| lease.slots).sum()
    }
}

/// The way of one gateway to the server.
#[derive(Debug)]
struct ModelServer {
    model: Arc<LeaseModel>,
    gateway: u32,
    gateways: u32,
    is_available: AtomicBool,
    trips: AtomicUsize,
    /// The longest time that a request and a reply take, in microseconds.
    max_delay: AtomicU64,
    /// Of how many trips one is lost, if any.
    one_lost_of: AtomicU32,
    /// How many agents the server can handle in time, if it is slow.
    max_entries: AtomicUsize,
    /// Numbers of agents of the trips that were answered.
    answered: Mutex<Vec<usize>>,
}

/// Deadline of a trip, and of a call's draw.
const TIMEOUT: Duration = Duration::from_millis(20);

impl ModelServer {
    fn is_lost(&self) -> bool {
        let one_of = self.one_lost_of.load(Relaxed);
        one_of > 0 && fastrand::u32(..one_of) == 0
    }

    async fn travel(&self) {
        let max = self.max_delay.load(Relaxed);
        sleep(Duration::from_micros(fastrand::u64(0..=max))).await;
    }

    fn trips(&self) -> usize {
        self.trips.load(Relaxed)
    }
}

#[async_trait::async_trait]
impl LeaseServer for ModelServer {
    async fn exchange_leases(&self, batches: &[LeaseBatch]) -> Result<Vec<Vec<LeaseReply>>, StateError> {
        self.trips.fetch_add(1, Relaxed);
        let entries = batches.iter().map(|batch| batch.entries.len()).sum();
        if entries > self.max_entries.load(Relaxed) {
            sleep(TIMEOUT).await;
            return Err(StateError::Timeout);
        }
        self.answered.lock().push(entries);
        self.travel().await;
        let lost_before = self.is_lost();
        if lost_before && fastrand::bool() {
            // It arrives late, after others.
            let (model, gateway, batches) = (Arc::clone(&self.model), self.gateway, batches.to_vec());
            tokio::spawn(async move {
                sleep(Duration::from_millis(fastrand::u64(1..200))).await;
                for batch in &batches {
                    batch.entries.iter().for_each(|entry| {
                        let _ = model.exchange(gateway, batch.sequence, entry);
                    });
                }
            });
        }
        if lost_before || !self.is_available() {
            return Err(StateError::Timeout);
        }
        let exchange = |batch: &LeaseBatch| {
            let entries = batch.entries.iter();
            entries.map(|entry| self.model.exchange(self.gateway, batch.sequence, entry)).collect()
        };
        let replies = batches.iter().map(exchange).collect();
        self.travel().await;
        if self.is_lost() { Err(StateError::Timeout) } else { Ok(replies) }
    }

    fn is_available(&self) -> bool {
        self.is_available.load(Relaxed)
    }

    fn gateway_count(&self) -> u32 {
        self.gateways
    }

    fn shard_of(&self, key: u64) -> u8 {
        u8::try_from(key % 3).unwrap()
    }

    fn lease_lifetime(&self) -> Duration {
        LIFETIME
    }

    fn draw_timeout(&self) -> Duration {
        TIMEOUT
    }
}

/// One gateway, and its agent.
struct Gateway {
    limits: CallLimiter,
    agent: Arc<AgentLimits>,
    server: Arc<ModelServer>,
    metrics: Arc<Metrics>,
}

/// Gateways with this section `concurrency`, and with this policy for errors.
fn gateways(count: u32, concurrency: &Value, on_error: &str) -> (Vec<Gateway>, Arc<LeaseModel>) {
    let model = Arc::new(LeaseModel::default());
    let gateway = |gateway| {
        let server = Arc::new(ModelServer {
            model: Arc::clone(&model),
            gateway,
            gateways: count,
            is_available: AtomicBool::new(true),
            trips: AtomicUsize::new(0),
            max_delay: AtomicU64::new(300),
            one_lost_of: AtomicU32::new(0),
            max_entries: AtomicUsize::new(usize::MAX),
            answered: Mutex::default(),
        });
        let config = json!({"concurrency": concurrency, "max_share": 1, "on_error": {"concurrency": on_error}});
        let metrics = Metrics::new().unwrap();
        let limits = CallLimiter::new(&super::config(config), Arc::clone(&metrics)).unwrap();
        let limits = limits.with_lease_server(Arc::clone(&server) as Arc<dyn LeaseServer>);
        let agent = limits.register_agent(&"a".parse().unwrap(), AgentLimitSettings::default());
        Gateway { limits, agent, server, metrics }
    };
    ((0..count).map(gateway).collect(), model)
}

impl Gateway {
    async fn acquire(&self) -> Result<Permit, Fault> {
        self.limits.acquire_permit(&self.agent, CLIENT).await
    }

    /// Returns how many calls this gateway can begin now without waiting in a queue for long.
    async fn acquire_many(&self, max: usize) -> Vec<Permit> {
        let mut permits = Vec::new();
        while permits.len() < max
            && let Ok(Ok(permit)) = timeout(Duration::from_millis(300), self.acquire()).await
        {
            permits.push(permit);
        }
        permits
    }

    /// Counts refusals of the shared limit.
    fn refusals(&self) -> String {
        let text = self.metrics.render(ExpositionFormat::Text);
        let line = text.lines().find(|line| line.contains("limit=\"shared-concurrency\""));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0").to_owned()
    }
}

#[track_caller]
fn assert_shared_refusal(result: Result<Permit, Fault>, detail: &str) {
    let fault = result.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Overloaded, 503));
    assert!(fault.detail().unwrap().contains(detail), "{fault:?}");
    assert!(fault.retry_after_secs().is_some());
}

/// The calls at the agent, and the most that there were.
#[derive(Debug, Default)]
struct AgentCalls {
    now: AtomicU32,
    peak: AtomicU32,
    completed: AtomicU32,
}

impl AgentCalls {
    async fn take(&self, duration: Duration) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(now, Relaxed);
        sleep(duration).await;
        self.now.fetch_sub(1, Relaxed);
        self.completed.fetch_add(1, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_all_gateways_never_exceed_the_shared_maximum() {
    for (max, callers, one_lost_of) in [(1, 2, 0), (2, 3, 7), (3, 6, 0), (10, 8, 5), (40, 10, 0), (40, 30, 50)] {
        let concurrency = json!({"shared_max_per_agent": max, "max_queued": 1_000, "queue_timeout": "2s"});
        let (gateways, model) = gateways(3, &concurrency, "closed");
        gateways.iter().for_each(|gateway| gateway.server.one_lost_of.store(one_lost_of, Relaxed));
        let calls = AgentCalls::default();
        let end = Instant::now() + Duration::from_secs(20);
        let load = gateways.iter().flat_map(|gateway| {
            let calls = &calls;
            (0..callers).map(move |_| async move {
                while Instant::now() < end {
                    sleep(Duration::from_micros(fastrand::u64(..60_000))).await;
                    let waiting = timeout(Duration::from_micros(fastrand::u64(..900_000)), gateway.acquire());
                    if let Ok(Ok(_permit)) = waiting.await {
                        calls.take(Duration::from_micros(fastrand::u64(..80_000))).await;
                    }
                }
            })
        });
        join_all(load).await;
        let (peak, completed) = (calls.peak.load(Relaxed), calls.completed.load(Relaxed));
        assert!(peak <= max, "{peak} of {max}");
        // What the callers ask for in 20 s, bounded by the slots; trips that fail refuse calls.
        let offered = f64::from(3 * callers) / 0.07;
        let possible = offered.min(f64::from(max) / 0.04) * 20.0;
        let share = f64::from(completed) / possible;
        assert!(share > if one_lost_of == 0 { 0.5 } else { 0.2 }, "{completed} of {possible}, maximum {max}");
        sleep(LIFETIME).await;
        assert_eq!(model.leased(), 0, "every slot is free in the end");
        gateways[0].server.one_lost_of.store(0, Relaxed);
        assert_eq!(gateways[0].acquire_many(100).await.len(), usize::try_from(max).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn calls_below_half_of_the_maximum_need_no_trip_and_idle_slots_end_after_a_second() {
    let (gateways, model) = gateways(2, &json!({"shared_max_per_agent": 100}), "local");
    let gateway = &gateways[0];
    let begun = Instant::now();
    for _ in 0..5_000 {
        let permits = [gateway.acquire().await.unwrap(), gateway.acquire().await.unwrap()];
        sleep(Duration::from_millis(1)).await;
        drop(permits);
    }
    let (trips, seconds) = (gateway.server.trips(), begun.elapsed().as_secs());
    assert!(trips < 40, "{trips} trips for 10000 calls in {seconds} s");
    assert!(model.leased() >= 2);
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(model.leased(), 0);
    let trips = gateway.server.trips();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(gateway.server.trips(), trips, "an idle agent needs no trips");
}

#[tokio::test(start_paused = true)]
async fn above_half_of_the_maximum_a_free_slot_is_soon_another_gateways() {
    let (gateways, model) = gateways(2, &json!({"shared_max_per_agent": 10, "queue_timeout": "10s"}), "local");
    let (one, two) = (&gateways[0], &gateways[1]);
    let mut permits = one.acquire_many(100).await;
    assert_eq!(permits.len(), 10);
    assert_eq!(model.leased(), 10);
    let begun = Instant::now();
    let (permit, ()) = tokio::join!(two.acquire(), async {
        sleep(Duration::from_secs(1)).await;
        permits.pop();
    });
    let waited = begun.elapsed() - Duration::from_secs(1);
    assert!(permit.is_ok() && waited < Duration::from_millis(70), "{waited:?}");
    permits.truncate(6);
    sleep(Duration::from_millis(20)).await;
    assert_eq!(model.leased(), 7, "slots above half are given back at once");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_slot_waits_and_gets_503() {
    let concurrency = json!({"shared_max_per_agent": 1, "max_queued": 1, "queue_timeout": "1s"});
    let (gateways, _) = gateways(2, &concurrency, "local");
    let (one, two) = (&gateways[0], &gateways[1]);
    let permit = one.acquire().await.unwrap();
    let begun = Instant::now();
    let (first, second) = tokio::join!(two.acquire(), async {
        sleep(Duration::from_millis(500)).await;
        let queued = Instant::now();
        let refused = two.acquire().await;
        assert!(queued.elapsed() < Duration::from_millis(50), "the queue is full");
        refused
    });
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_shared_refusal(first, "agent a: shared concurrency limit 1 reached, queue_timeout elapsed");
    assert_shared_refusal(second, "wait queue full");
    assert_eq!((one.refusals(), two.refusals()), ("0".to_owned(), "2".to_owned()));
    let waiting = two.limits.inspect_permit(&two.agent, CLIENT).unwrap();
    assert_eq!(waiting, Some("limits.concurrency.shared_max_per_agent"));
    drop(permit);
    assert!(two.acquire().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn max_queued_0_refuses_a_call_that_the_server_has_no_slot_for_and_no_other() {
    let (gateways, _) = gateways(2, &json!({"shared_max_per_agent": 3, "max_queued": 0}), "local");
    let _permits = [gateways[0].acquire().await.unwrap(), gateways[1].acquire().await.unwrap()];
    let _permit = gateways[0].acquire().await.unwrap();
    assert_shared_refusal(gateways[1].acquire().await, "wait queue full");
}

#[tokio::test(start_paused = true)]
async fn the_shared_maximum_applies_besides_that_of_the_gateway_and_can_change() {
    let concurrency = json!({"shared_max_per_agent": 3, "max_per_agent": 2, "max_queued": 0, "adaptive": false});
    let (gateways, _) = gateways(2, &concurrency, "local");
    let of_one = gateways[0].acquire_many(9).await;
    assert_eq!(of_one.len(), 2);
    let fault = gateways[0].acquire().await.unwrap_err();
    assert!(fault.detail().unwrap().contains("concurrency limit 2 reached"), "{fault:?}");
    assert_eq!(gateways[1].acquire_many(9).await.len(), 1);
    let settings = AgentLimitSettings { shared_max_concurrency: NonZeroU32::new(4), ..AgentLimitSettings::default() };
    gateways[1].limits.register_agent(&"a".parse().unwrap(), settings);
    assert_eq!(gateways[1].acquire_many(9).await.len(), 2, "a rule replaces the general maximum");
    let config = config(json!({"max_share": 1}));
    gateways[0].limits.reconfigure(&config).unwrap();
    assert_eq!(gateways[0].acquire_many(9).await.len(), 9, "without the setting there is no such limit");
}

#[tokio::test(start_paused = true)]
async fn while_the_server_cannot_be_reached_on_error_decides() {
    for (on_error, expected) in [("local", 2), ("open", 20), ("closed", 0)] {
        for is_known in [true, false] {
            let concurrency = json!({"shared_max_per_agent": 6, "max_queued": 0});
            let (gateways, model) = gateways(3, &concurrency, on_error);
            let gateway = &gateways[0];
            // Either the circuit breaker is open, or every trip is lost.
            gateway.server.is_available.store(!is_known, Relaxed);
            gateway.server.one_lost_of.store(1, Relaxed);
            let permits = gateway.acquire_many(20).await;
            assert_eq!(permits.len(), expected, "{on_error}");
            if on_error == "closed" {
                assert_shared_refusal(gateway.acquire().await, "shared-concurrency: store unavailable");
            }
            gateway.server.is_available.store(true, Relaxed);
            gateway.server.one_lost_of.store(0, Relaxed);
            sleep(Duration::from_secs(2)).await;
            assert_eq!(usize::try_from(model.leased()).unwrap(), permits.len(), "calls in progress count first");
            assert_eq!(gateways[1].acquire_many(9).await.len(), 6_usize.saturating_sub(expected), "{on_error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_server_that_hangs_as_long_as_for_one_trip() {
    for (on_error, is_granted) in [("local", true), ("open", true), ("closed", false)] {
        let (gateways, _) = gateways(3, &json!({"shared_max_per_agent": 6, "max_queued": 0}), on_error);
        let gateway = &gateways[0];
        gateway.server.max_entries.store(0, Relaxed);
        for call in 0..2 {
            // Calls begin at any time during the trips and the pauses between them.
            sleep(Duration::from_millis(fastrand::u64(..50))).await;
            let begun = Instant::now();
            let permit = gateway.acquire().await;
            let waited = begun.elapsed();
            assert!(waited <= TIMEOUT + Duration::from_millis(2), "{on_error}, call {call}: {waited:?}");
            assert_eq!(permit.is_ok(), is_granted, "{on_error}, call {call}");
            std::mem::forget(permit);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn trips_become_smaller_until_a_slow_server_answers_them_in_time() {
    let (gateways, model) = gateways(1, &json!({"shared_max_per_agent": 6, "max_queued": 0}), "local");
    let gateway = &gateways[0];
    gateway.server.max_entries.store(100, Relaxed);
    let agents = (0..1_000).map(|agent| {
        let id = format!("agent-{agent}").parse().unwrap();
        gateway.limits.register_agent(&id, AgentLimitSettings::default())
    });
    let agents: Vec<_> = agents.collect();
    let calls = agents.iter().map(|agent| gateway.limits.acquire_permit(agent, CLIENT));
    let permits: Vec<_> = join_all(calls).await.into_iter().collect::<Result<_, _>>().unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(model.leased() >= 1_000, "{}", model.leased());
    assert!(gateway.server.answered.lock().iter().all(|entries| *entries <= 100));
    drop(permits);
}

#[tokio::test(start_paused = true)]
async fn slots_that_are_leased_stay_usable_in_a_short_outage() {
    let (gateways, _) = gateways(3, &json!({"shared_max_per_agent": 12, "max_queued": 0}), "closed");
    let gateway = &gateways[0];
    drop(gateway.acquire_many(4).await);
    gateway.server.is_available.store(false, Relaxed);
    let leased = gateway.acquire_many(20).await.len();
    assert!((4..=6).contains(&leased), "{leased}");
    sleep(LIFETIME).await;
    assert_shared_refusal(gateway.acquire().await, "shared-concurrency");
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_dead_gateway_are_free_after_its_lease() {
    let (mut gateways, _) = gateways(2, &json!({"shared_max_per_agent": 4, "queue_timeout": "30s"}), "local");
    let dead = gateways.remove(0);
    let permits = dead.acquire_many(9).await;
    assert_eq!(permits.len(), 4);
    sleep(Duration::from_secs(60)).await;
    assert!(timeout(Duration::from_secs(5), gateways[0].acquire()).await.is_err(), "leases are renewed");
    // Its exchanger ends with it.
    drop(dead);
    let begun = Instant::now();
    assert!(gateways[0].acquire().await.is_ok());
    let waited = begun.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_millis(5_100)).contains(&waited), "{waited:?}");
    assert_eq!(gateways[0].acquire_many(9).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_with_many_waiting_calls_starves_no_other() {
    for max in [1, 2, 3, 5, 8] {
        let concurrency = json!({"shared_max_per_agent": max, "max_queued": 1_000, "queue_timeout": "60s"});
        let (gateways, _) = gateways(3, &concurrency, "local");
        let end = Instant::now() + Duration::from_secs(60);
        let load = gateways.iter().zip([50, 10, 8]).map(|(gateway, callers)| async move {
            let calls = AgentCalls::default();
            let load = (0..callers).map(|_| async {
                while Instant::now() < end {
                    let _permit = gateway.acquire().await.unwrap();
                    calls.take(Duration::from_millis(100)).await;
                }
            });
            join_all(load).await;
            calls.completed.load(Relaxed)
        });
        let completed = join_all(load).await;
        let all: u32 = completed.iter().sum();
        assert!(completed.iter().all(|own| *own > all / 6), "maximum {max}: {completed:?}");
        assert!(f64::from(all) > 0.5 * f64::from(max) * 600.0, "maximum {max}: {completed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_has_its_share_of_the_shared_maximum() {
    let (gateways, _) = gateways(1, &json!({"shared_max_per_agent": 4, "max_queued": 0}), "local");
    let gateway = &gateways[0];
    let config = config(json!({"concurrency": {"shared_max_per_agent": 4, "max_queued": 0}, "max_share": 0.5}));
    gateway.limits.reconfigure(&config).unwrap();
    let _permits = [gateway.acquire().await.unwrap(), gateway.acquire().await.unwrap()];
    let fault = gateway.acquire().await.unwrap_err();
    assert!(fault.message().contains("has 2 calls to this agent in progress, its share of 4"), "{fault:?}");
    assert!(gateway.limits.acquire_permit(&gateway.agent, ClientKey::new(2)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_batch_gets_slots_that_were_drawn_for_it() {
    let (gateways, _) = gateways(2, &json!({"shared_max_per_agent": 20, "adaptive": false}), "local");
    let gateway = &gateways[0];
    let mut permits = vec![gateway.acquire().await.unwrap()];
    for _ in 0..20 {
        permits.extend(gateway.limits.try_acquire_permit(&gateway.agent, CLIENT));
        sleep(Duration::from_millis(2)).await;
    }
    assert!((8..=20).contains(&permits.len()), "{}", permits.len());
    drop(permits);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(gateway.server.model.leased(), 0);
}

#[tokio::test]
async fn a_gateway_that_stops_gives_its_idle_slots_back() {
    let (mut gateways, model) = gateways(2, &json!({"shared_max_per_agent": 20}), "local");
    let gateway = gateways.remove(0);
    let permits = join_all((0..5).map(|_| gateway.acquire())).await;
    assert!(permits.iter().all(Result::is_ok));
    drop(permits);
    assert!(model.leased() >= 5);
    let gateway = tokio::task::spawn_blocking(move || {
        gateway.limits.save_quotas(true).unwrap();
        gateway
    });
    let _gateway = gateway.await.unwrap();
    assert_eq!(model.leased(), 0);
}
