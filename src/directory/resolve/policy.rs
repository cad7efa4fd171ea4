//! What a candidate must satisfy. A member that is not known is refused, though elsewhere such are left alone: a
//! condition that nobody checks would let in whom it was to keep out.

use super::super::{
    body::{Members, Wrong},
    filters,
};
use crate::{search::Filters, unit::Span};
use semver::VersionReq;
use serde_json::Value;

/// The names of each condition, the usual one first.
const TRUST: &[&str] = &["trust", "min_trust", "reputation", "min_reputation"];
const CERTIFICATION: &[&str] = &["certification", "certifications"];
const QUALITY: &[&str] = &["min_quality", "quality_score", "min_quality_score", "quality"];
const LATENCY: &[&str] = &["max_latency", "latency", "responseLatency"];
const COST: &[&str] = &["max_cost", "cost"];
const VERSIONS: &[&str] = &["versions", "version"];

const ALL: &[&[&str]] = &[
    TRUST,
    CERTIFICATION,
    QUALITY,
    LATENCY,
    COST,
    VERSIONS,
    filters::STATUS,
    filters::CAPABILITIES,
    filters::TAGS,
    filters::LANGUAGES,
];

/// The conditions.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// What the search itself can decide.
    pub(super) filters: Filters,
    /// At least so much, 0 to 1.
    pub(super) trust: Option<f64>,
    /// All of these.
    pub(super) certifications: Vec<String>,
    /// At least so much, 0 to 1.
    pub(super) quality: Option<f64>,
    /// Milliseconds at most.
    pub(super) latency: Option<f64>,
    /// At most so much for a call, and in which currency.
    pub(super) cost: Option<(f64, Option<String>)>,
    /// The versions that will do.
    pub(super) versions: Option<VersionReq>,
}

impl Policy {
    pub(super) fn read(members: &Members<'_>, wrong: &mut Wrong) -> Self {
        for name in members.names().filter(|name| !ALL.iter().any(|names| names.contains(name))) {
            let known: Vec<&str> = ALL.iter().filter_map(|names| names.first().copied()).collect();
            wrong.say(members.pointer(name), format!("is not a condition (known: {})", known.join(", ")));
        }
        Self {
            filters: filters::of_members(members, wrong),
            trust: read(members, TRUST, share, "must be 0 to 1, or low, medium or high", wrong),
            certifications: members.words(CERTIFICATION, wrong),
            quality: read(members, QUALITY, |value| value.as_f64().filter(in_share), "must be 0 to 1", wrong),
            latency: read(
                members,
                LATENCY,
                latency,
                "must be low, medium, high, a number of milliseconds, or a span such as 500ms",
                wrong,
            ),
            cost: read(members, COST, cost, "must be a number from 0, or {amount, currency}", wrong),
            versions: read(
                members,
                VERSIONS,
                |value| VersionReq::parse(value.as_str()?).ok(),
                "must be a range of semantic versions, such as >=1.2, <3",
                wrong,
            ),
        }
    }
}

fn read<T>(
    members: &Members<'_>,
    names: &[&str],
    value: impl Fn(&Value) -> Option<T>,
    what: &str,
    wrong: &mut Wrong,
) -> Option<T> {
    let (at, given) = members.value(names)?;
    let read = value(given);
    if read.is_none() {
        wrong.say(at, what);
    }
    read
}

/// A share of one: a number, or one of three words in the middle of its third.
pub(super) fn share(value: &Value) -> Option<f64> {
    match value {
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "low" => Some(1.0 / 6.0),
            "medium" => Some(0.5),
            "high" => Some(5.0 / 6.0),
            _ => None,
        },
        value => value.as_f64().filter(in_share),
    }
}

fn in_share(number: &f64) -> bool {
    (0.0..=1.0).contains(number)
}

/// Milliseconds. The words of R71 stand for what they promise at most; `high` promises nothing.
pub(super) fn latency(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "low" => Some(1_000.0),
            "medium" => Some(10_000.0),
            "high" => Some(f64::INFINITY),
            text => text.parse::<Span>().ok().map(|span| span.get().as_secs_f64() * 1_000.0),
        },
        value => value.as_f64().filter(|number| *number >= 0.0),
    }
}

/// What a call costs.
pub(super) fn cost(value: &Value) -> Option<(f64, Option<String>)> {
    match value {
        Value::String(word) if word.eq_ignore_ascii_case("free") => Some((0.0, None)),
        Value::Number(number) => Some((number.as_f64().filter(|number| *number >= 0.0)?, None)),
        Value::Object(members) => {
            let word = |name: &str| members.get(name).and_then(Value::as_str);
            if word("model").or(word("type")).is_some_and(|model| model.eq_ignore_ascii_case("free")) {
                return Some((0.0, None));
            }
            let names = ["amount", "per_call", "price_per_call", "cost_per_call", "price", "cost"];
            let amount = names.iter().find_map(|name| members.get(*name)?.as_f64()).filter(|number| *number >= 0.0)?;
            Some((amount, word("currency").map(str::to_ascii_uppercase)))
        }
        _ => None,
    }
}
