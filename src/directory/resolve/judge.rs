//! Evaluation of an agent against a policy, with reasons. Quality members are not standardised (R6): common forms are
//! recognised, and a value that cannot be parsed satisfies no condition.

use super::{
    super::summary::status,
    policy::{self, Policy},
};
use crate::{
    agent::Agent,
    search::{Filters, Word},
    unit::json::cut,
};
use semver::Version;
use serde_json::Value;
use std::sync::Arc;

/// Result of the evaluation of one agent.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Conditions that the agent satisfies.
    pub(super) reasons: Vec<String>,
    /// Conditions that the agent violates; empty if it fits.
    pub(super) against: Vec<String>,
    /// Quality, 0 to 1; 0.5 if the agent declares none.
    pub(super) quality: f64,
}

impl Verdict {
    fn say(&mut self, holds: bool, text: String) {
        match holds {
            true => self.reasons.push(text),
            false => self.against.push(text),
        }
    }

    /// Compares `found` with a condition; an agent that declares nothing is excluded.
    fn compare<T>(&mut self, what: &str, found: Option<T>, judged: impl FnOnce(T) -> (bool, String)) {
        match found.map(judged) {
            Some((holds, text)) => self.say(holds, text),
            None => self.against.push(format!("does not declare {what}, which the policy requires")),
        }
    }
}

pub(super) fn judge(policy: &Policy, agent: &Agent) -> Verdict {
    let doc: Value = serde_json::from_str(&agent.document).unwrap_or_default();
    let quality = first(&doc, &["quality_score", "quality"], quality);
    let mut verdict = Verdict { quality: quality.unwrap_or(0.5), ..Verdict::default() };
    filtered(&policy.filters, agent, &mut verdict);
    if let Some(least) = policy.quality {
        verdict.compare("quality_score", quality, |found| {
            (found >= least, format!("quality_score {found:.2} (at least {least:.2} is required)"))
        });
    }
    if let Some(least) = policy.trust {
        let found = first(&doc, &["trust", "trust_score", "reputation"], |value| policy::share(scored(value)));
        verdict.compare("trust", found, |found| {
            (found >= least, format!("trust {found:.2} (at least {least:.2} is required)"))
        });
    }
    certified(policy, &doc, &mut verdict);
    if let Some(most) = policy.latency {
        let found = first(&doc, &["responseLatency", "response_latency", "latency_ms", "latency"], policy::latency);
        verdict.compare("responseLatency", found, |found| {
            (found <= most, format!("latency {} (at most {} is allowed)", millis(found), millis(most)))
        });
    }
    if let Some((most, currency)) = &policy.cost {
        let found = first(&doc, &["pricing", "price", "cost"], policy::cost);
        verdict.compare("pricing", found, |(found, of)| match (currency, of) {
            (Some(asked), Some(of)) if !asked.eq_ignore_ascii_case(&of) => {
                (false, format!("price is in {}, not in {asked}", cut(&of, 10)))
            }
            _ => (found <= *most, format!("costs {found} per call (at most {most} is allowed)")),
        });
    }
    if let Some(range) = &policy.versions {
        verdict.compare("version", agent.version.as_deref(), |text| match Version::parse(text) {
            Ok(version) => (range.matches(&version), format!("version {version} ({range} is required)")),
            Err(_) => (false, format!("version '{}' is not a semantic version", cut(text, 40))),
        });
    }
    verdict
}

/// Evaluates the filters as the search does, to give each exclusion its reason.
fn filtered(filters: &Filters, agent: &Agent, verdict: &mut Verdict) {
    let status = status(agent);
    let asked = |word: &Word| match word {
        Word::Active => status == "active",
        Word::Inactive => status == "inactive",
        Word::Deprecated => status == "deprecated",
    };
    match filters.status.is_empty() {
        true if status == "inactive" => verdict.against.push("is inactive".to_owned()),
        true => {}
        false => verdict.say(filters.status.iter().any(asked), format!("is {status}")),
    }
    let lists = [("capability", &filters.capabilities, &agent.capabilities), ("tag", &filters.tags, &agent.tags)];
    for (what, wanted, given) in lists {
        for word in wanted {
            let holds = given.iter().any(|one| one.to_lowercase() == word.to_lowercase());
            verdict.say(holds, format!("{} the {what} {word}", if holds { "has" } else { "lacks" }));
        }
    }
    for language in &filters.languages {
        // An agent without languages matches every language (R15).
        let holds = agent.languages.is_empty() || speaks(&agent.languages, language);
        verdict.say(holds, format!("{} the language {language}", if holds { "supports" } else { "lacks" }));
    }
}

/// Whether one of the languages matches: `zh-CN` matches `zh`.
fn speaks(languages: &[Arc<str>], asked: &str) -> bool {
    languages.iter().any(|one| {
        let rest = one
            .get(asked.len()..)
            .filter(|_| one.get(..asked.len()).is_some_and(|head| head.eq_ignore_ascii_case(asked)));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn certified(policy: &Policy, doc: &Value, verdict: &mut Verdict) {
    if policy.certifications.is_empty() {
        return;
    }
    let found = first(doc, &["certification", "certifications"], certifications);
    for asked in &policy.certifications {
        verdict.compare("certification", found.as_ref(), |found| {
            let holds = found.iter().any(|one| one.eq_ignore_ascii_case(asked));
            (holds, format!("{} certified {asked}", if holds { "is" } else { "is not" }))
        });
    }
}

/// Parses certifications: one name, several, or objects that have one.
fn certifications(value: &Value) -> Option<Vec<String>> {
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
fn quality(value: &Value) -> Option<f64> {
    match scored(value).as_f64()? {
        number if (0.0..=1.0).contains(&number) => Some(number),
        number if (1.0..=100.0).contains(&number) => Some(number / 100.0),
        _ => None,
    }
}

/// Returns the value of `{"score": 0.9, …}`, which is equivalent to `0.9`.
fn scored(value: &Value) -> &Value {
    value.get("score").or_else(|| value.get("value")).unwrap_or(value)
}

/// Returns the first member that can be parsed.
fn first<T>(doc: &Value, names: &[&str], read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    names.iter().find_map(|name| read(doc.get(name)?))
}

fn millis(millis: f64) -> String {
    match millis.is_finite() {
        true => format!("{millis:.0}ms"),
        false => "any".to_owned(),
    }
}
