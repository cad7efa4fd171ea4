//! Policy of a semantic resolution. Unknown members are refused, unlike elsewhere: ignoring a condition would admit
//! agents that it should exclude.

use super::super::{
    config::ResolutionMinimums,
    request_body::{BodyMembers, Violations},
    search_filters,
};
use crate::{search::SearchFilters, values::ConfigDuration};
use semver::VersionReq;
use serde_json::Value;

/// Names of each condition, the canonical one first.
const TRUST_NAMES: &[&str] = &["trust", "min_trust", "reputation", "min_reputation"];
const CERTIFICATION_NAMES: &[&str] = &["certification", "certifications"];
const QUALITY_NAMES: &[&str] = &["min_quality", "quality_score", "min_quality_score", "quality"];
const LATENCY_NAMES: &[&str] = &["max_latency", "latency", "responseLatency"];
const COST_NAMES: &[&str] = &["max_cost", "cost"];
const VERSION_NAMES: &[&str] = &["versions", "version"];

const CONDITION_NAMES: &[&[&str]] = &[
    TRUST_NAMES,
    CERTIFICATION_NAMES,
    QUALITY_NAMES,
    LATENCY_NAMES,
    COST_NAMES,
    VERSION_NAMES,
    search_filters::STATUS_NAMES,
    search_filters::CAPABILITY_NAMES,
    search_filters::TAG_NAMES,
    search_filters::LANGUAGE_NAMES,
];

/// Conditions that a candidate must satisfy.
#[derive(Debug, Default)]
pub(super) struct ResolutionPolicy {
    /// Conditions that the search evaluates.
    pub(super) filters: SearchFilters,
    /// Minimum trust, 0 to 1.
    pub(super) min_trust: Option<f64>,
    /// Required certifications, all of them.
    pub(super) certifications: Vec<String>,
    /// Minimum quality, 0 to 1.
    pub(super) min_quality: Option<f64>,
    /// Maximum latency in milliseconds.
    pub(super) max_latency_ms: Option<f64>,
    /// Maximum cost of a call, and its currency.
    pub(super) max_cost: Option<(f64, Option<String>)>,
    /// Accepted versions.
    pub(super) versions: Option<VersionReq>,
}

impl ResolutionPolicy {
    pub(super) fn parse(members: &BodyMembers<'_>, violations: &mut Violations) -> Self {
        for name in members.names().filter(|name| !CONDITION_NAMES.iter().any(|names| names.contains(name))) {
            let supported: Vec<&str> = CONDITION_NAMES.iter().filter_map(|names| names.first().copied()).collect();
            violations
                .add(members.member_pointer(name), format!("is not a supported condition ({})", supported.join(", ")));
        }
        Self {
            filters: search_filters::filters_from_body(members, violations),
            min_trust: parse_condition(
                members,
                TRUST_NAMES,
                parse_share,
                "must be 0 to 1, or low, medium or high",
                violations,
            ),
            certifications: members.strings(CERTIFICATION_NAMES, violations),
            min_quality: parse_condition(
                members,
                QUALITY_NAMES,
                |value| value.as_f64().filter(is_share),
                "must be 0 to 1",
                violations,
            ),
            max_latency_ms: parse_condition(
                members,
                LATENCY_NAMES,
                parse_latency,
                "must be low, medium, high, a number of milliseconds, or a duration such as 500ms",
                violations,
            ),
            max_cost: parse_condition(
                members,
                COST_NAMES,
                parse_cost,
                "must be a number from 0, or {amount, currency}",
                violations,
            ),
            versions: parse_condition(
                members,
                VERSION_NAMES,
                |value| VersionReq::parse(value.as_str()?).ok(),
                "must be a range of semantic versions, such as >=1.2, <3",
                violations,
            ),
        }
    }
}

impl ResolutionPolicy {
    /// Adds what the operator requires of every candidate (R9). Of two minimums the higher one counts.
    pub(super) fn require_minimums(&mut self, minimums: &ResolutionMinimums) {
        let higher = |own: Option<f64>, minimum: Option<f64>| own.into_iter().chain(minimum).reduce(f64::max);
        self.min_trust = higher(self.min_trust, minimums.min_trust);
        self.min_quality = higher(self.min_quality, minimums.min_quality);
        for required in &minimums.certifications {
            if !self.certifications.iter().any(|own| own.eq_ignore_ascii_case(required)) {
                self.certifications.push(required.clone());
            }
        }
    }
}

fn parse_condition<T>(
    members: &BodyMembers<'_>,
    names: &[&str],
    parse: impl Fn(&Value) -> Option<T>,
    what: &str,
    violations: &mut Violations,
) -> Option<T> {
    let (pointer, value) = members.member(names)?;
    let parsed = parse(value);
    if parsed.is_none() {
        violations.add(pointer, what);
    }
    parsed
}

/// Parses a share of one: a number, or one of three words, each the middle of its third.
pub(super) fn parse_share(value: &Value) -> Option<f64> {
    match value {
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "low" => Some(1.0 / 6.0),
            "medium" => Some(0.5),
            "high" => Some(5.0 / 6.0),
            _ => None,
        },
        value => value.as_f64().filter(is_share),
    }
}

fn is_share(number: &f64) -> bool {
    (0.0..=1.0).contains(number)
}

/// Parses a latency in milliseconds. The words of R71 stand for their upper bounds; `high` has no bound.
pub(super) fn parse_latency(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "low" => Some(1_000.0),
            "medium" => Some(10_000.0),
            "high" => Some(f64::INFINITY),
            text => text.parse::<ConfigDuration>().ok().map(|duration| duration.get().as_secs_f64() * 1_000.0),
        },
        value => value.as_f64().filter(|number| *number >= 0.0),
    }
}

/// Parses the cost of a call and its currency.
pub(super) fn parse_cost(value: &Value) -> Option<(f64, Option<String>)> {
    match value {
        Value::String(text) if text.eq_ignore_ascii_case("free") => Some((0.0, None)),
        Value::Number(number) => Some((number.as_f64().filter(|number| *number >= 0.0)?, None)),
        Value::Object(members) => {
            let text = |name: &str| members.get(name).and_then(Value::as_str);
            if text("model").or(text("type")).is_some_and(|model| model.eq_ignore_ascii_case("free")) {
                return Some((0.0, None));
            }
            let names = ["amount", "per_call", "price_per_call", "cost_per_call", "price", "cost"];
            let amount = names.iter().find_map(|name| members.get(*name)?.as_f64()).filter(|number| *number >= 0.0)?;
            let currency = match members.get("currency") {
                None | Some(Value::Null) => None,
                Some(currency) => Some(currency.as_str()?.to_ascii_uppercase()),
            };
            Some((amount, currency))
        }
        _ => None,
    }
}
