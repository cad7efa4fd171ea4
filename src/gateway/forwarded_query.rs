//! The query of a `POST`: the agent receives it, without the parameters that the gateway reads itself. A query that only
//! repeats the body is dropped, because the reference client of `agent://` sends the input in both.

use super::{
    call_parameters::names_session_or_task,
    prefer,
    route::{QueryPolicy, Route},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    values::form_decode,
};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Returns the part of the query that the agent receives. `input` is the body, if it was buffered.
///
/// # Errors
/// `InvalidInput` if the agent takes no query.
pub(super) fn query_for_agent<'q>(
    query: Option<&'q str>,
    route: &Route,
    input: Option<&[u8]>,
) -> Result<Option<Cow<'q, str>>> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let is_for_gateway = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        names_session_or_task(name)
            || name == prefer::CALLBACK_PARAMETER
            || (name == "version" && !route.agent.versions.is_empty())
    };
    let query = if query.split('&').any(|pair| is_for_gateway(&pair)) {
        let rest: Vec<&str> = query.split('&').filter(|pair| !is_for_gateway(pair)).collect();
        Cow::Owned(rest.join("&"))
    } else {
        Cow::Borrowed(query)
    };
    if query.is_empty() || input.is_some_and(|input| repeats_body(&query, input)) {
        return Ok(None);
    }
    match route.query_policy {
        QueryPolicy::Forward => Ok(Some(query)),
        QueryPolicy::Refuse => {
            Err(Fault::new(FaultCode::InvalidInput, "This agent takes no query (put the parameters into the body)"))
        }
    }
}

/// Returns whether every parameter is a member of the body with the same value.
fn repeats_body(query: &str, input: &[u8]) -> bool {
    let Ok(members) = serde_json::from_slice::<Map<String, Value>>(input) else { return false };
    query.split('&').filter(|pair| !pair.is_empty()).all(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (form_decode(name), form_decode(value)) else { return false };
        members.get(&name).is_some_and(|member| repeats_value(&value, member))
    })
}

fn repeats_value(text: &str, member: &Value) -> bool {
    match member {
        Value::String(member) => member == text,
        Value::Array(items) if items.iter().any(|item| !item.is_array() && repeats_value(text, item)) => true,
        Value::Array(_) | Value::Object(_) => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *member),
        scalar => serde_json::to_string(scalar).is_ok_and(|scalar| scalar == text),
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
}
