//! Step 8: the input. Selects the operation, validates the input against its schema, and splits batches. The agent
//! receives the original bytes, never a re-serialisation.

use super::{
    Gateway, accept,
    asks::OPERATION,
    body::Incoming,
    route::{Prepared, Route},
};
use crate::{
    contract::{self, Bounds},
    fault::{Code, Fault, Result, Violation},
};
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, value::RawValue};
use std::sync::OnceLock;

/// The input, validated as far as the contract requires.
#[derive(Debug)]
pub(super) enum Input {
    /// One input, buffered.
    Whole(Bytes),
    /// Several inputs, each with its own validation result, in order (R44).
    Batch(Vec<(Bytes, Result<()>)>),
    /// An input that is not validated: the bytes read so far, followed by the rest of the body as a stream.
    Stream(Bytes),
}

/// Returns the operation that the path or the headers name, or the only one.
pub(super) fn named(route: &Route, path: Option<&str>, headers: &HeaderMap) -> Result<Option<usize>> {
    let header = headers.get(OPERATION).map(|name| name.to_str().unwrap_or("?"));
    let Some(name) = path.or(header) else {
        return Ok(route.only().map(|_| 0));
    };
    route.named(name).map(Some).ok_or_else(|| unknown(route, name))
}

fn unknown(route: &Route, name: &str) -> Fault {
    let name: String = name.chars().take(60).collect();
    match route.names() {
        names if names.is_empty() => {
            Fault::new(Code::CapabilityNotFound, "This agent has one operation, which has no name")
        }
        names => {
            Fault::new(Code::CapabilityNotFound, format!("This agent has no operation '{name}' (it has: {names})"))
        }
    }
}

/// Reads and validates the input of one call.
pub(super) struct Reading<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) route: &'a Route,
    pub(super) rules: &'a contract::Config,
    pub(super) named: Option<usize>,
    /// Receives the buffered input if it may be JSON-RPC: a fault is then written as a JSON-RPC error with the
    /// request's id.
    pub(super) read: &'a OnceLock<Bytes>,
}

impl Reading<'_> {
    /// Reads and validates the body; returns the operation and the input.
    pub(super) async fn body(&self, incoming: &mut Incoming<'_>) -> Result<(usize, Input)> {
        let prepared = self.named.and_then(|at| self.route.operations.get(at));
        let unchecked = prepared.is_some_and(|operation| operation.contract.input.is_none());
        if !unchecked {
            accept::json_body(incoming.headers())?;
        } else if incoming.is_empty() || !is_json_list_possible(incoming.headers(), self.route) {
            return Ok((self.named.unwrap_or_default(), Input::Stream(Bytes::new())));
        } else {
            let first = incoming.first().await?;
            if first_byte(&first) != Some(b'[') {
                // A buffered body can be retried where that is safe.
                let whole = incoming.length() == Some(first.len() as u64) && !first.is_empty();
                if whole {
                    let _ = self.read.set(first.clone());
                }
                let input = if whole { Input::Whole(first) } else { Input::Stream(first) };
                return Ok((self.named.unwrap_or_default(), input));
            }
            incoming.put_back(first);
        }
        let bytes = incoming.whole(self.rules.max_body.get()).await?;
        self.bytes(bytes)
    }

    /// Validates a buffered input.
    pub(super) fn bytes(&self, bytes: Bytes) -> Result<(usize, Input)> {
        if bytes.is_empty() {
            return Err(Fault::new(Code::InvalidInput, "The request has no body (send a JSON object)"));
        }
        // Most calls are not JSON-RPC; their input need not be held until the call ends.
        let keep = || drop(self.read.set(bytes.clone()));
        let parsed = contract::parse(&bytes, &Bounds { depth: self.rules.max_depth });
        let value = parsed.inspect_err(|_| keep())?;
        if value.get("jsonrpc").is_some() {
            keep();
        }
        let takes_list =
            |at: usize| self.route.operations.get(at).is_some_and(|operation| operation.contract.takes_array());
        match value {
            Value::Array(items) if self.route.agent.batch => Ok((self.list(items)?, Input::Whole(bytes))),
            Value::Array(items) if !self.named.is_some_and(takes_list) => self.batch(&bytes, items),
            value => {
                let at = self.select(&value)?;
                self.check(at, value)?;
                Ok((at, Input::Whole(bytes)))
            }
        }
    }

    /// Validates an array for an agent that accepts batches itself; returns the operation of the items.
    fn list(&self, items: Vec<Value>) -> Result<usize> {
        self.count(items.len())?;
        let mut operation = None;
        for (index, item) in items.into_iter().enumerate() {
            let at = self.select(&item)?;
            if *operation.get_or_insert(at) != at {
                return Err(mixed());
            }
            self.check(at, item).map_err(|fault| inside(fault, index))?;
        }
        Ok(operation.or(self.named).unwrap_or_default())
    }

    fn count(&self, items: usize) -> Result<()> {
        let most = usize::from(self.rules.batch.max_items);
        match items <= most {
            true => Ok(()),
            false => Err(Fault::new(Code::InvalidInput, format!("The batch has {items} items (at most {most})"))),
        }
    }

    /// Splits an array into its items, byte for byte, and validates each (R44).
    fn batch(&self, bytes: &Bytes, items: Vec<Value>) -> Result<(usize, Input)> {
        self.count(items.len())?;
        let raw: Vec<&RawValue> = serde_json::from_slice(bytes)
            .map_err(|why| Fault::new(Code::Internal, "The batch could not be split").detail(why))?;
        let mut operation = None;
        let mut batch = Vec::with_capacity(items.len());
        for (raw, item) in raw.into_iter().zip(items) {
            let at = self.select(&item)?;
            if *operation.get_or_insert(at) != at {
                return Err(mixed());
            }
            batch.push((bytes.slice_ref(raw.get().as_bytes()), self.check(at, item)));
        }
        Ok((operation.or(self.named).unwrap_or_default(), Input::Batch(batch)))
    }

    /// Selects the operation: named by the path or a header, else by the body's member `operation` (R30).
    fn select(&self, value: &Value) -> Result<usize> {
        let body = value.get("operation").and_then(Value::as_str);
        match (self.named, body) {
            (Some(at), Some(name)) => {
                let only = self.route.only().filter(|only| !only.declares_operation && !only.name.is_empty());
                match only {
                    Some(_) if self.route.named(name).is_none() => Err(unknown(self.route, name)),
                    _ => Ok(at),
                }
            }
            (Some(at), None) => Ok(at),
            (None, Some(name)) => self.route.named(name).ok_or_else(|| unknown(self.route, name)),
            (None, None) => self.route.agent.default_operation.ok_or_else(|| {
                Fault::new(
                    Code::InvalidInput,
                    format!(
                        "The agent has several operations: name one in the path, in X-Operation or in the body's 'operation' ({})",
                        self.route.names()
                    ),
                )
            }),
        }
    }

    fn check(&self, at: usize, mut value: Value) -> Result<()> {
        let Some(operation) = self.route.operations.get(at) else { return Ok(()) };
        if let Value::Object(members) = &mut value
            && only_selects(operation, members.get("operation"))
        {
            members.remove("operation");
        }
        let broken = operation.contract.admit_input(&value)?;
        self.gateway.reported(&self.route.agent, "input", &broken);
        Ok(())
    }
}

/// Returns whether the member `operation` only selects the operation, and so is not validated.
fn only_selects(operation: &Prepared, member: Option<&Value>) -> bool {
    !operation.name.is_empty() && !operation.declares_operation && member.is_some_and(Value::is_string)
}

/// Returns whether a body without a schema may be a batch that this agent does not accept itself.
fn is_json_list_possible(headers: &HeaderMap, route: &Route) -> bool {
    !route.agent.batch && super::route::looks_like_json(headers.get(http::header::CONTENT_TYPE))
}

fn first_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

fn mixed() -> Fault {
    Fault::new(Code::InvalidInput, "All items of a batch must be for the same operation")
}

/// Makes the pointers of an item's violations relative to the whole array.
fn inside(fault: Fault, index: usize) -> Fault {
    let within = |violation: &Violation| Violation {
        pointer: format!("/{index}{}", violation.pointer),
        message: violation.message.clone(),
    };
    let violations = fault.broken().iter().map(within).collect();
    Fault::new(fault.code(), format!("Item {index}: {}", fault.message())).violations(violations)
}
