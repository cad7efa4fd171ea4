//! Tests of rates, quotas, concurrency and their memory, on clocks that the tests advance.

mod adaptive_concurrency_simulation;
mod concurrency_permits;
mod overload;
mod quotas;
mod rates;
mod shared_concurrency;
mod shares;
mod store_contract;

use super::{clock::LimitClock, *};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode},
    telemetry::{ExpositionFormat, LimitKind, Metrics},
    values::{ClientKey, Rate, StoreAnswer},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Limits with a clock that the test advances.
struct LimitFixture {
    limits: CallLimiter,
    clock: LimitClock,
    metrics: Arc<Metrics>,
}

fn config(config: Value) -> LimitConfig {
    serde_json::from_value(config).unwrap()
}

/// The client of calls in tests that are not about shares.
const CLIENT: ClientKey = ClientKey::new(1);

/// Limits that one client may use alone, unless the configuration has shares.
fn fixture(mut config_json: Value) -> LimitFixture {
    config_json.as_object_mut().unwrap().entry("max_share").or_insert(json!(1));
    let (clock, metrics) = (LimitClock::new(), Metrics::new().unwrap());
    let limits = CallLimiter::with_clock(&config(config_json), Arc::clone(&metrics), clock.clone()).unwrap();
    LimitFixture { limits, clock, metrics }
}

/// Returns the answer of a store in this process, which is always ready.
#[track_caller]
fn ready<T>(answer: StoreAnswer<'_, T>) -> T {
    match answer {
        StoreAnswer::Ready(value) => value,
        StoreAnswer::Pending(_) => panic!("a store in this process answers at once"),
    }
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

impl LimitFixture {
    fn agent(&self, id: &str) -> Arc<AgentLimits> {
        self.limits.register_agent(&id.parse().unwrap(), AgentLimitSettings::default())
    }

    fn call(&self, agent: &AgentLimits, caller: &str) -> Result<Option<RateLimitStatus>, Fault> {
        self.batch(agent, caller, 1)
    }

    fn batch(&self, agent: &AgentLimits, caller: &str, count: u32) -> Result<Option<RateLimitStatus>, Fault> {
        ready(self.limits.acquire_for_calls(
            agent,
            &RateLimitKey::for_caller(caller, None),
            NonZeroU32::new(count).unwrap(),
        ))
    }

    /// Returns how many of `count` calls are admitted.
    fn admitted_calls(&self, agent: &AgentLimits, caller: &str, count: usize) -> usize {
        (0..count).filter(|_| self.call(agent, caller).is_ok()).count()
    }

    fn evict_all_idle(&self) {
        (0..16).for_each(|_| self.limits.evict_idle());
    }

    fn has_metric(&self, line: &str) -> bool {
        self.metrics.render(ExpositionFormat::Text).lines().any(|rendered| rendered == line)
    }
}

#[track_caller]
fn assert_rate_limited(result: Result<Option<RateLimitStatus>, Fault>, limit: &str) -> Fault {
    let fault = result.unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::RateLimited, 429));
    assert!(fault.detail().unwrap().starts_with(&format!("limit {limit}: ")), "{fault}");
    fault
}

#[test]
fn the_documented_configuration_is_accepted_and_unknown_or_invalid_keys_are_refused() {
    let documented = config(json!({
        "per_address": "100/s burst 200", "per_caller": "50/s", "per_caller_agent": "10/s", "per_agent": "1000/s",
        "quota": {"per_day": 10_000, "per_month": 200_000},
        "tiers": {"gold": {"per_caller": "500/s", "quota": {"per_day": 100_000}}},
        "concurrency": {"max_per_agent": 64, "max_queued": 64, "queue_timeout": "1s"},
        "max_tracked_keys": 1_000_000, "quota_state_file": "quotas.json",
    }));
    assert_eq!(config(serde_json::to_value(&documented).unwrap()), documented);
    assert_eq!(config(json!({"per_address": null})).per_address, None);
    assert!(config(json!({})).per_address.is_some());
    for invalid in [
        json!({"per_adress": "1/s"}),
        json!({"quota": {"per_day": 0}}),
        json!({"concurrency": {"max_per_agent": 0}}),
        json!({"per_caller": 5}),
    ] {
        assert!(serde_json::from_value::<LimitConfig>(invalid.clone()).is_err(), "{invalid}");
    }
}

#[test]
fn all_problems_of_a_configuration_are_reported_at_once_and_nothing_is_applied() {
    let invalid =
        config(json!({"max_tracked_keys": 0, "tiers": {"": {}}, "concurrency": {"max_per_agent": 2_000_000}}));
    let problems = CallLimiter::new(&invalid, Metrics::new().unwrap()).unwrap_err();
    for path in ["max_tracked_keys:", "tiers.:", "concurrency.max_per_agent:"] {
        assert!(problems.iter().any(|problem| problem.starts_with(path)), "{path} {problems:?}");
    }
    let limits = fixture(json!({"per_caller": "2/s"}));
    assert_eq!(limits.limits.reconfigure(&invalid).unwrap_err().len(), 3);
    assert_eq!(limits.admitted_calls(&limits.agent("a"), "c", 5), 2);
}
