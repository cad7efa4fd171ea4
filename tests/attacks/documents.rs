//! Documents as a hostile publisher or registry writes them. The bounds are the defaults.

use super::resident_bytes;
use crate::support::{
    agent::Agent,
    gateway::{Gateway, gateway},
};
use serde_json::{Map, Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The longest time of a call, or of a request to the admin listener, while the attack runs. A debug build on a machine
/// that runs other tests has the same bound.
const MAX_DELAY: Duration = Duration::from_secs(2);
/// The memory that an attack may cost.
const MAX_MEMORY: u64 = 100 << 20;

fn document(agent: &Agent, id: &str, inputs: Value) -> Value {
    let mut document = agent.document(id);
    document["inputs"] = inputs;
    document
}

fn patterns(count: usize) -> Value {
    let properties: Map<_, _> =
        (0..count).map(|at| (format!("p{at}"), json!({"pattern": format!("[ab]{{{}}}", 9_000 - at)}))).collect();
    json!({"properties": properties})
}

/// Starts a gateway with an honest agent and hostile ones. Returns it with the memory that the hostile ones cost.
async fn start_with(agent: &Agent, hostile: Vec<Value>) -> (Gateway, u64) {
    let honest = gateway().agent("honest", agent).start().await;
    honest.invoke("honest", &json!({})).await.expect_ok();
    let memory_before = resident_bytes(&honest);
    drop(honest);
    let builder =
        hostile.into_iter().fold(gateway().agent("honest", agent), |builder, document| builder.document(document));
    let gate = builder.start().await;
    gate.invoke("honest", &json!({})).await.expect_ok();
    let memory = resident_bytes(&gate).saturating_sub(memory_before);
    (gate, memory)
}

async fn rejection_reason(gate: &Gateway, id: &str) -> String {
    let page = gate.admin_page("/agents").await.json();
    let rejected = page["rejected"].as_array().unwrap().iter().find(|document| document["id"] == id);
    rejected.unwrap_or_else(|| panic!("{id} is not rejected: {page}"))["reasons"][0].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn r127_patterns_do_not_cost_the_gateways_memory() {
    let agent = Agent::echo().await;
    for count in [1_000, 5_000] {
        let (gate, memory) = start_with(&agent, vec![document(&agent, "patterns", patterns(count))]).await;
        println!("{count} patterns: {} MiB", memory >> 20);
        assert!(memory < MAX_MEMORY, "{count} patterns take {memory} bytes");
        // The document is refused by its budget, or its patterns are not in force.
        let page = gate.admin_page("/agents").await.json();
        if page["rejected"].as_array().is_some_and(|rejected| !rejected.is_empty()) {
            let why = rejection_reason(&gate, "patterns").await;
            assert!(why.contains("contract.max_compile"), "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r127_many_documents_of_one_source_share_a_budget() {
    let agent = Agent::echo().await;
    // An object of one member takes hundreds of bytes.
    let options =
        |at: usize| json!({"enum": (0..200).map(|number| json!({"": {"": [at, number]}})).collect::<Vec<_>>()});
    let hostile = (0..200).map(|at| document(&agent, &format!("options-{at}"), options(at)));
    let builder = gateway().agent("honest", &agent).section("contract: {max_compiled_size_per_source: 16MiB}\n");
    let gate = hostile.fold(builder, |builder, document| builder.document(document)).start().await;
    gate.invoke("honest", &json!({})).await.expect_ok();
    let page = gate.admin_page("/agents").await.json();
    let rejected = page["rejected"].as_array().unwrap();
    // The page lists the first of them.
    assert!((100..200).contains(&rejected.len()), "{}", rejected.len());
    let why = rejected[0]["reasons"][0].as_str().unwrap();
    assert!(why.contains("contract.max_compiled_size_per_source"), "{why}");
}

/// Makes eight heavy calls at once, and measures the slowest of the calls and health checks that go on meanwhile.
async fn delays_during(gate: Arc<Gateway>, id: &'static str, input: Value) -> (Duration, Duration, Vec<u16>) {
    let attacks: Vec<_> = (0..8)
        .map(|_| {
            let (gate, input) = (Arc::clone(&gate), input.clone());
            tokio::spawn(async move { gate.invoke(id, &input).await.status })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (mut call_delay, mut health_delay) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..20 {
        let started_at = Instant::now();
        gate.invoke("honest", &json!({})).await.expect_ok();
        call_delay = call_delay.max(started_at.elapsed());
        let started_at = Instant::now();
        gate.admin_page("/healthz").await;
        health_delay = health_delay.max(started_at.elapsed());
    }
    // A check that has begun ends by itself: the attack may take longer than the test.
    let finished = attacks.iter().filter(|attack| attack.is_finished()).count();
    let mut statuses = Vec::new();
    for attack in attacks {
        if finished == 8 || attack.is_finished() {
            statuses.push(attack.await.unwrap());
        } else {
            attack.abort();
        }
    }
    (call_delay, health_delay, statuses)
}

#[tokio::test(flavor = "multi_thread")]
async fn r127_slow_patterns_do_not_delay_other_calls() {
    let agent = Agent::echo().await;
    let slow = json!({"properties": {"a": {"pattern": "^[ab]*a[ab]{6000}$"}}});
    let (gate, _) = start_with(&agent, vec![document(&agent, "slow", slow)]).await;
    let gate = Arc::new(gate);
    let (call, health, statuses) = delays_during(Arc::clone(&gate), "slow", json!({"a": "ab".repeat(10_000)})).await;
    println!("a slow pattern, 20 KB: call {call:?}, /healthz {health:?}, {statuses:?}");
    assert!(call < MAX_DELAY && health < MAX_DELAY, "{call:?} {health:?}");
    let status = gate.invoke("slow", &json!({"a": "ab".repeat(50_000)})).await.status;
    assert!([200, 400, 413].contains(&status), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r127_slow_enumerations_do_not_delay_other_calls() {
    let agent = Agent::echo().await;
    let option = |at: usize| json!([vec![1; 400], at]);
    let slow = json!({"properties": {"a": {"items": {"enum": (0..200).map(option).collect::<Vec<_>>()}}}});
    let (gate, _) = start_with(&agent, vec![document(&agent, "slow", slow)]).await;
    let gate = Arc::new(gate);
    let (call, health, statuses) =
        delays_during(Arc::clone(&gate), "slow", json!({"a": vec![option(199); 1_000]})).await;
    println!("an enumeration, 800 KB: call {call:?}, /healthz {health:?}, {statuses:?}");
    assert!(call < MAX_DELAY && health < MAX_DELAY, "{call:?} {health:?}");
}

/// The schemas and bodies that stopped a gateway which estimated what a check costs.
#[tokio::test(flavor = "multi_thread")]
async fn r127_schemas_whose_cost_was_estimated_wrongly_delay_no_other_call() {
    let agent = Agent::echo().await;
    let chain = |keyword: &str| {
        let link = |at: usize| json!({"$ref": format!("#/$defs/d{}", at + 1)});
        let mut definitions: Map<_, _> =
            (0..18).map(|at| (format!("d{at}"), json!({"allOf": [link(at), link(at)]}))).collect();
        definitions.insert("d18".to_owned(), json!({"properties": {"a": true}}));
        json!({"$ref": "#/$defs/d0", keyword: false, "$defs": definitions})
    };
    let numbers: Vec<usize> = (0..40_000).collect();
    let any = json!({"anyOf": vec![json!(false); 1_000]});
    let structure = |number: usize| {
        (0..24).fold(json!([]), |inner, bit| if number >> bit & 1 == 0 { json!([inner]) } else { json!([[], inner]) })
    };
    for (id, schema, input) in [
        ("unevaluated-items", chain("unevaluatedItems"), json!({"a": [1]})),
        ("unevaluated-properties", chain("unevaluatedProperties"), json!({"a": 1, "b": 2})),
        ("alternatives", json!({"properties": {"a": {"items": any}}}), json!({"a": vec![0; 490_000]})),
        ("numbers", json!({"properties": {"a": {"items": {"enum": numbers}}}}), json!({"a": vec![0.5; 20_000]})),
        (
            "unique",
            json!({"properties": {"a": {"uniqueItems": true}}}),
            json!({"a": (0..12_000).map(structure).collect::<Vec<_>>()}),
        ),
    ] {
        let (gate, memory) = start_with(&agent, vec![document(&agent, id, schema)]).await;
        let gate = Arc::new(gate);
        let (call, health, statuses) = delays_during(Arc::clone(&gate), id, input).await;
        let after = resident_bytes(&gate);
        println!("{id}: {} MiB, call {call:?}, /healthz {health:?}, {statuses:?}", after >> 20);
        assert!(memory < MAX_MEMORY, "{id} takes {memory} bytes");
        assert!(call < MAX_DELAY && health < MAX_DELAY, "{id}: {call:?} {health:?}");
    }
}

/// Documents that were made without knowledge of the bounds: each is refused, or its calls are.
#[tokio::test(flavor = "multi_thread")]
async fn r127_other_hostile_schemas_cost_neither_memory_nor_time() {
    let agent = Agent::echo().await;
    let nested = |depth: usize, wrap: &dyn Fn(Value) -> Value| (0..depth).fold(json!({}), |inner, _| wrap(inner));
    let references: Map<_, _> = (0..4_000).map(|at| (format!("p{at}"), json!({"$ref": "#/$defs/all"}))).collect();
    let target: Map<_, _> =
        (0..1_000).map(|at| (format!("q{at}"), json!({"type": "integer", "minimum": at}))).collect();
    let all_of = |at: usize| json!({"allOf": (0..8).map(|child| json!({"$ref": format!("#/$defs/d{}", at * 8 + child + 1)})).collect::<Vec<_>>()});
    let tree: Map<_, _> =
        (0..585).map(|at| (format!("d{at}"), if at < 73 { all_of(at) } else { json!({"type": "object"}) })).collect();
    let formats = [
        "idn-hostname",
        "email",
        "idn-email",
        "uri",
        "iri",
        "uri-template",
        "date-time",
        "hostname",
        "json-pointer",
        "regex",
        "uri-reference",
    ];
    let formats = formats.map(|format| json!({"format": format}));
    let schemas = vec![
        (
            "references",
            json!({"properties": references, "$defs": {"all": {"properties": target}}}),
            json!({"p1": {"q1": "x"}}),
        ),
        (
            "all-of",
            json!({"additionalProperties": {"$ref": "#/$defs/d0"}, "$defs": tree}),
            json!((0..50_000).map(|at| (at.to_string(), json!(1))).collect::<Map<_, _>>()),
        ),
        (
            "huge-numbers",
            json!({"properties": {"a": {"items": {"multipleOf": 1e-300}}}}),
            json!({"a": vec![1.5e300; 50_000]}),
        ),
        ("defaults", json!({"default": nested(14, &|inner| json!([inner, inner])), "type": "object"}), json!({})),
        (
            "nested-not",
            nested(28, &|inner| json!({"not": {"properties": {"a": inner}}})),
            json!({"a": nested(60, &|inner| json!({"a": inner}))}),
        ),
        (
            "unevaluated",
            nested(10, &|inner| json!({"unevaluatedProperties": false, "allOf": [inner]})),
            json!({"a": 1}),
        ),
        (
            "formats",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"allOf": formats}}}),
            json!({"a": "xn--ü.".repeat(100_000)}),
        ),
        ("names", json!({"propertyNames": {"pattern": "^[ab]*a[ab]{6000}$"}}), json!({"ab".repeat(50_000): 1})),
    ];
    for (id, schema, input) in schemas {
        let started_at = Instant::now();
        let (gate, memory) = start_with(&agent, vec![document(&agent, id, schema)]).await;
        let gate = Arc::new(gate);
        let loaded_after = started_at.elapsed();
        let (call, health, statuses) = delays_during(Arc::clone(&gate), id, input).await;
        println!(
            "{id}: {} MiB, loaded after {loaded_after:?}, call {call:?}, /healthz {health:?}, {statuses:?}",
            memory >> 20
        );
        assert!(memory < MAX_MEMORY, "{id} takes {memory} bytes");
        assert!(call < MAX_DELAY && health < MAX_DELAY, "{id}: {call:?} {health:?}");
    }
}
