//! Claims of a JWT or an introspection response: lifetime, audience, certificate binding, and the mapping to a
//! caller.

use crate::auth::{
    access::Access,
    caller::{Bad, Caller, CallerKind, is_name},
    config,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;
use std::sync::Arc;

/// Last second of the year 9999; later times are invalid.
const LAST: i64 = 253_402_300_799;

/// Maximum number of groups or scopes in one token.
const MOST: usize = 512;

/// Claims of one token; always an object.
#[derive(Debug)]
pub(super) struct Claims(pub(super) Value);

impl Claims {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Returns a claim by name or JSON Pointer.
    fn find(&self, place: &str) -> Option<&Value> {
        let found = if place.starts_with('/') { self.0.pointer(place) } else { self.get(place) };
        found.filter(|value| !value.is_null())
    }

    /// Parses a `NumericDate` (RFC 7519 §2), which may have a fraction.
    fn moment(&self, name: &str) -> Result<Option<i64>, Bad> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let seconds =
            value.as_i64().or_else(|| value.as_f64().filter(|at| (0.0..LAST as f64).contains(at)).map(|at| at as i64));
        match seconds.filter(|at| (0..=LAST).contains(at)) {
            Some(at) => Ok(Some(at)),
            None => Err(Bad::new("a time in the token is malformed").detail(name)),
        }
    }

    /// Checks `exp`, `nbf` and `iat`; returns the first second at which the token has expired, if it has an `exp`.
    pub(super) fn lifetime(&self, now: i64, leeway: i64) -> Result<Option<i64>, Bad> {
        let until = self.moment("exp")?.map(|at| at.saturating_add(leeway));
        if until.is_some_and(|until| until <= now) {
            return Err(Bad::new("the token has expired"));
        }
        for name in ["nbf", "iat"] {
            if self.moment(name)?.is_some_and(|at| at > now.saturating_add(leeway)) {
                return Err(Bad::new("the token is not valid yet").detail(name));
            }
        }
        Ok(until)
    }

    /// Checks that `aud` contains one of `ours` (RFC 7519 §4.1.3).
    pub(super) fn meant_for(&self, ours: &[String]) -> Result<(), Bad> {
        let names = |value: &Value| value.as_str().is_some_and(|name| ours.iter().any(|our| our == name));
        let meant = match self.get("aud") {
            Some(Value::Array(all)) => all.iter().any(names),
            Some(one) => names(one),
            None => false,
        };
        if meant { Ok(()) } else { Err(Bad::new("the token is meant for another audience")) }
    }

    /// Returns the fingerprint in `cnf` (RFC 8705 §3.1). Other bindings (RFC 7800) cannot be checked, so such a token
    /// is never valid.
    pub(super) fn bound(&self) -> Result<Option<[u8; 32]>, Bad> {
        let Some(confirmation) = self.get("cnf") else {
            return Ok(None);
        };
        let members = confirmation.as_object().filter(|members| members.len() == 1);
        let print = members.and_then(|members| members.get("x5t#S256")).and_then(Value::as_str);
        let print = print.and_then(|print| URL_SAFE_NO_PAD.decode(print).ok()?.try_into().ok());
        print.map(Some).ok_or_else(|| Bad::new("the token has a binding that cannot be checked here"))
    }
}

/// Maps claims to callers.
#[derive(Debug)]
pub(super) struct CallerReader {
    label: Option<String>,
    places: config::Claims,
    access: Arc<Access>,
}

impl CallerReader {
    pub(super) fn build(
        label: Option<&str>,
        places: &config::Claims,
        access: &Arc<Access>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let word = |label: &str| {
            !label.is_empty()
                && label.len() <= 64
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        if label.is_some_and(|label| !word(label)) {
            problems.push("label: is not valid (1 to 64 of A-Z a-z 0-9 . _ -)".to_owned());
        }
        if places.caller.is_empty() {
            problems.push("claims.caller: is empty (client_id, azp and sub are usual)".to_owned());
        }
        if problems.is_empty() {
            return Ok(Self { label: label.map(str::to_owned), places: places.clone(), access: Arc::clone(access) });
        }
        Err(problems)
    }

    pub(super) fn read(&self, claims: &Claims) -> Result<Arc<Caller>, Bad> {
        let name = self.places.caller.iter().find_map(|place| claims.find(place));
        let name = name
            .and_then(Value::as_str)
            .filter(|name| is_name(name))
            .ok_or_else(|| Bad::new("the token has no caller name"))?;
        let id: Arc<str> = match &self.label {
            Some(label) => format!("oauth:{label}/{name}").into(),
            None => format!("oauth:{name}").into(),
        };
        let groups = claims.find(&self.places.groups).map(|value| words(value, false)).transpose()?.unwrap_or_default();
        let mut scopes = Vec::new();
        for place in ["scope", "scp"] {
            scopes.extend(claims.find(place).map(|value| words(value, true)).transpose()?.unwrap_or_default());
        }
        let tier = self.places.tier.as_deref().and_then(|place| claims.find(place)).and_then(Value::as_str);
        Ok(Arc::new(Caller {
            grants: self.access.for_caller(&id, &groups),
            id,
            kind: CallerKind::Bearer,
            groups: groups.into(),
            scopes: scopes.into(),
            tier: tier.filter(|tier| is_name(tier)).map(Into::into),
        }))
    }
}

/// Returns the strings of a list, or of one string; scopes are separated by spaces (RFC 8693 §4.2).
fn words(value: &Value, spaced: bool) -> Result<Vec<Arc<str>>, Bad> {
    let words: Option<Vec<&str>> = match value {
        Value::String(text) if spaced => Some(text.split(' ').filter(|word| !word.is_empty()).collect()),
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let words = words.filter(|words| words.len() <= MOST && words.iter().all(|word| is_name(word)));
    Ok(words
        .ok_or_else(|| Bad::new("the token's groups or scopes are malformed"))?
        .into_iter()
        .map(Into::into)
        .collect())
}
