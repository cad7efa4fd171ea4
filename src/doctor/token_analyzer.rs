//! A caller's token that is refused: what it says of itself beside what the configuration expects. Audiences, issuers,
//! key ids and algorithms are no secrets; the token itself appears nowhere.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    auth::IssuerConfig,
    fault::Fault,
    telemetry::redact,
    values::{Secret, json::truncate},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// Maximum length of what a token says, in characters.
const MAX_CLAIM_LENGTH: usize = 120;

/// Maximum number of names of a list that are shown.
const MAX_NAMES: usize = 10;

/// Returns the finding about a token that is refused for `fault`.
pub fn refused_token_finding(examined: ExaminedConfig<'_>, token: &Secret, fault: &Fault) -> Finding {
    let issuers = examined.config().auth.bearer.iter().flat_map(|bearer| &bearer.issuers);
    let issuers: Vec<&IssuerConfig> = issuers.collect();
    let stated = StatedClaims::of_token(token);
    let at = issuers.iter().position(|issuer| Some(issuer.issuer.as_str()) == stated.issuer.as_deref());
    let issuer = at.and_then(|at| issuers.get(at));
    let reason = fault.log_message();
    let section = match (at, issuers.is_empty()) {
        (Some(at), _) => format!("auth.bearer.issuers[{at}]"),
        (None, false) => "auth.bearer.issuers[0]".to_owned(),
        (None, true) => "auth".to_owned(),
    };
    let (setting, comparison) = if reason.contains("audience") {
        let expected = issuer.map(|issuer| shown_list(issuer.audience.iter().map(String::as_str)));
        (".audience", compare("aud", &stated.audience, "audience", expected))
    } else if reason.contains("issuer") {
        let expected = shown_list(issuers.iter().map(|issuer| issuer.issuer.as_str()));
        (".issuer", compare("iss", &stated.issuer, "issuer", Some(expected)))
    } else if reason.contains("algorithm") {
        let expected = issuer.map(|issuer| format!("{:?}", issuer.algorithms));
        (".algorithms", compare("alg", &stated.algorithm, "algorithms", expected))
    } else if reason.contains("type") {
        let expected = issuer.map(|issuer| shown_list(issuer.token_types.iter().map(String::as_str)));
        (".token_types", compare("typ", &stated.token_type, "token_types", expected))
    } else if reason.contains("caller name") {
        (".claims.caller", String::new())
    } else {
        (".issuer", String::new())
    };
    let path = if section == "auth" { section } else { format!("{section}{setting}") };
    let detail = fault.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
    let problem = format!("{reason}{detail}{comparison}");
    let finding = examined.finding(FindingCode::TokenRefused, SubjectKind::Issuer, &path, &redact(&problem));
    Finding { name: "--token".to_owned(), ..finding }
}

/// Returns what a claim says, and what the setting expects.
fn compare(claim: &str, stated: &Option<String>, setting: &str, expected: Option<String>) -> String {
    let stated = match stated {
        Some(stated) => format!("{claim} is {stated}"),
        None => format!("it has no {claim}"),
    };
    let expected = expected.map(|expected| format!(", and {setting} expects {expected}")).unwrap_or_default();
    format!(": {stated}{expected}")
}

/// What a token says of itself, without a check of its signature. Bounded, for operators.
#[derive(Debug, Default)]
struct StatedClaims {
    issuer: Option<String>,
    audience: Option<String>,
    algorithm: Option<String>,
    token_type: Option<String>,
}

impl StatedClaims {
    fn of_token(token: &Secret) -> Self {
        let mut parts = token.expose().split('.').map(|part| {
            let bytes = URL_SAFE_NO_PAD.decode(part).unwrap_or_default();
            serde_json::from_slice::<Value>(&bytes).unwrap_or_default()
        });
        let (header, claims) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let text = |object: &Value, name: &str| match object.get(name)? {
            Value::String(text) => Some(truncate(text, MAX_CLAIM_LENGTH)),
            Value::Array(items) => Some(shown_list(items.iter().filter_map(Value::as_str))),
            _ => None,
        };
        Self {
            issuer: text(&claims, "iss"),
            audience: text(&claims, "aud"),
            algorithm: text(&header, "alg"),
            token_type: text(&header, "typ"),
        }
    }
}

fn shown_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let shown: Vec<String> = names.take(MAX_NAMES).map(|name| truncate(name, MAX_CLAIM_LENGTH)).collect();
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_token_says_is_read_without_its_signature_and_is_bounded() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = |header: &str, claims: &str| Secret::new(format!("{}.{}.x", part(header), part(claims)));
        let stated = StatedClaims::of_token(&token(r#"{"alg":"RS256"}"#, r#"{"iss":"https://a","aud":["b","c",7]}"#));
        assert_eq!(stated.audience.as_deref(), Some("b, c"));
        assert_eq!((stated.issuer.as_deref(), stated.algorithm.as_deref()), (Some("https://a"), Some("RS256")));
        let long = format!(r#"{{"aud":"{}"}}"#, "x".repeat(5_000));
        let stated = StatedClaims::of_token(&token("{}", &long));
        assert!(stated.audience.is_some_and(|audience| audience.chars().count() <= MAX_CLAIM_LENGTH + 1));
        for broken in ["", "..", "a.b.c", "opaque"] {
            assert!(StatedClaims::of_token(&Secret::new(broken)).issuer.is_none(), "{broken}");
        }
    }
}
