//! Pairs on which the other validators are known to differ, with the reason.

use super::{generator::Pair, verdicts::Verdicts};
use json_schema::Draft;
use serde_json::Value;

/// A known difference.
pub(super) struct KnownDifference {
    pub(super) applies: fn(&Pair, &Verdicts) -> bool,
    pub(super) reason: &'static str,
}

pub(super) const KNOWN_DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        applies: |pair, verdicts| {
            pair.draft == Draft::Draft201909
                && verdicts.ours == verdicts.boon
                && ["contains", "unevaluatedItems"].iter().all(|keyword| has_keyword(&pair.schema, keyword))
        },
        reason: "`jsonschema` counts the items of `contains` as evaluated in 2019-09 too: only 2020-12 does (Core, section 11.2)",
    },
    KnownDifference {
        applies: |pair, verdicts| {
            pair.draft == Draft::Draft201909
                && verdicts.ours == verdicts.jsonschema
                && ["propertyNames", "$recursiveRef"].iter().all(|keyword| has_keyword(&pair.schema, keyword))
        },
        reason: "`boon` finds no name valid whose `propertyNames` lead back to the schema by `$recursiveRef`",
    },
    KnownDifference {
        applies: |pair, verdicts| {
            pair.draft == Draft::Draft4
                && verdicts.ours == verdicts.jsonschema
                && has_keyword(&pair.schema, "type")
                && pair.instance.to_string().contains(".0")
        },
        reason: "`boon` takes 1.0 for an integer in draft 4, where a number with a fraction is none (section 3.5)",
    },
    KnownDifference {
        applies: |pair, verdicts| {
            verdicts.boon.is_err() && verdicts.ours == verdicts.jsonschema && has_keyword(&pair.schema, "enum")
        },
        reason: "`boon` refuses an `enum` with two equal values, as the metaschemas up to draft 7 do; the specification says SHOULD",
    },
];

fn has_keyword(value: &Value, keyword: &str) -> bool {
    match value {
        Value::Object(members) => {
            members.contains_key(keyword) || members.values().any(|child| has_keyword(child, keyword))
        }
        Value::Array(items) => items.iter().any(|child| has_keyword(child, keyword)),
        _ => false,
    }
}
