//! The verdicts of three validators about one pair.

use super::generator::{Pair, ROOT};
use json_schema::{CompileOptions, Draft, Evaluation, Outcome, Program, Tape};
use serde_json::Value;
use std::{fmt, sync::Arc, task::Poll};

/// Whether the instance is valid, or why the schema does not compile.
type Verdict = Result<bool, String>;

/// The verdicts about one pair.
pub(super) struct Verdicts {
    pub(super) ours: Verdict,
    pub(super) jsonschema: Verdict,
    pub(super) boon: Verdict,
}

impl Verdicts {
    pub(super) fn of(pair: &Pair) -> Self {
        Self { ours: ours(pair), jsonschema: jsonschema(pair), boon: boon(pair) }
    }

    pub(super) fn agree(&self) -> bool {
        self.ours.is_ok() && self.ours == self.jsonschema && self.ours == self.boon
    }
}

impl fmt::Display for Verdicts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "this crate {:?}, jsonschema {:?}, boon {:?}", self.ours, self.jsonschema, self.boon)
    }
}

fn ours(pair: &Pair) -> Verdict {
    let options = CompileOptions { draft: pair.draft, ..CompileOptions::default() };
    let program = Program::compile(&Arc::new(pair.schema.clone()), &options).map_err(|error| error.to_string())?;
    if !program.unsupported().is_empty() {
        return Err(format!("{:?}", program.unsupported()));
    }
    let tape = Tape::from_value(&pair.instance).map_err(|error| error.to_string())?;
    let is_valid = program.is_valid(&tape);
    if program.violations(&tape).is_empty() != is_valid {
        return Err("the violations contradict the verdict".to_owned());
    }
    let in_slices = |slice: u64| {
        let mut evaluation = Evaluation::new(Tape::ROOT, u64::MAX);
        loop {
            if let Poll::Ready(outcome) = evaluation.resume(&program, &tape, slice) {
                return (outcome == Outcome::Valid, evaluation.fuel_used());
            }
        }
    };
    let whole = in_slices(u64::MAX);
    match [1, 7, 1000].into_iter().find(|slice| in_slices(*slice) != whole) {
        Some(slice) => Err(format!("slices of {slice} units of fuel have another result")),
        None if whole.0 != is_valid => Err("the fuel changes the verdict".to_owned()),
        None => Ok(is_valid),
    }
}

fn jsonschema(pair: &Pair) -> Verdict {
    let validator = jsonschema::options().offline().build(&pair.schema).map_err(|error| error.to_string())?;
    Ok(validator.is_valid(&pair.instance))
}

fn boon(pair: &Pair) -> Verdict {
    let mut compiler = boon::Compiler::new();
    compiler.set_default_draft(match pair.draft {
        Draft::Draft4 | Draft::OpenApi30 => boon::Draft::V4,
        Draft::Draft6 => boon::Draft::V6,
        Draft::Draft7 => boon::Draft::V7,
        Draft::Draft201909 => boon::Draft::V2019_09,
        Draft::Draft202012 => boon::Draft::V2020_12,
    });
    let mut schemas = boon::Schemas::new();
    let schema: Value = pair.schema.clone();
    compiler.add_resource(ROOT, schema).map_err(|error| error.to_string())?;
    let index = compiler.compile(ROOT, &mut schemas).map_err(|error| format!("{error:#}"))?;
    Ok(schemas.validate(&pair.instance, index).is_ok())
}
