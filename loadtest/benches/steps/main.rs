//! What the steps of a call cost by themselves, each without a socket: `make bench`, in about a minute. The counts of
//! `gatepost-loadtest count` say what a whole call costs; these say which step to look at, and by how much it became
//! quicker.
//!
//! Four steps are inside their rooms and are only seen within a whole call: reading the target out of the path, the
//! fields towards the agent, the exchange with it, and the head of the reply.
#![allow(missing_docs, reason = "criterion's macros")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench ends where it cannot be set up")]

mod fixture;
#[path = "../../src/question.rs"]
mod question;
#[path = "../../src/token.rs"]
mod token;

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use fixture::{Fixture, now};
use gatepost::contract;
use gatepost::gateway::request_validation::{self, HeadLimits};
use gatepost::telemetry::{AccessLogEntry, CallOutcome, CallerClass};
use gatepost::transport::filter_reply_headers;
use http::StatusCode;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

/// The gateway's allocator: steps that allocate cost here what they cost there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Steps<'a> = BenchmarkGroup<'a, WallTime>;

fn path(criterion: &mut Criterion) {
    let fixture = Fixture::new();
    let mut steps = criterion.benchmark_group("step");
    steps.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3)).sample_size(50);
    heads(&mut steps, &fixture);
    callers(&mut steps, &fixture);
    limits(&mut steps, &fixture);
    bodies(&mut steps, &fixture);
    records(&mut steps, &fixture);
    steps.finish();
}

fn heads(steps: &mut Steps<'_>, fixture: &Fixture) {
    let bounds = HeadLimits { max_bytes: 64 << 10, max_fields: 100 };
    for (name, head) in
        [("hygiene of a head with a key", &fixture.keyed), ("hygiene of a head with a token", &fixture.signed)]
    {
        request_validation::validate_http1_head(head, bounds).unwrap();
        steps.bench_function(name, |bencher| {
            bencher.iter(|| request_validation::validate_http1_head(black_box(head), bounds))
        });
    }
    let fields = fixture::reply();
    steps.bench_function("fields of a reply that pass", |bencher| {
        bencher.iter(|| filter_reply_headers(black_box(&fields), StatusCode::OK));
    });
}

fn callers(steps: &mut Steps<'_>, fixture: &Fixture) {
    let key = fixture.with_key();
    steps.bench_function("API key", |bencher| {
        bencher.iter(|| now(fixture.authorise(black_box(&key), &fixture.keyed_agent)))
    });
    let token = fixture.with_token();
    steps.bench_function("cached JWT", |bencher| {
        bencher.iter(|| now(fixture.authorise(black_box(&token), &fixture.signed_agent)));
    });
}

fn limits(steps: &mut Steps<'_>, fixture: &Fixture) {
    let limits = &fixture.limits;
    let peer = "127.0.0.1".parse().unwrap();
    steps.bench_function("limit of an address", |bencher| bencher.iter(|| limits.acquire_for_address(black_box(peer))));
    let agent = limits.register_agent(&fixture.keyed_agent.agent.id, gatepost::limit::AgentLimitSettings::default());
    let admit = || limits.acquire_for_calls(&agent, &limits.caller_key(black_box("key:bench"), None), NonZeroU32::MIN);
    let standing = admit().unwrap().unwrap();
    steps.bench_function("limit of a caller", |bencher| bencher.iter(admit));
    steps.bench_function("one of the calls at once", |bencher| bencher.iter(|| limits.try_acquire_permit(&agent)));
    steps.bench_function("RateLimit and its policy", |bencher| bencher.iter(|| black_box(&standing).header_values()));
}

fn bodies(steps: &mut Steps<'_>, fixture: &Fixture) {
    let (body, bounds) = (question::question("fr").into_bytes(), contract::JsonBounds::default());
    let value = contract::parse_json(&body, &bounds).unwrap();
    assert!(fixture.contract.check_input(&value).unwrap().is_empty());
    steps.bench_function("JSON of 200 bytes", |bencher| {
        bencher.iter(|| contract::parse_json(black_box(&body), &bounds))
    });
    steps.bench_function("schema", |bencher| bencher.iter(|| fixture.contract.check_input(black_box(&value))));
}

fn records(steps: &mut Steps<'_>, fixture: &Fixture) {
    let total = Duration::from_micros(321);
    let agent = fixture.metrics.for_agent(&fixture.keyed_agent.agent);
    let ended = CallOutcome {
        operation: Some(0),
        caller_class: CallerClass::KEY,
        code: None,
        duration: total,
        upstream_duration: Some(total),
    };
    steps.bench_function("metrics", |bencher| bencher.iter(|| agent.record(black_box(&ended))));
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
    steps.bench_function("line of the access log", |bencher| bencher.iter(|| fixture.log.write(black_box(&entry))));
}

criterion_group!(benches, path);
criterion_main!(benches);
