//! What a call costs in instructions of this build, case by case, is what `tests/data/counts.json` says. A change that
//! makes calls dearer fails here on any machine, busy or not, before anybody measures a time.

#[path = "../../loadtest/src/count/gauge.rs"]
mod gauge;
#[path = "../../loadtest/src/count/place.rs"]
mod place;
#[path = "../../loadtest/src/count/record.rs"]
mod record;
#[path = "../../loadtest/src/token.rs"]
mod token;

use place::Count;
use record::{Build, Record};
use std::path::Path;

/// Set to anything, it has the counts of this run written instead of compared: `make renew-counts`.
const RENEW: &str = "GATEPOST_RENEW_COUNTS";

/// Calls in each window. A build without optimisation takes seconds for a hundred under callgrind.
const CALLS: u32 = 50;

#[test]
fn a_call_costs_as_many_instructions_as_were_recorded() {
    let program = Path::new(env!("CARGO_BIN_EXE_gatepost"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/counts.json");
    let counts = place::count(program, CALLS).unwrap_or_else(|why| panic!("{why:#}"));
    for Count { case, instructions, spread } in &counts {
        println!("{case}: {instructions} instructions (windows within {:.2} %)", spread * 100.0);
    }
    let build = Build::of(program, "dev").unwrap();
    let record = Record::read(&file).unwrap();
    if std::env::var_os(RENEW).is_some() {
        record.renew(&file, &build, &counts).unwrap();
    } else {
        record.judge(&build, &counts).unwrap_or_else(|why| panic!("{why}"));
    }
    record::token_costs_like_key(&counts).unwrap_or_else(|why| panic!("{why}"));
}
