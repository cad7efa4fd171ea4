//! The cost of a call, in instructions of this build and for each case, matches `tests/data/counts.json`. The counts do
//! not depend on the load of the machine, so a change that makes calls more expensive fails here reliably.

#[path = "../../../loadtest/src/count/callgrind.rs"]
mod callgrind;
#[path = "../../../loadtest/src/count/cases.rs"]
mod cases;
#[path = "../../../loadtest/src/count/instruction_record.rs"]
mod instruction_record;
#[path = "../../../loadtest/src/request_body.rs"]
mod request_body;
#[path = "../../../loadtest/src/token_issuer.rs"]
mod token_issuer;

use cases::CaseCount;
use instruction_record::{BuildInfo, InstructionRecord};
use std::path::Path;

/// If this variable is set, the counts of this run are written instead of compared (`make renew-counts`).
const RENEW: &str = "GATEPOST_RENEW_COUNTS";

/// Calls in each window. Under callgrind, a hundred calls take seconds in a build without optimisation.
const CALLS: u32 = 50;

/// How much more a cached token may cost than an API key in this build, as a share. A request with a token has half a
/// kilobyte more, and without optimisation each byte of a head costs about a hundred instructions; `make counts` allows
/// 5 % for the optimised build.
const MAX_TOKEN_EXCESS: f64 = 0.15;

#[test]
fn a_call_costs_as_many_instructions_as_were_recorded() {
    let program = Path::new(env!("CARGO_BIN_EXE_gatepost"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/counts.json");
    let folder = tempfile::tempdir().unwrap();
    let counts = cases::count_cases(program, CALLS, folder.path()).unwrap_or_else(|why| panic!("{why:#}"));
    for CaseCount { case, instructions, digests, spread } in &counts {
        let spread = spread * 100.0;
        println!("{case}: {instructions} instructions, {digests} of them for digests (windows within {spread:.2} %)");
    }
    let build = BuildInfo::read(program, "dev").unwrap();
    let record = InstructionRecord::read(&file).unwrap();
    if std::env::var_os(RENEW).is_some() {
        record.update(&file, &build, &counts).unwrap();
    } else {
        record.check(&build, &counts).unwrap_or_else(|why| panic!("{why}"));
    }
    instruction_record::check_token_cost(&counts, MAX_TOKEN_EXCESS).unwrap_or_else(|why| panic!("{why}"));
}

mod record_checks {
    use super::{BuildInfo, CaseCount, InstructionRecord, instruction_record::check_token_cost};
    use std::path::Path;

    const CASES: [&str; 2] = [super::cases::API_KEY_CASE, super::cases::CACHED_JWT_CASE];

    fn counts(instructions: [u64; 2]) -> Vec<CaseCount> {
        let count = |(case, instructions)| CaseCount { case, instructions, digests: 0, spread: 0.0 };
        CASES.into_iter().zip(instructions).map(count).collect()
    }

    fn build() -> BuildInfo {
        BuildInfo::read(Path::new(env!("CARGO_BIN_EXE_gatepost")), "dev").unwrap()
    }

    /// A record of 1,000 instructions for each case. `version_prefix` replaces the start of the compiler's version.
    fn record(version_prefix: &str) -> InstructionRecord {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("counts.json");
        InstructionRecord::parse("{}").unwrap().update(&file, &build(), &counts([1000, 1000])).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("\"1."), "{text}");
        InstructionRecord::parse(&text.replace("\"1.", version_prefix)).unwrap()
    }

    #[test]
    fn a_change_beyond_the_tolerance_in_either_direction_is_reported() {
        let record = record("\"1.");
        record.check(&build(), &counts([1040, 960])).unwrap();
        for now in [[1060, 1000], [1000, 940]] {
            record.check(&build(), &counts(now)).unwrap_err();
        }
        let message = record.check(&build(), &counts([1060, 1000])).unwrap_err().to_string();
        assert!(message.contains("API key + limit + schema: 1000 recorded, 1060 now (+6.0 %)"), "{message}");
        assert!(message.contains("make renew-counts") && !message.contains("JWT"), "{message}");
    }

    #[test]
    fn counts_of_another_compiler_have_a_larger_tolerance() {
        let record = record("\"0.");
        record.check(&build(), &counts([1100, 900])).unwrap();
        let message = record.check(&build(), &counts([1200, 1000])).unwrap_err().to_string();
        assert!(message.contains("recorded with 0.") && message.contains("at most 15 %"), "{message}");
    }

    #[test]
    fn a_case_without_a_record_is_reported() {
        let message = InstructionRecord::parse("{}").unwrap().check(&build(), &counts([1, 1])).unwrap_err().to_string();
        assert!(message.contains("never recorded") && message.contains("recorded with none"), "{message}");
    }

    #[test]
    fn a_token_may_cost_a_little_more_than_a_key() {
        check_token_cost(&counts([1000, 1040]), 0.05).unwrap();
        check_token_cost(&counts([1000, 1060]), 0.05).unwrap_err();
    }
}
