//! Policy of a semantic resolution. Unknown members are refused, unlike elsewhere: ignoring a condition would admit
//! agents that it should exclude.

use super::super::{
    body::{Members, Wrong},
    filters,
};
use crate::{search::Filters, unit::Span};
use semver::VersionReq;
use serde_json::Value;

/// Names of each condition, the canonical one first.
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

/// Conditions that a candidate must satisfy.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Conditions that the search evaluates.
    pub(super) filters: Filters,
    /// Minimum trust, 0 to 1.
    pub(super) trust: Option<f64>,
    /// Required certifications, all of them.
    pub(super) certifications: Vec<String>,
    /// Minimum quality, 0 to 1.
    pub(super) quality: Option<f64>,
    /// Maximum latency in milliseconds.
    pub(super) latency: Option<f64>,
    /// Maximum cost of a call, and its currency.
    pub(super) cost: Option<(f64, Option<String>)>,
    /// Accepted versions.
    pub(super) versions: Option<VersionReq>,
}

impl Policy {
    pub(super) fn read(members: &Members<'_>, violations: &mut Wrong) -> Self {
        for name in members.names().filter(|name| !ALL.iter().any(|names| names.contains(name))) {
            let known: Vec<&str> = ALL.iter().filter_map(|names| names.first().copied()).collect();
            violations.say(members.pointer(name), format!("is not a supported condition ({})", known.join(", ")));
        }
        Self {
            filters: filters::of_members(members, violations),
            trust: read(members, TRUST, share, "must be 0 to 1, or low, medium or high", violations),
            certifications: members.words(CERTIFICATION, violations),
            quality: read(members, QUALITY, |value| value.as_f64().filter(in_share), "must be 0 to 1", violations),
            latency: read(
                members,
                LATENCY,
                latency,
                "must be low, medium, high, a number of milliseconds, or a duration such as 500ms",
                violations,
            ),
            cost: read(members, COST, cost, "must be a number from 0, or {amount, currency}", violations),
            versions: read(
                members,
                VERSIONS,
                |value| VersionReq::parse(value.as_str()?).ok(),
                "must be a range of semantic versions, such as >=1.2, <3",
                violations,
            ),
        }
    }
}

fn read<T>(
    members: &Members<'_>,
    names: &[&str],
    value: impl Fn(&Value) -> Option<T>,
    what: &str,
    violations: &mut Wrong,
) -> Option<T> {
    let (at, given) = members.value(names)?;
    let read = value(given);
    if read.is_none() {
        violations.say(at, what);
    }
    read
}

/// Parses a share of one: a number, or one of three words, each the middle of its third.
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

/// Parses a latency in milliseconds. The words of R71 mean their upper bounds; `high` has none.
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

/// Parses the cost of a call and its currency.
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
