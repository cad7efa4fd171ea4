//! Times single steps of a call's path, each without a socket: `make bench`, in about a minute. `gatepost-loadtest
//! count` counts what a whole call costs; these benchmarks show which step causes it, and how much faster a step
//! became.
//!
//! Four steps are private to their modules and appear only within a whole call: parsing the target from the path, the
//! header fields towards the agent, the exchange with the agent, and the head of the response.
#![allow(missing_docs, reason = "criterion's macros")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a benchmark stops if its setup fails")]

mod fixture;
#[path = "../../src/request_body.rs"]
mod request_body;
#[path = "../../src/token_issuer.rs"]
mod token_issuer;

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use fixture::{Fixture, poll_once};
use gatepost::agent::AuthenticationMethod;
use gatepost::contract;
use gatepost::http_server::request_validation::{self, HeadLimits};
use gatepost::telemetry::{AccessLogEntry, CallOutcome, CallerClass};
use gatepost::transport::filter_reply_headers;
use http::StatusCode;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

/// The gateway's allocator, so that allocations cost here what they cost in the gateway.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

type StepGroup<'a> = BenchmarkGroup<'a, WallTime>;

fn call_path(criterion: &mut Criterion) {
    let fixture = Fixture::new();
    let mut steps = criterion.benchmark_group("step");
    steps.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3)).sample_size(50);
    bench_heads(&mut steps, &fixture);
    bench_authorization(&mut steps, &fixture);
    bench_limits(&mut steps, &fixture);
    bench_bodies(&mut steps, &fixture);
    bench_telemetry(&mut steps, &fixture);
    steps.finish();
}

fn bench_heads(steps: &mut StepGroup<'_>, fixture: &Fixture) {
    let bounds = HeadLimits { max_bytes: 64 << 10, max_fields: 100 };
    for (name, head) in [
        ("validate a head with an API key", &fixture.api_key_head),
        ("validate a head with a token", &fixture.token_head),
    ] {
        request_validation::validate_http1_head(head, bounds).unwrap();
        steps.bench_function(name, |bencher| {
            bencher.iter(|| request_validation::validate_http1_head(black_box(head), bounds))
        });
    }
    let headers = fixture::reply_headers();
    steps.bench_function("filter the headers of a reply", |bencher| {
        bencher.iter(|| filter_reply_headers(black_box(&headers), StatusCode::OK));
    });
}

fn bench_authorization(steps: &mut StepGroup<'_>, fixture: &Fixture) {
    let headers = fixture.api_key_headers();
    steps.bench_function("API key", |bencher| {
        bencher.iter(|| poll_once(fixture.authorize(black_box(&headers), &fixture.api_key_agent)))
    });
    let headers = fixture.token_headers();
    steps.bench_function("cached JWT", |bencher| {
        bencher.iter(|| poll_once(fixture.authorize(black_box(&headers), &fixture.token_agent)));
    });
}

fn bench_limits(steps: &mut StepGroup<'_>, fixture: &Fixture) {
    let limits = &fixture.limits;
    let peer = "127.0.0.1".parse().unwrap();
    steps.bench_function("rate limit of an address", |bencher| {
        bencher.iter(|| poll_once(limits.acquire_for_address(black_box(peer)).into_future()));
    });
    let agent = limits.register_agent(&fixture.api_key_agent.agent.id, gatepost::limit::AgentLimitSettings::default());
    let acquire = || {
        let key = gatepost::limit::RateLimitKey::for_caller(black_box("key:bench"), None);
        poll_once(limits.acquire_for_calls(&agent, &key, NonZeroU32::MIN).into_future())
    };
    let rate_limit_status = acquire().unwrap().unwrap();
    steps.bench_function("rate limit of a caller", |bencher| bencher.iter(acquire));
    let client = gatepost::values::ClientKey::new(1);
    steps.bench_function("concurrency permit", |bencher| bencher.iter(|| limits.try_acquire_permit(&agent, client)));
    steps.bench_function("RateLimit and RateLimit-Policy", |bencher| {
        bencher.iter(|| black_box(&rate_limit_status).header_values());
    });
}

fn bench_bodies(steps: &mut StepGroup<'_>, fixture: &Fixture) {
    let (body, bounds) = (request_body::request_body("fr").into_bytes(), contract::JsonBounds::default());
    let body = bytes::Bytes::from(body);
    let tape = contract::parse_json(body.clone(), bounds).unwrap();
    let check = |tape: &contract::Tape| fixture.contract.accepts_tape(tape, &mut 1_000_000);
    assert!(check(&tape));
    steps.bench_function("parse 200 bytes of JSON", |bencher| {
        bencher.iter(|| contract::parse_json(black_box(&body).clone(), bounds))
    });
    steps.bench_function("validate against a schema", |bencher| {
        bencher.iter(|| check(black_box(&tape)));
    });
}

fn bench_telemetry(steps: &mut StepGroup<'_>, fixture: &Fixture) {
    let total = Duration::from_micros(321);
    let agent = fixture.metrics.for_agent(&fixture.api_key_agent.agent);
    let outcome = CallOutcome {
        operation: Some(0),
        caller_class: CallerClass::of_method(AuthenticationMethod::ApiKey),
        code: None,
        blame: None,
        duration: total,
        upstream_duration: Some(total),
        status: 200,
        gateway_duration: Some(Duration::from_micros(200)),
        bytes_in: 100,
        bytes_out: 100,
        trace_id: None,
    };
    steps.bench_function("record metrics", |bencher| bencher.iter(|| agent.record(black_box(&outcome))));
    let entry = AccessLogEntry {
        peer: "127.0.0.1".parse().ok(),
        method: "POST",
        path: "/agents/keyed/invoke",
        protocol: "HTTP/1.1",
        agent: "keyed",
        operation: "ask",
        caller: "key:bench",
        credential: "key",
        status: 200,
        bytes_in: 200,
        bytes_out: 300,
        duration: total,
        upstream_duration: Some(total),
        attempts: 1,
        ..AccessLogEntry::new(SystemTime::now(), "01a20341ea3171a78fe5c258ca958960")
    };
    steps.bench_function("write an access log line", |bencher| {
        bencher.iter(|| fixture.access_log.write(black_box(&entry)));
    });
}

criterion_group!(benches, call_path);
criterion_main!(benches);
