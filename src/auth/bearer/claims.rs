//! Claims of a JWT or an introspection response: lifetime, audience, certificate binding, and lists of names.

use crate::{
    auth::{authenticator::InvalidCredential, caller::is_valid_name, revocation::TokenNames},
    values::ConfigDuration,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

/// Last second of the year 9999; later times are invalid.
const MAX_TIMESTAMP: i64 = 253_402_300_799;

/// Maximum number of groups or scopes in one token.
const MAX_LIST_ITEMS: usize = 512;

/// Claims of one token; always an object.
#[derive(Debug)]
pub(super) struct TokenClaims(pub(super) Value);

impl TokenClaims {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Returns the claim at `path`, a name or a JSON Pointer. A null counts as missing.
    pub(super) fn find_claim(&self, path: &str) -> Option<&Value> {
        let claim = if path.starts_with('/') { self.0.pointer(path) } else { self.get(path) };
        claim.filter(|value| !value.is_null())
    }

    /// Parses a `NumericDate` (RFC 7519 §2), which may have a fraction.
    fn numeric_date(&self, name: &str) -> Result<Option<i64>, InvalidCredential> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let seconds = value
            .as_i64()
            .or_else(|| value.as_f64().filter(|at| (0.0..MAX_TIMESTAMP as f64).contains(at)).map(|at| at as i64));
        match seconds.filter(|at| (0..=MAX_TIMESTAMP).contains(at)) {
            Some(at) => Ok(Some(at)),
            None => Err(InvalidCredential::new("a time in the token is malformed").with_detail(name)),
        }
    }

    /// Checks `exp`, `nbf` and `iat`; returns the first second at which the token has expired, if it has an `exp`.
    pub(super) fn check_lifetime(&self, now: i64, leeway: i64) -> Result<Option<i64>, InvalidCredential> {
        let until = self.numeric_date("exp")?.map(|at| at.saturating_add(leeway));
        if until.is_some_and(|until| until <= now) {
            return Err(InvalidCredential::new("the token has expired"));
        }
        for name in ["nbf", "iat"] {
            if self.numeric_date(name)?.is_some_and(|at| at > now.saturating_add(leeway)) {
                return Err(InvalidCredential::new("the token is not valid yet").with_detail(name));
            }
        }
        Ok(until)
    }

    /// Returns the names under which the token may be revoked. `issuer` is that of a token that names none.
    pub(super) fn names<'a>(&'a self, issuer: &'a str) -> TokenNames<'a> {
        TokenNames {
            issuer: self.text("iss").unwrap_or(issuer),
            id: self.text("jti"),
            subject: self.text("sub"),
            issued_at: self.numeric_date("iat").ok().flatten(),
        }
    }

    /// Checks that `aud` contains one of the `accepted` audiences (RFC 7519 §4.1.3).
    pub(super) fn check_audience(&self, accepted: &[String]) -> Result<(), InvalidCredential> {
        let is_accepted = |value: &Value| value.as_str().is_some_and(|name| accepted.iter().any(|each| each == name));
        let is_meant = match self.get("aud") {
            Some(Value::Array(audiences)) => audiences.iter().any(is_accepted),
            Some(audience) => is_accepted(audience),
            None => false,
        };
        if is_meant { Ok(()) } else { Err(InvalidCredential::new("the token is meant for another audience")) }
    }

    /// Returns the fingerprint in `cnf` (RFC 8705 §3.1). A token with another binding (RFC 7800) is never valid,
    /// because the gateway cannot check the binding.
    pub(super) fn bound_certificate(&self) -> Result<Option<[u8; 32]>, InvalidCredential> {
        let Some(confirmation) = self.get("cnf") else {
            return Ok(None);
        };
        let members = confirmation.as_object().filter(|members| members.len() == 1);
        let fingerprint = members.and_then(|members| members.get("x5t#S256")).and_then(Value::as_str);
        let decoded = fingerprint.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok());
        decoded.map(Some).ok_or_else(|| InvalidCredential::new("the token has a binding that cannot be checked here"))
    }
}

/// Returns the strings of an array, or the one string. With `split_spaces`, one string is a list that is separated by
/// spaces, as for scopes (RFC 8693 §4.2).
pub(super) fn string_list(value: &Value, split_spaces: bool) -> Result<Vec<&str>, InvalidCredential> {
    let strings: Option<Vec<&str>> = match value {
        Value::String(text) if split_spaces => Some(text.split(' ').filter(|string| !string.is_empty()).collect()),
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let strings =
        strings.filter(|strings| strings.len() <= MAX_LIST_ITEMS && strings.iter().all(|string| is_valid_name(string)));
    strings.ok_or_else(|| InvalidCredential::new("the token's groups or scopes are malformed"))
}

pub(super) fn as_seconds(duration: ConfigDuration) -> i64 {
    duration.get().as_secs().try_into().unwrap_or(i64::MAX)
}
