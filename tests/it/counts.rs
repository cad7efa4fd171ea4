//! What a call costs in instructions of this build, case by case, is what `tests/data/counts.json` says. A change that
//! makes calls dearer fails here on any machine, busy or not, before anybody measures a time.

#[path = "../../loadtest/src/count/gauge.rs"]
mod gauge;
#[path = "../../loadtest/src/count/place.rs"]
mod place;
#[path = "../../loadtest/src/question.rs"]
mod question;
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

/// How much more a cached token may cost than an API key here, as a share. Its head is half a kilobyte longer, and without
/// optimisation every byte of a head costs some hundred instructions; `make counts` holds the optimised build to 5 %.
const TOKEN: f64 = 0.15;

#[test]
fn a_call_costs_as_many_instructions_as_were_recorded() {
    let program = Path::new(env!("CARGO_BIN_EXE_gatepost"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/counts.json");
    let folder = tempfile::tempdir().unwrap();
    let counts = place::count(program, CALLS, folder.path()).unwrap_or_else(|why| panic!("{why:#}"));
    for Count { case, instructions, digests, spread } in &counts {
        let spread = spread * 100.0;
        println!("{case}: {instructions} instructions, {digests} of them for digests (windows within {spread:.2} %)");
    }
    let build = Build::of(program, "dev").unwrap();
    let record = Record::read(&file).unwrap();
    if std::env::var_os(RENEW).is_some() {
        record.renew(&file, &build, &counts).unwrap();
    } else {
        record.judge(&build, &counts).unwrap_or_else(|why| panic!("{why}"));
    }
    record::token_costs_like_key(&counts, TOKEN).unwrap_or_else(|why| panic!("{why}"));
}

mod judged {
    use super::{Build, Count, Record, record::token_costs_like_key};
    use std::path::Path;

    const CASES: [&str; 2] = [super::place::KEY, super::place::JWT];

    fn counts(instructions: [u64; 2]) -> Vec<Count> {
        let count = |(case, instructions)| Count { case, instructions, digests: 0, spread: 0.0 };
        CASES.into_iter().zip(instructions).map(count).collect()
    }

    fn build() -> Build {
        Build::of(Path::new(env!("CARGO_BIN_EXE_gatepost")), "dev").unwrap()
    }

    /// A record of 1,000 instructions for either case, made by this compiler or by another.
    fn record(replaced: &str) -> Record {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counts.json");
        Record::parse("{}").unwrap().renew(&file, &build(), &counts([1000, 1000])).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("\"1."), "{text}");
        Record::parse(&text.replace("\"1.", replaced)).unwrap()
    }

    #[test]
    fn a_change_beyond_the_tolerance_is_found_either_way_and_told() {
        let record = record("\"1.");
        record.judge(&build(), &counts([1040, 960])).unwrap();
        for now in [[1060, 1000], [1000, 940]] {
            record.judge(&build(), &counts(now)).unwrap_err();
        }
        let told = record.judge(&build(), &counts([1060, 1000])).unwrap_err().to_string();
        assert!(told.contains("API key + limit + schema: 1000 recorded, 1060 now (+6.0 %)"), "{told}");
        assert!(told.contains("make renew-counts") && !told.contains("JWT"), "{told}");
    }

    #[test]
    fn another_compiler_is_named_and_allowed_more() {
        let record = record("\"0.");
        record.judge(&build(), &counts([1100, 900])).unwrap();
        let told = record.judge(&build(), &counts([1200, 1000])).unwrap_err().to_string();
        assert!(told.contains("recorded with 0.") && told.contains("at most 15 %"), "{told}");
    }

    #[test]
    fn what_was_never_recorded_is_found() {
        let told = Record::parse("{}").unwrap().judge(&build(), &counts([1, 1])).unwrap_err().to_string();
        assert!(told.contains("never recorded") && told.contains("recorded with none"), "{told}");
    }

    #[test]
    fn a_token_may_cost_a_little_more_than_a_key() {
        token_costs_like_key(&counts([1000, 1040]), 0.05).unwrap();
        token_costs_like_key(&counts([1000, 1060]), 0.05).unwrap_err();
    }
}
