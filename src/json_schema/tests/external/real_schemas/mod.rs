//! The schemas of other people that `tests/real_schemas` lists: each must compile with every keyword in force, and the
//! check of a valid body of about 1 MiB must end within the gateway's default fuel.

mod body_generator;
mod body_growth;
mod pattern_sample;

use body_generator::BodyGenerator;
use json_schema::{CompileOptions, Draft, Evaluation, Outcome, Program, Tape};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    task::Poll,
    time::Instant,
};

/// Length of a body.
const BODY_BYTES: usize = 1 << 20;
/// Bodies that are generated until one is valid.
const ATTEMPTS: u64 = 120;
/// Length of a schema up to which the verdict of another validator is asked for.
const MAX_COMPARED_BYTES: usize = 300 << 10;
/// Fuel of a slice: a millisecond.
const SLICE: u64 = 100_000;

/// The gateway's default fuel for a body of this length.
fn default_fuel(body_bytes: usize) -> u64 {
    20_000_000 + 400 * body_bytes as u64
}

/// A schema with the draft that applies if it names none.
struct RealSchema {
    schema: Arc<Value>,
    draft: Draft,
}

fn read(path: &Path) -> RealSchema {
    let mut document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let draft = match document["dialect"].as_str().unwrap() {
        "openapi-3.0" => Draft::OpenApi30,
        "draft-07" => Draft::Draft7,
        _ => Draft::Draft202012,
    };
    RealSchema { schema: Arc::new(document["schema"].take()), draft }
}

/// Returns a description of the results, and the failure if there is one.
fn check(real: &RealSchema) -> (String, Option<String>) {
    let options = CompileOptions { draft: real.draft, ..CompileOptions::default() };
    let begin = Instant::now();
    let program = match Program::compile(&real.schema, &options) {
        Ok(program) => program,
        Err(error) => return (String::new(), Some(format!("does not compile: {error}"))),
    };
    let compiled = format!(
        "{} KiB, compiled in {:.1?} with {} fuel to {} KiB",
        real.schema.to_string().len() >> 10,
        begin.elapsed(),
        program.compile_fuel(),
        program.memory() >> 10
    );
    if let Some(first) = program.unsupported().first() {
        let reason =
            format!("{} keywords are not in force: {} {}", program.unsupported().len(), first.pointer, first.reason);
        return (compiled, Some(reason));
    }
    let bodies = (0..ATTEMPTS).filter_map(|attempt| {
        let fullness = 0.6 * (ATTEMPTS - attempt) as f64 / ATTEMPTS as f64;
        BodyGenerator::new(&real.schema, attempt, fullness).generate()
    });
    let is_valid = |body: &Value| Tape::from_value(body).is_ok_and(|tape| program.is_valid(&tape));
    let valid = bodies.filter(is_valid).take(10).max_by_key(|body| body.to_string().len());
    let Some(seed) = valid else {
        return (compiled, Some("no valid body was generated".to_owned()));
    };
    if jsonschema_verdict(real, &seed) == Some(false) {
        return (compiled, Some(format!("`jsonschema` refuses {seed}")));
    }
    let body = body_growth::grow(seed, BODY_BYTES, &is_valid);
    let mut text = body.to_string();
    let grown = text.len();
    // A closed schema has no large values; white space is work for the parser only.
    text.extend(std::iter::repeat_n(' ', BODY_BYTES.saturating_sub(grown)));
    let limit = default_fuel(text.len());
    let tape = Tape::parse(text.into(), &Default::default()).unwrap();
    let begin = Instant::now();
    let mut evaluation = Evaluation::new(Tape::ROOT, limit);
    let (mut longest, mut memory) = (std::time::Duration::ZERO, 0);
    let outcome = loop {
        let slice = Instant::now();
        let poll = evaluation.resume(&program, &tape, SLICE);
        longest = longest.max(slice.elapsed());
        memory = memory.max(evaluation.memory());
        if let Poll::Ready(outcome) = poll {
            break outcome;
        }
    };
    let checked = format!(
        "{compiled}; body {} KiB, {} fuel ({:.1} a byte), {:.1?}, longest slice {longest:.1?}, {} KiB",
        grown >> 10,
        evaluation.fuel_used(),
        evaluation.fuel_used() as f64 / grown as f64,
        begin.elapsed(),
        memory >> 10
    );
    (checked, (outcome != Outcome::Valid).then(|| format!("the check ends with {outcome:?}")))
}

/// Returns the verdict of the crate `jsonschema` about a body, unless the schema is too large to wait for it, refers to
/// another document, or is of the dialect of OpenAPI 3.0, which the crate does not have.
fn jsonschema_verdict(real: &RealSchema, body: &Value) -> Option<bool> {
    if real.draft == Draft::OpenApi30 || real.schema.to_string().len() > MAX_COMPARED_BYTES {
        return None;
    }
    let draft = if real.draft == Draft::Draft7 { jsonschema::Draft::Draft7 } else { jsonschema::Draft::Draft202012 };
    let verdict = || {
        let mut options = jsonschema::options().offline();
        if real.schema.get("$schema").is_none() {
            options = options.with_draft(draft);
        }
        options.build(&real.schema).ok().map(|validator| validator.is_valid(body))
    };
    // Its compiler recurses along references.
    std::thread::scope(|scope| {
        std::thread::Builder::new().stack_size(512 << 20).spawn_scoped(scope, verdict).unwrap().join().unwrap()
    })
}

/// Returns the schemas that are expected to fail, with the reasons.
fn expected_failures() -> BTreeMap<&'static str, &'static str> {
    include_str!("../../real_schemas/expected_failures.txt").lines().filter_map(|line| line.split_once('\t')).collect()
}

#[test]
#[ignore = "needs the schemas that tests/real_schemas/collect fetches"]
fn real_schemas_compile_and_check_a_large_body() {
    let folder = std::env::var("GATEPOST_REAL_SCHEMAS").unwrap();
    let only = std::env::var("GATEPOST_REAL_SCHEMA").unwrap_or_default();
    let mut paths: Vec<PathBuf> =
        fs::read_dir(Path::new(&folder).join("schemas")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (mut surprises, mut counts) = (Vec::new(), [0, 0]);
    let expected = expected_failures();
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !name.contains(&only) {
            continue;
        }
        let (results, failure) = check(&read(&path));
        println!("{name}: {results}{}", failure.as_ref().map(|why| format!(" FAILS {why}")).unwrap_or_default());
        counts[usize::from(failure.is_some())] += 1;
        if failure.is_some() != expected.contains_key(name.as_str()) {
            surprises.push(format!("{name}: {failure:?}"));
        }
    }
    println!("{} succeed, {} fail", counts[0], counts[1]);
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}
