//! Evaluation of an agent against a policy, with reasons. Quality members are not standardised (R6): common forms are
//! recognised, and a value that cannot be parsed satisfies no condition.

use super::{
    super::agent_summary::status_name,
    resolution_policy::{self, ResolutionPolicy},
};
use crate::{
    agent::Agent,
    search::{SearchFilters, StatusFilter},
    values::json::truncate,
};
use semver::Version;
use serde_json::Value;
use std::sync::Arc;

/// Result of the evaluation of one agent.
#[derive(Debug, Default)]
pub(super) struct PolicyVerdict {
    /// Conditions that the agent satisfies.
    pub(super) reasons: Vec<String>,
    /// Conditions that the agent violates; empty if it satisfies the policy.
    pub(super) exclusions: Vec<String>,
    /// Quality, 0 to 1; 0.5 if the agent declares none.
    pub(super) quality: f64,
}

impl PolicyVerdict {
    fn record(&mut self, is_satisfied: bool, text: String) {
        if is_satisfied { self.reasons.push(text) } else { self.exclusions.push(text) }
    }

    /// Compares the declared value with a condition; an agent that declares none is excluded.
    fn compare<T>(&mut self, what: &str, declared: Option<T>, evaluate: impl FnOnce(T) -> (bool, String)) {
        match declared.map(evaluate) {
            Some((is_satisfied, text)) => self.record(is_satisfied, text),
            None => self.exclusions.push(format!("does not declare {what}, which the policy requires")),
        }
    }
}

/// Evaluates every condition of the policy.
pub(super) fn evaluate_policy(policy: &ResolutionPolicy, agent: &Agent) -> PolicyVerdict {
    let document: Value = serde_json::from_str(&agent.document).unwrap_or_default();
    let quality = first_parsed(&document, &["quality_score", "quality"], parse_quality);
    let mut verdict = PolicyVerdict { quality: quality.unwrap_or(0.5), ..PolicyVerdict::default() };
    evaluate_filters(&policy.filters, agent, &mut verdict);
    if let Some(min) = policy.min_quality {
        verdict.compare("quality_score", quality, |declared| {
            (declared >= min, format!("quality_score {declared:.2} (at least {min:.2} is required)"))
        });
    }
    if let Some(min) = policy.min_trust {
        let declared = first_parsed(&document, &["trust", "trust_score", "reputation"], |value| {
            resolution_policy::parse_share(score_value(value))
        });
        verdict.compare("trust", declared, |declared| {
            (declared >= min, format!("trust {declared:.2} (at least {min:.2} is required)"))
        });
    }
    evaluate_certifications(policy, &document, &mut verdict);
    if let Some(max) = policy.max_latency_ms {
        let declared = first_parsed(
            &document,
            &["responseLatency", "response_latency", "latency_ms", "latency"],
            resolution_policy::parse_latency,
        );
        verdict.compare("responseLatency", declared, |declared| {
            (
                declared <= max,
                format!("latency {} (at most {} is allowed)", format_millis(declared), format_millis(max)),
            )
        });
    }
    if let Some((max, currency)) = &policy.max_cost {
        let declared = first_parsed(&document, &["pricing", "price", "cost"], resolution_policy::parse_cost);
        verdict.compare("pricing", declared, |(declared, declared_currency)| match (currency, declared_currency) {
            (Some(required), Some(other)) if !required.eq_ignore_ascii_case(&other) => {
                (false, format!("price is in {}, not in {required}", truncate(&other, 10)))
            }
            _ => (declared <= *max, format!("costs {declared} per call (at most {max} is allowed)")),
        });
    }
    if let Some(range) = &policy.versions {
        verdict.compare("version", agent.version.as_deref(), |text| match Version::parse(text) {
            Ok(version) => (range.matches(&version), format!("version {version} ({range} is required)")),
            Err(_) => (false, format!("version '{}' is not a semantic version", truncate(text, 40))),
        });
    }
    verdict
}

/// Evaluates the filters as the search does, to give each exclusion its reason.
fn evaluate_filters(filters: &SearchFilters, agent: &Agent, verdict: &mut PolicyVerdict) {
    let status = status_name(agent);
    let matches_status = |value: &StatusFilter| match value {
        StatusFilter::Active => status == "active",
        StatusFilter::Inactive => status == "inactive",
        StatusFilter::Deprecated => status == "deprecated",
    };
    if !filters.status.is_empty() {
        verdict.record(filters.status.iter().any(matches_status), format!("is {status}"));
    } else if status == "inactive" {
        verdict.exclusions.push("is inactive".to_owned());
    }
    let lists = [("capability", &filters.capabilities, &agent.capabilities), ("tag", &filters.tags, &agent.tags)];
    for (what, required, declared) in lists {
        for value in required {
            let is_satisfied =
                declared.iter().any(|declared_value| declared_value.to_lowercase() == value.to_lowercase());
            verdict.record(is_satisfied, format!("{} the {what} {value}", if is_satisfied { "has" } else { "lacks" }));
        }
    }
    for language in &filters.languages {
        // An agent without languages matches every language (R15).
        let is_satisfied = agent.languages.is_empty() || has_language(&agent.languages, language);
        verdict.record(
            is_satisfied,
            format!("{} the language {language}", if is_satisfied { "supports" } else { "lacks" }),
        );
    }
}

/// Returns whether one of the languages matches: `zh-CN` matches `zh`.
fn has_language(languages: &[Arc<str>], language: &str) -> bool {
    languages.iter().any(|declared| {
        let rest = declared
            .get(language.len()..)
            .filter(|_| declared.get(..language.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(language)));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn evaluate_certifications(policy: &ResolutionPolicy, document: &Value, verdict: &mut PolicyVerdict) {
    if policy.certifications.is_empty() {
        return;
    }
    let declared = first_parsed(document, &["certification", "certifications"], parse_certifications);
    for required in &policy.certifications {
        verdict.compare("certification", declared.as_ref(), |declared| {
            let is_satisfied = declared.iter().any(|name| name.eq_ignore_ascii_case(required));
            (is_satisfied, format!("{} certified {required}", if is_satisfied { "is" } else { "is not" }))
        });
    }
}

/// Parses certifications: one name, several, or objects that have one.
fn parse_certifications(value: &Value) -> Option<Vec<String>> {
    let name_of = |value: &Value| {
        let name = match value {
            Value::Object(members) => members.get("name").or_else(|| members.get("type")).or_else(|| members.get("id")),
            value => Some(value),
        };
        name.and_then(Value::as_str).map(str::to_owned)
    };
    match value {
        Value::Array(items) => Some(items.iter().filter_map(name_of).collect()),
        value => name_of(value).map(|name| vec![name]),
    }
}

/// Parses a quality: a share of one or of a hundred.
fn parse_quality(value: &Value) -> Option<f64> {
    match score_value(value).as_f64()? {
        number if (0.0..=1.0).contains(&number) => Some(number),
        number if (1.0..=100.0).contains(&number) => Some(number / 100.0),
        _ => None,
    }
}

/// Returns the value of `{"score": 0.9, …}`, which is equivalent to `0.9`.
fn score_value(value: &Value) -> &Value {
    value.get("score").or_else(|| value.get("value")).unwrap_or(value)
}

/// Returns the first member that can be parsed.
fn first_parsed<T>(document: &Value, names: &[&str], parse: impl Fn(&Value) -> Option<T>) -> Option<T> {
    names.iter().find_map(|name| parse(document.get(name)?))
}

fn format_millis(millis: f64) -> String {
    if millis.is_finite() { format!("{millis:.0}ms") } else { "any".to_owned() }
}
