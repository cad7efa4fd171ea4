//! The query of a `POST`: the agent receives it, without the parameters that the gateway reads itself. A query that only
//! repeats the body is dropped, because the reference client of `agent://` sends the input in both.

use super::{admission::CheckedCall, call_parameters::is_gateway_parameter, route_rule::QueryPolicy};
use crate::{
    fault::{Fault, FaultCode, Result},
    values::form_pairs,
};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, collections::BTreeMap};

/// The most bytes of the body that are compared with parameters: each one is compared with a whole member.
const MAX_COMPARED: usize = 1 << 20;

/// What becomes of the query of a call.
pub(super) struct AgentQuery {
    /// Whether the query is the input, of a `GET`.
    pub(super) is_input: bool,
    /// The query that the agent receives beside its input.
    pub(super) forwarded: Option<String>,
}

impl AgentQuery {
    /// Decides what becomes of the query of a `POST`.
    ///
    /// # Errors
    /// `InvalidInput` if the agent takes no query.
    pub(super) fn beside_body(query: Option<&str>, checked: &CheckedCall) -> Result<Self> {
        Ok(Self { is_input: false, forwarded: query_for_agent(query, checked)?.map(Cow::into_owned) })
    }

    /// Returns what becomes of the query of a `GET`.
    pub(super) const fn as_input() -> Self {
        Self { is_input: true, forwarded: None }
    }
}

/// Returns the part of the query that the agent receives.
fn query_for_agent<'q>(query: Option<&'q str>, checked: &CheckedCall) -> Result<Option<Cow<'q, str>>> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let (route, declares_version) = (checked.route(), checked.declares_version());
    let is_for_gateway = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        is_gateway_parameter(name, route) && !(declares_version && name == "version")
    };
    let query = if query.split('&').any(|pair| is_for_gateway(&pair)) {
        let rest: Vec<&str> = query.split('&').filter(|pair| !is_for_gateway(pair)).collect();
        Cow::Owned(rest.join("&"))
    } else {
        Cow::Borrowed(query)
    };
    if query.is_empty() || checked.input.complete_bytes().is_some_and(|input| repeats_body(&query, input)) {
        return Ok(None);
    }
    match route.query_policy {
        QueryPolicy::Forward => Ok(Some(query)),
        QueryPolicy::Refuse => {
            let message = "This agent takes no query (put the parameters into the body)";
            Err(Fault::new(FaultCode::InvalidInput, message).with_setting("agents.rules[].query"))
        }
    }
}

/// Returns whether every parameter is a member of the body with the same value. A query that would take long to compare
/// does not count as a repetition.
fn repeats_body(query: &str, input: &[u8]) -> bool {
    let Ok(members) = serde_json::from_slice::<BTreeMap<String, &RawValue>>(input) else { return false };
    let mut compared = 0;
    form_pairs(query).all(|pair| {
        let Some((name, value)) = pair else { return false };
        let Some(member) = members.get(&name) else { return false };
        compared += member.get().len();
        compared <= MAX_COMPARED
            && serde_json::from_str(member.get()).is_ok_and(|member: Value| repeats_value(&value, &member))
    })
}

fn repeats_value(text: &str, member: &Value) -> bool {
    let is_equal = |member: &Value| match member {
        Value::String(member) => member == text,
        Value::Array(_) | Value::Object(_) => false,
        scalar => {
            let written = scalar.to_string();
            written == text
        }
    };
    match member {
        Value::Array(items) if items.iter().any(is_equal) => true,
        Value::Array(_) | Value::Object(_) => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *member),
        scalar => is_equal(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_repeats_a_body_if_each_parameter_is_a_member_with_its_value() {
        let body = br#"{"text":"a b","n":1,"on":true,"none":null,"tags":["x","y"],"deep":{"a":1}}"#;
        for query in
            ["text=a+b", "text=a%20b&n=1", "on=true&none=null", "tags=x&tags=y", "tags=[\"x\",\"y\"]", "deep={\"a\":1}"]
        {
            assert!(repeats_body(query, body), "{query}");
        }
        for query in ["text=a", "text=a+b&other=1", "n=2", "n=01", "tags=z", "deep={\"a\":2}", "text=%zz", "text"] {
            assert!(!repeats_body(query, body), "{query}");
        }
        for body in ["", "[]", "x", "{"] {
            assert!(!repeats_body("text=a", body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn r127_many_parameters_and_a_long_array_are_not_compared_with_each_other() {
        let body = format!(r#"{{"":[{}""]}}"#, "0,".repeat(500_000));
        let started_at = std::time::Instant::now();
        assert!(!repeats_body(&"=&".repeat(16_000), body.as_bytes()));
        assert!(started_at.elapsed() < std::time::Duration::from_secs(2), "{:?}", started_at.elapsed());
    }
}
