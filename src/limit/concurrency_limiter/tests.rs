//! Tests of who is admitted at the adaptive limit, and of who is woken.

use super::*;
use crate::{limit::agent_limit_metrics::AgentLimitMetrics, telemetry::Metrics, values::ClientKey};
use futures_util::poll;

const RANGE: ConcurrencyRange = ConcurrencyRange { min: 1, max: 4 };

fn limiter() -> Arc<ConcurrencyLimiter> {
    let maximum = NonZeroU32::new(100).unwrap();
    let limiter = Arc::new(ConcurrencyLimiter::new(maximum, Some(RANGE), LimitClock::new()));
    assert_eq!(limiter.adaptive_state().unwrap().limit.current(), 4);
    limiter
}

#[test]
fn a_client_within_its_share_is_held_up_only_by_one_beyond_it() {
    let limiter = limiter();
    let await_responses = |client: u64, already: u32, count: u32| -> Vec<ClientSlot> {
        let usage = limiter.clients.usage(ClientKey::new(client));
        let slots: Vec<_> = (0..count).map(|_| usage.try_acquire(100).unwrap()).collect();
        for (slot, waiting) in slots.iter().zip(already + 1..) {
            limiter.awaiting_response.fetch_add(1, SeqCst);
            assert_eq!(slot.start_awaiting_response(), waiting);
        }
        slots
    };
    let half = MaxShare::default();
    let _own = await_responses(1, 0, 2);
    let _within_share = await_responses(2, 0, 2);
    assert!(!limiter.is_held_up_by_others(2, 4, half), "no client has more than its share");
    let _beyond_share = await_responses(2, 2, 1);
    assert!(limiter.is_held_up_by_others(2, 4, half), "a client may have exactly its share");
    assert!(!limiter.is_held_up_by_others(3, 4, half));
    let _third = await_responses(3, 0, 1);
    assert!(!limiter.is_held_up_by_others(2, 4, half), "the shares alone are more than the limit");
}

#[tokio::test]
async fn one_wake_up_admits_each_queued_call_below_the_limit_and_no_other() {
    let limiter = limiter();
    limiter.awaiting_response.store(4, SeqCst);
    let (config, metrics) = (ConcurrencyConfig::default(), Metrics::new().unwrap());
    let agent = AgentLimitMetrics::new("a".parse().unwrap());
    let acquire = || {
        let (client, max_share) = (ClientKey::new(1), MaxShare::UNLIMITED);
        let request =
            SlotRequest { client, max_share, shared_max: None, config: &config, agent: &agent, metrics: &metrics };
        let limiter = &limiter;
        Box::pin(async move {
            let slot = limiter.acquire_fixed(&request).await?;
            limiter.acquire_adaptive(&request, slot).await
        })
    };
    let mut calls = [acquire(), acquire(), acquire()];
    for call in &mut calls {
        assert!(poll!(call).is_pending());
    }
    // The limit rises, or several responses come with one notification.
    limiter.awaiting_response.store(2, SeqCst);
    limiter.adaptive_state().unwrap().wait_queue.wake_next();
    let [first, second, third] = &mut calls;
    let (first, second) = (poll!(first), poll!(second));
    assert!(first.is_ready() && second.is_ready() && poll!(third).is_pending());
}
