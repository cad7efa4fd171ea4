//! Which traces are recorded.

use super::super::{config::TracingConfig, sampler::Sampler, trace_context::TraceId};

fn sampler(yaml: &str) -> Sampler {
    let yaml = format!("endpoint: http://127.0.0.1:4318\n{yaml}");
    Sampler::new(&serde_saphyr::from_str::<TracingConfig>(&yaml).unwrap())
}

#[test]
fn the_share_is_recorded_whatever_ids_callers_choose() {
    let share = |ratio: &str| {
        let sampler = sampler(&format!("sample_ratio: {ratio}"));
        // Small numbers: a sampler that compares the id itself would record all of them.
        (1..=20_000).filter(|id| sampler.is_in_ratio(TraceId::from_number(*id))).count()
    };
    assert_eq!((share("0"), share("1")), (0, 20_000));
    let half = share("0.5");
    assert!((9_500..10_500).contains(&half), "{half}");
    let one_percent = share("0.01");
    assert!((120..280).contains(&one_percent), "{one_percent}");
}

#[test]
fn one_trace_gets_one_answer_also_after_a_reload() {
    let (before, after) = (sampler("sample_ratio: 0.3"), sampler("sample_ratio: 0.3"));
    for id in (1..1_000).map(TraceId::from_number) {
        assert_eq!(before.is_in_ratio(id), after.is_in_ratio(id));
    }
}

#[test]
fn nobody_is_trusted_unless_named() {
    let default = sampler("sample_ratio: 0");
    assert!(!default.trusts_proxies() && !default.trusts_some_callers() && !default.trusts_caller("key:ci"));
    let trusting = sampler("trust: {proxies: true, callers: ['key:ci-*']}");
    assert!(trusting.trusts_proxies() && trusting.trusts_some_callers());
    assert!(trusting.trusts_caller("key:ci-1") && !trusting.trusts_caller("key:team-a"));
}

#[test]
fn trusted_traces_have_a_bound_per_second() {
    let sampler = sampler("max_trusted_per_second: 3");
    let acquired = |second: u64| (0..10).filter(|_| sampler.acquire_trusted(second)).count();
    assert_eq!(acquired(1_700_000_000), 3);
    assert_eq!(acquired(1_700_000_000), 0);
    assert_eq!(acquired(1_700_000_001), 3);
}

#[test]
fn unusable_values_are_refused_by_name() {
    let problems = |yaml: &str| {
        let yaml = format!("endpoint: http://127.0.0.1:4318\n{yaml}");
        serde_saphyr::from_str::<TracingConfig>(&yaml).unwrap().problems()
    };
    assert_eq!(problems(""), Vec::<String>::new());
    for (yaml, problem) in [
        ("sample_ratio: 1.5", "sample_ratio: must be from 0 to 1, not 1.5"),
        ("queue_size: 0", "queue_size: must be 1 to 65536, not 0"),
        ("timeout: 2m", "timeout: must be 100ms to 1m, not 2m"),
        ("headers: {'a b': 'env:X'}", "headers: 'a b' is not a header name"),
        ("headers: {Content-Type: 'env:X'}", "headers.content-type: is set by the gateway itself"),
        ("service_name: ''", "service_name: must have 1 to 1024 bytes"),
        ("resource: {service.name: x}", "resource.service.name: has its own setting (service_name)"),
    ] {
        assert_eq!(problems(yaml), [problem], "{yaml}");
    }
}
