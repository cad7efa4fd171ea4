//! Tests of token buckets: which bucket refuses, what a refusal reports and refunds, and what is evicted.

use super::*;

#[test]
fn r5_a_caller_over_its_rate_is_refused_with_retry_after() {
    let limits = fixture(json!({"per_caller": "60/min burst 3"}));
    let agent = limits.agent("a");
    for remaining in [2, 1, 0] {
        let status = limits.call(&agent, "c").unwrap().unwrap();
        assert_eq!((status.limit, status.remaining), (LimitKind::Caller, remaining));
    }
    let fault = assert_rate_limited(limits.call(&agent, "c"), "caller");
    assert_eq!(fault.retry_after_secs(), Some(1));
    let headers: Vec<_> = fault.headers().collect();
    assert_eq!(headers[0], ("RateLimit", "\"caller\";r=0;t=1"));
    assert_eq!(headers[1], ("RateLimit-Policy", "\"caller\";q=3;w=3"));
    assert!(limits.has_metric("gatepost_limited_requests_total{limit=\"caller\",agent=\"-\"} 1"));
    assert!(limits.call(&agent, "d").is_ok(), "another caller is not limited");
    limits.clock.advance(Duration::from_secs(1));
    assert_eq!(limits.admitted_calls(&agent, "c", 5), 1);
}

#[test]
fn r5_each_kind_of_bucket_refuses_on_its_own() {
    let limits = fixture(json!({"per_caller_agent": "2/h"}));
    let (a, b) = (limits.agent("a"), limits.agent("b"));
    assert_eq!(limits.admitted_calls(&a, "c", 5), 2);
    assert_rate_limited(limits.call(&a, "c"), "caller-agent");
    assert_eq!(limits.admitted_calls(&b, "c", 5), 2);

    let limits = fixture(json!({"per_agent": "2/h"}));
    let (a, b) = (limits.agent("a"), limits.agent("b"));
    assert_eq!(limits.admitted_calls(&a, "c", 5), 2);
    assert_rate_limited(limits.call(&a, "d"), "agent");
    assert_eq!(limits.admitted_calls(&b, "c", 5), 2);
}

#[test]
fn r5_the_strictest_of_configuration_and_document_applies() {
    let limits = fixture(json!({"per_agent": "5/h"}));
    let id: AgentId = "a".parse().unwrap();
    let settings = |declared: &[&str]| AgentLimitSettings {
        declared_rates: declared.iter().map(|text| rate(text)).collect(),
        ..AgentLimitSettings::default()
    };
    assert_eq!(limits.admitted_calls(&limits.limits.register_agent(&id, settings(&["2/h", "100/s"])), "c", 9), 2);
    let id: AgentId = "b".parse().unwrap();
    assert_eq!(limits.admitted_calls(&limits.limits.register_agent(&id, settings(&["50/h"])), "c", 9), 5);
}

#[test]
fn r5_a_tier_replaces_the_limits_it_sets_and_keeps_the_rest() {
    let limits =
        fixture(json!({"per_caller": "2/h", "per_caller_agent": "4/h", "tiers": {"gold": {"per_caller": "9/h"}}}));
    let agent = limits.agent("a");
    let admitted = |caller, tier| {
        let key = RateLimitKey::for_caller(caller, tier);
        (0..20).filter(|_| ready(limits.limits.acquire_for_calls(&agent, &key, NonZeroU32::MIN)).is_ok()).count()
    };
    assert_eq!(admitted("plain", None), 2);
    assert_eq!(admitted("gold", Some("gold")), 4, "the bucket per agent still applies");
    assert_eq!(admitted("forged", Some("platinum")), 2, "an unknown tier raises no limit");
}

#[test]
fn equal_rates_of_tiers_are_one_bucket_which_a_reload_keeps() {
    let gold = |gold: &str| json!({"per_caller": "3/h", "max_share": 1, "tiers": {"gold": {"per_caller": gold}}});
    let limits = fixture(gold("3/h"));
    let agent = limits.agent("a");
    let call = |tier| {
        let key = RateLimitKey::for_caller("c", tier);
        ready(limits.limits.acquire_for_calls(&agent, &key, NonZeroU32::MIN)).is_ok()
    };
    assert!(call(None) && call(Some("gold")));
    limits.limits.reconfigure(&config(gold("9/h"))).unwrap();
    assert!(call(Some("gold")), "another rate is another bucket");
    limits.limits.reconfigure(&config(gold("3/h"))).unwrap();
    assert!(call(Some("gold")));
    assert!(!call(None) && !call(Some("gold")), "three calls in all");
}

#[test]
fn r5_addresses_are_limited_first_and_ipv6_by_network() {
    let limits = fixture(json!({"per_address": "3/h"}));
    let admitted = |peers: &[&str]| {
        peers.iter().filter(|peer| ready(limits.limits.acquire_for_address(peer.parse().unwrap())).is_ok()).count()
    };
    assert_eq!(admitted(&["192.0.2.1"; 9]), 3);
    assert_eq!(admitted(&["::ffff:192.0.2.1"]), 0, "the same address in another form");
    assert_eq!(admitted(&["192.0.2.2"]), 1);
    assert_eq!(admitted(&["2001:db8::1", "2001:db8::2", "2001:db8::ffff:1", "2001:db8::3"]), 3);
    assert_eq!(admitted(&["2001:db8:0:1::1"]), 1);
    let fault = ready(limits.limits.acquire_for_address("192.0.2.1".parse().unwrap())).unwrap_err();
    assert!(fault.retry_after_secs().unwrap() > 1_000);
}

#[test]
fn r5_a_call_that_one_bucket_refuses_costs_nothing_in_the_others() {
    let limits = fixture(json!({"per_caller": "10/h", "per_agent": "1/h"}));
    let (a, b) = (limits.agent("a"), limits.agent("b"));
    assert_eq!(limits.admitted_calls(&a, "c", 100), 1);
    assert_eq!(limits.call(&b, "c").unwrap().unwrap().remaining, 0, "the agent's bucket is the tightest");
    let free = limits.limits.register_agent(
        &"f".parse().unwrap(),
        AgentLimitSettings { rate_limit: Some(rate("1000/s")), ..AgentLimitSettings::default() },
    );
    assert_eq!(limits.admitted_calls(&free, "c", 100), 8);
}

#[test]
fn r44_a_batch_is_counted_completely_or_not_at_all() {
    let limits = fixture(json!({"per_caller": "10/h"}));
    let agent = limits.agent("a");
    assert_eq!(limits.batch(&agent, "c", 7).unwrap().unwrap().remaining, 3);
    let fault = assert_rate_limited(limits.batch(&agent, "c", 4), "caller");
    assert!(fault.retry_after_secs().is_some());
    let refusal = assert_rate_limited(limits.batch(&agent, "c", 11), "caller");
    assert_eq!(refusal.retry_after_secs(), None, "waiting would not help");
    assert!(limits.batch(&agent, "c", 3).is_ok());
}

#[test]
fn r5_concurrent_calls_from_many_threads_never_exceed_the_bucket() {
    let limits = fixture(json!({"per_caller": "100/d", "per_agent": "150/d"}));
    let agent = limits.agent("a");
    let admitted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limits, agent, admitted) = (&limits, &agent, &admitted);
            scope.spawn(move || admitted.fetch_add(limits.admitted_calls(agent, ["c", "d"][thread % 2], 500), Relaxed));
        }
    });
    assert!((148..=150).contains(&admitted.load(Relaxed)), "{admitted:?}");
}

#[test]
fn extreme_rates_do_not_overflow() {
    for text in ["4294967295/s", "1/d burst 4294967295", "4294967295/d burst 4294967295", "1/d", "3/s burst 1"] {
        let limits = fixture(json!({ "per_caller": text }));
        let agent = limits.agent("a");
        limits.call(&agent, "c").unwrap().unwrap().header_values();
        let _ = limits.batch(&agent, "c", u32::MAX);
        limits.clock.advance(Duration::from_secs(86_400 * 365));
        assert!(limits.call(&agent, "c").is_ok(), "{text}");
        limits.evict_all_idle();
    }
}

#[test]
fn a_million_callers_use_bounded_memory_and_idle_ones_none() {
    let limits = fixture(json!({"per_caller": "60/min", "max_tracked_keys": 400_000}));
    let agent = limits.agent("a");
    for n in 0..1_000_000_u32 {
        assert!(limits.call(&agent, &n.to_string()).is_ok() || n > 400_000);
    }
    assert_eq!(limits.limits.tracked_keys(), 400_000);
    assert!(limits.metrics.render(ExpositionFormat::Text).contains("{event=\"limiter_overflow\"} 600000"));
    assert_rate_limited(limits.call(&agent, "new"), "caller");
    let policy = limits.limits.policy.load();
    assert!(policy.buckets().map(|bucket| bucket.capacity()).sum::<usize>() < 1_000_000);

    limits.clock.advance(Duration::from_secs(61));
    limits.call(&agent, "busy").unwrap();
    limits.evict_all_idle();
    assert!(limits.limits.tracked_keys() <= 1);
    assert!(policy.buckets().map(|bucket| bucket.capacity()).sum::<usize>() < 5_000);
    assert!(limits.call(&agent, "new").is_ok());
}

#[test]
fn a_sweep_keeps_callers_that_are_still_limited() {
    let limits = fixture(json!({"per_caller": "2/h"}));
    let agent = limits.agent("a");
    assert_eq!(limits.admitted_calls(&agent, "c", 5), 2);
    limits.evict_all_idle();
    assert_eq!(limits.admitted_calls(&agent, "c", 5), 0);
}

#[test]
fn a_reload_keeps_exactly_the_buckets_whose_rate_is_unchanged() {
    let limits = fixture(
        json!({"per_caller": "3/h", "per_caller_agent": "50/h", "per_agent": "50/h", "tiers": {"gold": {"per_caller": "4/h"}}}),
    );
    let agent = limits.agent("a");
    let gold = RateLimitKey::for_caller("g", Some("gold"));
    let call_gold =
        || (0..9).filter(|_| ready(limits.limits.acquire_for_calls(&agent, &gold, NonZeroU32::MIN)).is_ok()).count();
    assert_eq!((limits.admitted_calls(&agent, "c", 9), call_gold()), (3, 4));
    let changed = config(
        json!({"per_caller": "3/h", "per_caller_agent": "60/h", "per_agent": "8/h", "tiers": {"gold": {"per_caller": "4/h"}}}),
    );
    limits.limits.reconfigure(&changed).unwrap();
    assert_eq!((limits.admitted_calls(&agent, "c", 9), call_gold()), (0, 0));
    assert_eq!(limits.admitted_calls(&agent, "d", 9), 3);
    assert_eq!(limits.admitted_calls(&agent, "e", 9), 3);
    assert_eq!(limits.admitted_calls(&agent, "f", 9), 2, "the new rate of the agent");
}

#[test]
fn an_agents_buckets_survive_its_removal_until_they_are_idle() {
    let limits = fixture(json!({"per_agent": "2/min"}));
    let agent = limits.agent("a");
    assert_eq!(limits.admitted_calls(&agent, "c", 5), 2);
    drop(agent);
    limits.evict_all_idle();
    assert_eq!(limits.admitted_calls(&limits.agent("a"), "c", 5), 0, "an agent that returns gets no fresh bucket");
    limits.clock.advance(Duration::from_secs(61));
    limits.evict_all_idle();
    limits.evict_all_idle();
    assert!(limits.limits.agents.lock().is_empty());
}

#[test]
fn the_tightest_limit_is_reported() {
    let limits =
        fixture(json!({"per_caller": "100/s", "per_caller_agent": "10/s burst 50", "quota": {"per_day": 1_000}}));
    let status = limits.call(&limits.agent("a"), "c").unwrap().unwrap();
    assert_eq!(
        status.header_values(),
        ("\"caller-agent\";r=49;t=1".to_owned(), "\"caller-agent\";q=50;w=5".to_owned())
    );
    let unlimited = fixture(json!({}));
    assert_eq!(unlimited.call(&unlimited.agent("a"), "c").unwrap(), None);
}
