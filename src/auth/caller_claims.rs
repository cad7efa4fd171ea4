//! The claims of a token that agents are told. Only those that the configuration names are kept, within a bound, because
//! the cache of verified tokens keeps them as long as the token.

use crate::values::is_deceptive;
use serde_json::Value;
use std::sync::Arc;

/// Maximum size of all claims of one token that are kept, in bytes of JSON.
const MAX_CLAIMS_SIZE: usize = 8 << 10;

/// A claim, as agents can be told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerClaim {
    /// A text, a number, a truth value, or a list of them.
    Value(Value),
    /// Why agents cannot be told the claim. Calls that should tell it are refused.
    Unusable(&'static str),
}

/// The claims of one token, by the paths under which the configuration names them. A claim that the token does not have,
/// or that is null, is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerClaims(Arc<[(Arc<str>, CallerClaim)]>);

impl CallerClaims {
    /// Takes the claims at `paths` from a verified token, in which `find` finds the claim at a path.
    pub(super) fn select<'v>(paths: &[Arc<str>], find: impl Fn(&str) -> Option<&'v Value>) -> Self {
        let mut size = 0_usize;
        let selected = paths.iter().filter_map(|path| {
            let value = find(path)?;
            if let Err(why) = check_value(value) {
                return Some((Arc::clone(path), CallerClaim::Unusable(why)));
            }
            size = size.saturating_add(value.to_string().len());
            let claim = if size > MAX_CLAIMS_SIZE {
                CallerClaim::Unusable("it is too long (all claims together have at most 8 KiB)")
            } else {
                CallerClaim::Value(value.clone())
            };
            Some((Arc::clone(path), claim))
        });
        let selected: Vec<_> = selected.collect();
        if selected.is_empty() { Self::default() } else { Self(selected.into()) }
    }

    /// Returns the claim that the configuration names `path`.
    pub fn get(&self, path: &str) -> Option<&CallerClaim> {
        self.0.iter().find(|(name, _)| **name == *path).map(|(_, claim)| claim)
    }
}

fn check_value(value: &Value) -> Result<(), &'static str> {
    match value {
        Value::Array(items) => items.iter().try_for_each(check_item),
        value => check_item(value),
    }
}

fn check_item(value: &Value) -> Result<(), &'static str> {
    match value {
        Value::String(text) if text.chars().any(|c| c.is_control() || is_deceptive(c)) => {
            Err("it has control characters")
        }
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err("it is neither a text, a number, a truth value nor a list of them")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn select(claims: Value, paths: &[&str]) -> CallerClaims {
        let paths: Vec<Arc<str>> = paths.iter().map(|path| Arc::from(*path)).collect();
        CallerClaims::select(&paths, |path| {
            let claim = if path.starts_with('/') { claims.pointer(path) } else { claims.get(path) };
            claim.filter(|value| !value.is_null())
        })
    }

    #[test]
    fn only_named_claims_are_kept() {
        let claims =
            json!({"tenant": "acme", "secret": "s", "n": null, "realm_access": {"roles": ["a", "b"]}, "age": 7});
        let kept = select(claims, &["tenant", "/realm_access/roles", "n", "missing", "age"]);
        let value = |path: &str| match kept.get(path) {
            Some(CallerClaim::Value(value)) => value.clone(),
            _ => Value::Null,
        };
        assert_eq!(value("tenant"), "acme");
        assert_eq!(value("/realm_access/roles"), json!(["a", "b"]));
        assert_eq!(value("age"), 7);
        assert!(["n", "missing", "secret"].iter().all(|path| kept.get(path).is_none()));
        assert_eq!(select(json!({}), &["tenant"]), CallerClaims::default());
    }

    #[test]
    fn a_claim_that_no_field_can_hold_is_unusable_and_not_missing() {
        let long = "x".repeat(8 << 10);
        let unusable = [
            json!("a\r\nX-Admin: true"),
            json!("\u{202e}a"),
            json!({"a": 1}),
            json!([["a"]]),
            json!(["a", "b\0"]),
            json!(long),
        ];
        for value in unusable {
            let kept = select(json!({"claim": value}), &["claim"]);
            assert!(matches!(kept.get("claim"), Some(CallerClaim::Unusable(_))), "{kept:?}");
        }
    }

    #[test]
    fn the_claims_of_a_token_have_a_bound_together() {
        let half = "x".repeat(5 << 10);
        let kept = select(json!({"a": half, "b": half, "c": "short"}), &["a", "b", "c"]);
        assert!(matches!(kept.get("a"), Some(CallerClaim::Value(_))));
        assert!(matches!(kept.get("b"), Some(CallerClaim::Unusable(_))));
    }
}
