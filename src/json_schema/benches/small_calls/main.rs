//! Times the checks of small calls beside other validators, in one run: `cargo bench -p gatepost-json-schema`.
//!
//! Each row is one schema and one text. The implementations take turns, so that a slower minute of the machine is
//! everybody's, and the row has the median of their rounds. *whole* is from the bytes of the text to the verdict, which is
//! what a call pays: parsing, and the check. *check* is without parsing. Refused calls include the texts of all violations,
//! which `ajv` does not write: it stops at the first. With `GATEPOST_AJV=FOLDER`, where npm has
//! installed `ajv` and `ajv-formats`, the rows have their times in Node.js too.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a benchmark stops if its setup fails")]

use bytes::Bytes;
use json_schema::{CompileOptions, FormatAssertion, Program, Tape, tape::TapeBounds};
use serde_json::{Value, json};
use std::{
    hint::black_box,
    io::Write as _,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

/// Rounds of each implementation, of which the median counts.
const ROUNDS: usize = 41;
/// Checks of one round.
const CHECKS: usize = 4_000;

struct Case {
    name: &'static str,
    schema: Value,
    text: String,
    is_valid: bool,
}

fn main() {
    let cases = cases();
    let of_node = ajv(&cases);
    println!("| call | whole: this, `jsonschema` | ratio | check: this, `jsonschema` | ratio | whole, check: `ajv` |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (at, case) in cases.iter().enumerate() {
        let [whole, check, other_whole, other_check] = measure(case);
        let ajv =
            of_node.as_ref().map_or("not run".to_owned(), |rows| format!("{:.0}, {:.0} ns", rows[at].0, rows[at].1));
        println!(
            "| {} | {whole:.0}, {other_whole:.0} ns | {:.1} | {check:.0}, {other_check:.0} ns | {:.1} | {ajv} |",
            case.name,
            other_whole / whole,
            other_check / check,
        );
    }
}

/// Returns nanoseconds for a check: whole and check of this crate, then those of `jsonschema`.
fn measure(case: &Case) -> [f64; 4] {
    let options = CompileOptions { formats: FormatAssertion::Always, ..CompileOptions::default() };
    let program = Program::compile(&Arc::new(case.schema.clone()), &options).unwrap();
    let other = jsonschema::options().should_validate_formats(true).build(&case.schema).unwrap();
    let body = Bytes::from(case.text.clone());
    let tape = Tape::parse(body.clone(), &TapeBounds::default()).unwrap();
    let value: Value = serde_json::from_str(&case.text).unwrap();
    let check = |tape: &Tape| program.violations(tape).is_empty();
    let other_check = |value: &Value| {
        other.is_valid(value) || other.iter_errors(value).map(|error| error.to_string()).collect::<Vec<_>>().is_empty()
    };
    let mut implementations: [Box<dyn FnMut() -> bool>; 4] = [
        Box::new(|| check(&Tape::parse(black_box(&body).clone(), &TapeBounds::default()).unwrap())),
        Box::new(|| check(black_box(&tape))),
        Box::new(|| other_check(&serde_json::from_slice(black_box(&body)).unwrap())),
        Box::new(|| other_check(black_box(&value))),
    ];
    let mut rounds = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for (run, times) in implementations.iter_mut().zip(&mut rounds) {
            let started = Instant::now();
            for _ in 0..CHECKS {
                assert_eq!(run(), case.is_valid, "{}", case.name);
            }
            times.push(started.elapsed().as_nanos() as f64 / CHECKS as f64);
        }
    }
    rounds.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    })
}

/// Runs the cases in Node.js, if `GATEPOST_AJV` names a folder with the packages; whole and check in nanoseconds.
fn ajv(cases: &[Case]) -> Option<Vec<(f64, f64)>> {
    let folder = std::env::var_os("GATEPOST_AJV")?;
    let script = include_str!("ajv.cjs");
    let mut node = Command::new("node")
        .args(["-e", script])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input: Vec<Value> = cases.iter().map(|case| json!([case.schema, case.text, case.is_valid])).collect();
    node.stdin.take().unwrap().write_all(Value::Array(input).to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "node failed");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn cases() -> Vec<Case> {
    let case = |name, schema, input: Value, is_valid| Case { name, schema, text: input.to_string(), is_valid };
    let chat = json!({
        "type": "object", "required": ["messages"], "additionalProperties": false,
        "properties": {
            "model": {"type": "string", "maxLength": 64},
            "messages": {"type": "array", "minItems": 1, "maxItems": 100, "items": {
                "type": "object", "required": ["role", "content"], "additionalProperties": false,
                "properties": {"role": {"enum": ["system", "user", "assistant"]},
                    "content": {"type": "string", "maxLength": 20000}}}},
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "stream": {"type": "boolean"}}});
    let order = json!({
        "$defs": {"money": {"type": "object", "required": ["amount", "currency"], "properties": {
            "amount": {"type": "number", "minimum": 0}, "currency": {"type": "string", "pattern": "^[A-Z]{3}$"}}}},
        "type": "object", "required": ["id", "customer", "lines", "total"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "created": {"type": "string", "format": "date-time"},
            "customer": {"type": "object", "required": ["email"], "properties": {"email": {"type": "string", "format": "email"}}},
            "lines": {"type": "array", "items": {"type": "object", "required": ["sku", "quantity", "price"], "properties": {
                "sku": {"type": "string", "pattern": "^[A-Z]{2}-\\d{4}$"},
                "quantity": {"type": "integer", "minimum": 1, "maximum": 1000},
                "price": {"$ref": "#/$defs/money"}}}},
            "total": {"$ref": "#/$defs/money"}}});
    let shape = json!({"oneOf": [
        {"type": "object", "required": ["kind", "radius"], "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}},
        {"type": "object", "required": ["kind", "side"], "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}},
        {"type": "object", "required": ["kind", "a", "b"], "properties": {"kind": {"const": "rectangle"},
            "a": {"type": "number"}, "b": {"type": "number"}}}]});
    let line = |sku| json!({"sku": sku, "quantity": 2, "price": {"amount": 12.5, "currency": "EUR"}});
    let an_order = |sku| {
        json!({"id": "7f9c24e8-3b12-4fef-91e0-5d3a5f1c2b6a", "created": "2026-11-28T15:34:30Z",
        "customer": {"email": "buyer@example.org"}, "lines": [line("AB-1234"), line(sku)],
        "total": {"amount": 50, "currency": "EUR"}})
    };
    let messages = json!({"model": "small", "temperature": 0.7, "messages": [
        {"role": "system", "content": "You answer in one sentence."},
        {"role": "user", "content": "Which of the rivers of Europe flows through ten countries?"}]});
    let text =
        json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "maxLength": 4096}}});
    vec![
        case("one text", text, json!({"text": "What is the weather in Berlin?"}), true),
        case("chat", chat.clone(), messages, true),
        case(
            "chat, refused",
            chat,
            json!({"messages": [{"role": "robot", "content": "Hello"}], "stream": true}),
            false,
        ),
        case("order", order.clone(), an_order("CD-5678"), true),
        case("order, refused", order, an_order("CD-567"), false),
        case("one of three", shape, json!({"kind": "rectangle", "a": 1.5, "b": 2}), true),
    ]
}
