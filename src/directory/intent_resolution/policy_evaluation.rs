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
    /// Conditions that the agent violates; empty if it fits.
    pub(super) exclusions: Vec<String>,
    /// Quality, 0 to 1; 0.5 if the agent declares none.
    pub(super) quality: f64,
}

impl PolicyVerdict {
    fn record(&mut self, holds: bool, text: String) {
        match holds {
            true => self.reasons.push(text),
            false => self.exclusions.push(text),
        }
    }

    /// Compares `found` with a condition; an agent that declares nothing is excluded.
    fn compare<T>(&mut self, what: &str, found: Option<T>, evaluate: impl FnOnce(T) -> (bool, String)) {
        match found.map(evaluate) {
            Some((holds, text)) => self.record(holds, text),
            None => self.exclusions.push(format!("does not declare {what}, which the policy requires")),
        }
    }
}

pub(super) fn evaluate_policy(policy: &ResolutionPolicy, agent: &Agent) -> PolicyVerdict {
    let doc: Value = serde_json::from_str(&agent.document).unwrap_or_default();
    let quality = first_parsed(&doc, &["quality_score", "quality"], parse_quality);
    let mut verdict = PolicyVerdict { quality: quality.unwrap_or(0.5), ..PolicyVerdict::default() };
    evaluate_filters(&policy.filters, agent, &mut verdict);
    if let Some(least) = policy.min_quality {
        verdict.compare("quality_score", quality, |found| {
            (found >= least, format!("quality_score {found:.2} (at least {least:.2} is required)"))
        });
    }
    if let Some(least) = policy.min_trust {
        let found = first_parsed(&doc, &["trust", "trust_score", "reputation"], |value| {
            resolution_policy::parse_share(score_value(value))
        });
        verdict.compare("trust", found, |found| {
            (found >= least, format!("trust {found:.2} (at least {least:.2} is required)"))
        });
    }
    evaluate_certifications(policy, &doc, &mut verdict);
    if let Some(most) = policy.max_latency_ms {
        let found = first_parsed(
            &doc,
            &["responseLatency", "response_latency", "latency_ms", "latency"],
            resolution_policy::parse_latency,
        );
        verdict.compare("responseLatency", found, |found| {
            (found <= most, format!("latency {} (at most {} is allowed)", format_millis(found), format_millis(most)))
        });
    }
    if let Some((most, currency)) = &policy.max_cost {
        let found = first_parsed(&doc, &["pricing", "price", "cost"], resolution_policy::parse_cost);
        verdict.compare("pricing", found, |(found, of)| match (currency, of) {
            (Some(asked), Some(of)) if !asked.eq_ignore_ascii_case(&of) => {
                (false, format!("price is in {}, not in {asked}", truncate(&of, 10)))
            }
            _ => (found <= *most, format!("costs {found} per call (at most {most} is allowed)")),
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
    let asked = |word: &StatusFilter| match word {
        StatusFilter::Active => status == "active",
        StatusFilter::Inactive => status == "inactive",
        StatusFilter::Deprecated => status == "deprecated",
    };
    match filters.status.is_empty() {
        true if status == "inactive" => verdict.exclusions.push("is inactive".to_owned()),
        true => {}
        false => verdict.record(filters.status.iter().any(asked), format!("is {status}")),
    }
    let lists = [("capability", &filters.capabilities, &agent.capabilities), ("tag", &filters.tags, &agent.tags)];
    for (what, wanted, given) in lists {
        for word in wanted {
            let holds = given.iter().any(|one| one.to_lowercase() == word.to_lowercase());
            verdict.record(holds, format!("{} the {what} {word}", if holds { "has" } else { "lacks" }));
        }
    }
    for language in &filters.languages {
        // An agent without languages matches every language (R15).
        let holds = agent.languages.is_empty() || has_language(&agent.languages, language);
        verdict.record(holds, format!("{} the language {language}", if holds { "supports" } else { "lacks" }));
    }
}

/// Whether one of the languages matches: `zh-CN` matches `zh`.
fn has_language(languages: &[Arc<str>], language: &str) -> bool {
    languages.iter().any(|one| {
        let rest = one
            .get(language.len()..)
            .filter(|_| one.get(..language.len()).is_some_and(|head| head.eq_ignore_ascii_case(language)));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn evaluate_certifications(policy: &ResolutionPolicy, doc: &Value, verdict: &mut PolicyVerdict) {
    if policy.certifications.is_empty() {
        return;
    }
    let found = first_parsed(doc, &["certification", "certifications"], parse_certifications);
    for asked in &policy.certifications {
        verdict.compare("certification", found.as_ref(), |found| {
            let holds = found.iter().any(|one| one.eq_ignore_ascii_case(asked));
            (holds, format!("{} certified {asked}", if holds { "is" } else { "is not" }))
        });
    }
}

/// Parses certifications: one name, several, or objects that have one.
fn parse_certifications(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| {
        let name = match value {
            Value::Object(members) => members.get("name").or_else(|| members.get("type")).or_else(|| members.get("id")),
            value => Some(value),
        };
        name.and_then(Value::as_str).map(str::to_owned)
    };
    match value {
        Value::Array(items) => Some(items.iter().filter_map(one).collect()),
        value => one(value).map(|name| vec![name]),
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
fn first_parsed<T>(doc: &Value, names: &[&str], read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    names.iter().find_map(|name| read(doc.get(name)?))
}

fn format_millis(millis: f64) -> String {
    match millis.is_finite() {
        true => format!("{millis:.0}ms"),
        false => "any".to_owned(),
    }
}
