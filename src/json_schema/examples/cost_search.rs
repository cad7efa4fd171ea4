//! Searches for the pair of schema and text whose check is most expensive for its fuel, in time or in memory.
//!
//! `cargo run --release -p gatepost-json-schema --example cost_search -- SECONDS [SEED]` changes pairs at random, keeps
//! those that are worse than their parents, and prints each new record: the longest slice, the time for a unit of fuel,
//! the memory beside the tape. Schemas have at most 64 KiB, texts at most 1 MiB. Times are those of the thread.

use fastrand::Rng;
use json_schema::{CompileOptions, Evaluation, Program, Tape, fuel::Fuel, tape::TapeBounds, tape::TapeParser};
use serde_json::{Map, Value, json};
use std::{sync::Arc, task::Poll, time::Instant};

/// The slice of the gateway.
const SLICE: u64 = 60_000;
const MAX_SCHEMA: usize = 64 << 10;
const MAX_TEXT: usize = 1 << 20;
const MAX_FUEL: u64 = 30_000_000;

#[derive(Clone)]
struct Pair {
    schema: Value,
    text: String,
    scores: [f64; 4],
}

const GOALS: [&str; 4] = ["ms in a slice", "ns a unit", "MiB in a check", "ms in a slice of parsing"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(60);
    let mut random = Rng::with_seed(arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1));
    let mut pool: Vec<Pair> = seeds().into_iter().filter_map(|(schema, text)| measure(schema, text)).collect();
    let mut records = [0.0; 4];
    let (start, mut rounds) = (Instant::now(), 0u64);
    for pair in &pool {
        report(pair, &mut records);
    }
    while start.elapsed().as_secs() < seconds {
        rounds += 1;
        let Some(parent) = random.choice(&pool).cloned() else { return };
        let other = random.choice(&pool).cloned();
        let (schema, text) = change(&parent, other.as_ref(), &mut random);
        if schema.to_string().len() > MAX_SCHEMA || text.len() > MAX_TEXT {
            continue;
        }
        let Some(child) = measure(schema, text) else { continue };
        // A record may be the machine's: it counts only if it comes again.
        let is_record = child.scores.iter().zip(&records).any(|(score, record)| score > record);
        let child = if is_record { least(child) } else { Some(child) };
        let Some(child) = child else { continue };
        report(&child, &mut records);
        let is_worse = child.scores.iter().zip(&parent.scores).any(|(of_child, of_parent)| of_child > of_parent);
        if is_worse || random.u8(..) < 8 {
            if pool.len() < 256 {
                pool.push(child);
            } else {
                let at = random.usize(..pool.len());
                if let Some(place) = pool.get_mut(at) {
                    *place = child;
                }
            }
        }
    }
    println!("{rounds} pairs; the worst: {records:.3?} ({GOALS:?})");
}

/// Measures a pair twice more, and returns the least of its scores.
fn least(pair: Pair) -> Option<Pair> {
    let mut pair = pair;
    for _ in 0..2 {
        let again = measure(pair.schema.clone(), pair.text.clone())?;
        for (score, other) in pair.scores.iter_mut().zip(again.scores) {
            *score = score.min(other);
        }
    }
    Some(pair)
}

fn report(pair: &Pair, records: &mut [f64; 4]) {
    for ((score, record), goal) in pair.scores.iter().zip(records).zip(GOALS) {
        if *score > *record * 1.05 {
            *record = *score;
            let (schema, text) = (pair.schema.to_string(), &pair.text);
            let begin = |text: &str| text.chars().take(400).collect::<String>();
            println!(
                "{score:.3} {goal}: {} B schema {} | {} B {}",
                schema.len(),
                begin(&schema),
                text.len(),
                begin(text)
            );
        }
    }
}

fn thread_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "a run takes seconds")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

fn measure(schema: Value, text: String) -> Option<Pair> {
    let program = Program::compile(&Arc::new(schema.clone()), &CompileOptions::default()).ok()?;
    let mut parser = TapeParser::new(text.clone().into(), &TapeBounds { max_depth: 120 });
    let mut longest_parse: f64 = 0.0;
    let tape = loop {
        let begin = thread_time();
        let parsed = parser.resume(&mut Fuel::new(SLICE));
        longest_parse = longest_parse.max(thread_time() - begin);
        if let Poll::Ready(tape) = parsed {
            break tape.ok()?;
        }
    };
    let mut evaluation = Evaluation::new(Tape::ROOT, MAX_FUEL);
    let (mut longest, mut sum, mut memory): (f64, f64, usize) = (0.0, 0.0, 0);
    loop {
        let begin = thread_time();
        let outcome = evaluation.resume(&program, &tape, SLICE);
        let time = thread_time() - begin;
        (longest, sum) = (longest.max(time), sum + time);
        memory = memory.max(evaluation.memory());
        if outcome.is_ready() {
            break;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (fuel, memory) = (evaluation.fuel_used() as f64, memory as f64);
    // A short check says nothing about the price of a unit.
    let unit = if sum > 0.001 { sum / fuel * 1e9 } else { 0.0 };
    Some(Pair { schema, text, scores: [longest * 1e3, unit, memory / f64::from(1 << 20), longest_parse * 1e3] })
}

fn seeds() -> Vec<(Value, String)> {
    let long = "a".repeat(200_000);
    vec![
        (
            json!({"uniqueItems": true}),
            format!("[{}]", (0..60_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",")),
        ),
        (json!({"items": {"enum": (0..9_000).collect::<Vec<_>>()}}), format!("[{}1]", "0.5,".repeat(20_000))),
        (json!({"pattern": "^(?=.*[a-z])(?=.*\\d).{8,}$"}), format!("\"{long}\"")),
        (json!({"pattern": "(a*)*b"}), format!("\"{long}\"")),
        (json!({"pattern": "^(.)\\1*x$"}), format!("\"{}\"", "a".repeat(5_000))),
        (json!({"pattern": "^[^<>]{0,1000}$"}), format!("\"{long}\"")),
        (json!({"anyOf": vec![json!(false); 1_000]}), format!("[{}1]", "1,".repeat(100_000))),
        (
            json!({"additionalProperties": {"type": "string"}, "patternProperties": {"^x-[a-z]+$": {"minLength": 1}}}),
            format!("{{{}\"z\":1}}", (0..20_000).map(|n| format!("\"x-{n}\":\"\",")).collect::<String>()),
        ),
        (
            json!({"$defs": {"n": {"anyOf": [{"properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}, {"properties": {"n": {"$ref": "#/$defs/n"}}}]}}, "$ref": "#/$defs/n"}),
            format!("{}1{}", "{\"n\":".repeat(100), "}".repeat(100)),
        ),
        (
            json!({"allOf": [{"properties": {"a": true}}, {"patternProperties": {"b$": true}}], "unevaluatedProperties": {"type": "integer"}}),
            format!("{{{}\"a\":1}}", (0..20_000).map(|n| format!("\"k{n}\":1,")).collect::<String>()),
        ),
        (
            json!({"contains": {"const": {"a": [1, 2]}}, "unevaluatedItems": {"multipleOf": 0.01}}),
            format!("[{}1]", "0.07,".repeat(50_000)),
        ),
        (json!({"maxLength": 100_000, "minLength": 5}), format!("\"{}\"", "\\u00e9".repeat(50_000))),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "uri", "contentEncoding": "base64"}),
            format!("\"http://a/{long}\""),
        ),
        (json!({"items": {"multipleOf": 0.000_7, "minimum": 3}}), format!("[{}]", "7".repeat(200_000))),
        (
            json!({"items": {"not": {"anyOf": vec![json!({"type": "object", "properties": {"a": false}}); 1_000]}}}),
            format!("[{}1]", "1,".repeat(150)),
        ),
    ]
}

/// Returns a pair that differs from `parent` in a few places.
fn change(parent: &Pair, other: Option<&Pair>, random: &mut Rng) -> (Value, String) {
    let (mut schema, mut text) = (parent.schema.clone(), parent.text.clone());
    for _ in 0..random.usize(1..4) {
        match random.u8(..6) {
            0 | 1 => change_schema(&mut schema, random),
            2 => {
                if let Some(other) = other {
                    schema = combine(schema, other.schema.clone(), random);
                }
            }
            3 => {
                if let Some(other) = other {
                    text.clone_from(&other.text);
                }
            }
            _ => change_text(&mut text, random),
        }
    }
    (schema, text)
}

fn combine(one: Value, other: Value, random: &mut Rng) -> Value {
    match random.u8(..8) {
        0 => json!({"allOf": [one, other]}),
        1 => json!({"anyOf": [one, other]}),
        2 => json!({"oneOf": [one, other], "unevaluatedProperties": false}),
        3 => json!({"items": one, "contains": other}),
        4 => json!({"additionalProperties": one, "propertyNames": other}),
        5 => json!({"if": one, "then": other, "else": false}),
        6 => json!({"not": one, "prefixItems": [other]}),
        _ => json!({"$defs": {"x": one}, "items": {"$ref": "#/$defs/x"}, "allOf": [other, {"$ref": "#/$defs/x"}]}),
    }
}

fn change_schema(schema: &mut Value, random: &mut Rng) {
    let Value::Object(keywords) = schema else {
        *schema = json!({});
        return;
    };
    let nested: Vec<String> =
        keywords.iter().filter(|(_, value)| value.is_object()).map(|(name, _)| name.clone()).collect();
    if random.bool()
        && let Some(name) = random.choice(&nested)
        && let Some(inner) = keywords.get_mut(name)
    {
        change_schema(inner, random);
        return;
    }
    add_keyword(keywords, random);
}

fn add_keyword(keywords: &mut Map<String, Value>, random: &mut Rng) {
    const PATTERNS: [&str; 12] = [
        "^(a|b|ab)*$",
        "(?=.*a)(?!.*b)",
        "^\\p{L}{1,500}$",
        "(x+x+)+y",
        "(.*)(.*)(.*)z",
        "^(?:[a-z]+-?){1,50}$",
        "(?<=a)b",
        "(a)(b)?\\1",
        "^[^\\s]{1,1000}@",
        "\\bword\\b",
        "^(?:(?=a)a|b)*$",
        "([\\s\\S]{1,50}){1,50}q",
    ];
    let number = i64::from(random.i32(-10..1_000));
    let (name, value) = match random.u8(..24) {
        0 => ("uniqueItems", json!(true)),
        1 => ("pattern", json!(PATTERNS.get(random.usize(..12)))),
        2 => ("patternProperties", json!({PATTERNS.get(random.usize(..12)).copied().unwrap_or(""): {"minLength": 2}})),
        3 => ("unevaluatedProperties", json!({"maxLength": number.abs()})),
        4 => ("unevaluatedItems", json!({"type": "string"})),
        5 => ("items", json!({"anyOf": [{"type": "string", "minLength": 2}, {"type": "number", "multipleOf": 0.3}]})),
        6 => ("additionalProperties", json!({"anyOf": [{"type": "null"}, {"$ref": "#"}]})),
        7 => ("enum", json!((0..random.u32(1..2_000)).map(|n| json!([n])).collect::<Vec<_>>())),
        8 => ("const", json!({"a": [1, {"b": "c"}]})),
        9 => ("contains", json!({"enum": [[1], {"a": 1}, 0.5]})),
        10 => ("maxContains", json!(number.abs())),
        11 => ("required", json!((0..random.u32(1..500)).map(|n| format!("k{n}")).collect::<Vec<_>>())),
        12 => ("dependentRequired", json!({"a": (0..random.u32(1..500)).map(|n| format!("k{n}")).collect::<Vec<_>>()})),
        13 => (
            "properties",
            Value::Object((0..random.u32(1..500)).map(|n| (format!("k{n}"), json!({"type": "integer"}))).collect()),
        ),
        14 => ("minimum", json!(number)),
        15 => ("multipleOf", json!(0.01)),
        16 => ("maxLength", json!(number.abs() * 1_000)),
        17 => ("maxItems", json!(number.abs() * 1_000)),
        18 => ("propertyNames", json!({"pattern": PATTERNS.get(random.usize(..12))})),
        19 => ("oneOf", json!([{"items": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}, "minProperties": 1}])),
        20 => ("anyOf", json!(vec![json!({"type": "integer", "minimum": 5}); random.usize(1..200)])),
        21 => ("minProperties", json!(number.abs() * 100)),
        22 => ("prefixItems", json!(vec![json!({"maxLength": 3}); random.usize(1..200)])),
        _ => ("dependentSchemas", json!({"k1": {"properties": {"z": {"$ref": "#"}}}})),
    };
    keywords.insert(name.to_owned(), value);
}

fn change_text(text: &mut String, random: &mut Rng) {
    const PARTS: [&str; 16] = [
        "0,",
        "0.5,",
        "[],",
        "{},",
        "\"a\",",
        "[[1]],",
        "\"\\u00e9\\n\",",
        "1e400,",
        "-0.0,",
        "true,",
        "null,",
        "{\"a\":1},",
        "{\"n\":{\"n\":1}},",
        "12345678901234567890123,",
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\",",
        "[1,[2,[3]]],",
    ];
    let part = PARTS.get(random.usize(..PARTS.len())).copied().unwrap_or("0,");
    *text = match random.u8(..7) {
        0 => format!("[{text}]"),
        1 => format!("{{\"n\":{text}}}"),
        2 => format!("[{}{text}]", part.repeat(random.usize(1..30_000).min(MAX_TEXT / 2 / part.len()))),
        3 => format!("[{text},{text}]"),
        4 => format!(
            "{{{}\"a\":{text}}}",
            (0..random.u32(1..20_000)).map(|n| format!("\"k{n}\":{n},")).collect::<String>()
        ),
        5 => {
            let letters = ["a", "ab", "\u{e9}", "\\\\", "xy ", "7", "\\ud83d\\ude00"];
            let letter = random.choice(&letters).copied().unwrap_or("a");
            format!("\"{}\"", letter.repeat(random.usize(1..100_000)))
        }
        _ => format!("[{}1]", (0..random.u32(1..50_000)).map(|n| format!("{n},")).collect::<String>()),
    };
}
