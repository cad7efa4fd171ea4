//! Random schemas and instances: the verdict of this crate is compared with those of `jsonschema` and `boon`.
//!
//! The environment variable `GATEPOST_DIFFERENTIAL_PAIRS` sets the number of pairs, and `GATEPOST_DIFFERENTIAL_SEED` the
//! first seed.

mod generator;
mod known_differences;
mod shrink;
mod verdicts;

use known_differences::KNOWN_DIFFERENCES;
use std::collections::BTreeMap;
use verdicts::Verdicts;

/// Pairs of a run without the environment variable.
const DEFAULT_PAIRS: u64 = 2_000;
/// Disagreements after which a run ends.
const MAX_DISAGREEMENTS: usize = 20;

fn number_from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_schemas_have_the_verdicts_of_other_validators() {
    let first = number_from_environment("GATEPOST_DIFFERENTIAL_SEED", 0);
    let count = number_from_environment("GATEPOST_DIFFERENTIAL_PAIRS", DEFAULT_PAIRS);
    let (mut disagreements, mut valid) = (Vec::new(), 0_u64);
    let mut known: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first + count {
        let pair = generator::generate(seed);
        let verdicts = Verdicts::of(&pair);
        valid += u64::from(verdicts.ours == Ok(true));
        if verdicts.agree() {
            continue;
        }
        if let Some(difference) = KNOWN_DIFFERENCES.iter().find(|difference| (difference.applies)(&pair, &verdicts)) {
            *known.entry(difference.reason).or_default() += 1;
            continue;
        }
        let small = shrink::shrink(&pair);
        disagreements.push(format!(
            "seed {seed}, {:?}\n  schema   {}\n  instance {}\n  {}",
            pair.draft,
            small.schema,
            small.instance,
            Verdicts::of(&small)
        ));
        if disagreements.len() >= MAX_DISAGREEMENTS {
            break;
        }
    }
    println!("{count} pairs, {valid} valid; known differences: {known:#?}");
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
    assert!(count < DEFAULT_PAIRS || (count / 4..count * 3 / 4).contains(&valid), "{valid} of {count} are valid");
}
