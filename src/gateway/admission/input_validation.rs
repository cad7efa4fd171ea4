//! Step 8: the input. Selects the operation, validates the input against its schema, and splits batches. The agent
//! receives the original bytes, never a re-serialisation.

use super::{
    body_bound::{BodyBound, check_size_without_texts},
    incoming_body::{BodyAccount, IncomingBody},
};
use crate::{
    contract::{self, CheckWork, HeavyCheckRequest, JsonBounds},
    fault::{Fault, FaultCode, FaultRule, Result, Violation},
    gateway::{
        content_negotiation,
        gateway_state::Gateway,
        header_names,
        route::{CompiledOperation, Route, is_json_content},
    },
    mqtt_bridge::merge_instruction,
    telemetry::ShadowRule,
    values::ClientKey,
};
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, value::RawValue};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The input, validated as far as the contract requires.
#[derive(Debug)]
pub(in crate::gateway) enum CallInput {
    /// One input, buffered.
    Complete(Bytes),
    /// Several inputs, each with its own validation result, in order (R44).
    Batch(Vec<(Bytes, Result<()>)>),
    /// An input that is not validated: the bytes read so far, followed by the rest of the body as a stream.
    Streamed(Bytes),
}

impl CallInput {
    /// Returns the input, if it is one that was buffered.
    pub(in crate::gateway) fn complete_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Complete(bytes) => Some(bytes),
            Self::Batch(_) | Self::Streamed(_) => None,
        }
    }
}

/// Returns the operation that the path or the headers name, or the only one; it can be called.
pub(in crate::gateway) fn named_operation(
    route: &Route,
    path: Option<&str>,
    headers: &HeaderMap,
) -> Result<Option<usize>> {
    let header = headers.get(header_names::OPERATION).map(|name| name.to_str().unwrap_or("?"));
    let Some(name) = path.or(header) else {
        return route.only_operation().map(|_| route.callable_operation(0)).transpose();
    };
    route.operation_index(name).map(Some).ok_or_else(|| unknown_operation(route, name))
}

fn unknown_operation(route: &Route, name: &str) -> Fault {
    let named = route.agent.operation(name);
    if let Some(Err(fault)) = named.map(|(index, _)| route.callable_operation(index)) {
        return fault;
    }
    let name: String = name.chars().take(60).collect();
    match route.operation_names() {
        names if names.is_empty() => {
            Fault::new(FaultCode::CapabilityNotFound, "This agent has one operation, which has no name")
        }
        names => {
            Fault::new(FaultCode::CapabilityNotFound, format!("This agent has no operation '{name}' (it has: {names})"))
        }
    }
}

/// Reads and validates the input of one call.
pub(in crate::gateway) struct InputReader<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) route: &'a Route,
    pub(in crate::gateway) contract_config: &'a contract::ContractConfig,
    /// The bound of a body that passes unvalidated.
    pub(in crate::gateway) streamed_bound: BodyBound,
    /// The client whose share of the memory for bodies the body uses.
    pub(in crate::gateway) client: ClientKey,
    pub(in crate::gateway) named_operation: Option<usize>,
    /// When the call must end.
    pub(in crate::gateway) deadline: Instant,
    /// Receives the buffered input if it may be JSON-RPC: a fault is then written as a JSON-RPC error with the
    /// request's id.
    pub(in crate::gateway) buffered_input: &'a OnceLock<Bytes>,
    /// Receives the violations of a contract that is not enforced, in a dry run, which neither counts nor logs them.
    pub(in crate::gateway) unenforced_violations: Option<&'a Mutex<Vec<Violation>>>,
}

impl InputReader<'_> {
    /// Reads and validates the body; returns the operation and the input.
    pub(in crate::gateway) async fn read_body(&self, incoming: &mut IncomingBody<'_>) -> Result<(usize, CallInput)> {
        let operation = self.named_operation.and_then(|index| self.route.operations.get(index));
        let is_unvalidated = operation.is_some_and(|operation| operation.contract.input.is_none());
        if !is_unvalidated {
            content_negotiation::check_json_body(incoming.headers())?;
        } else if incoming.detect_empty() {
            return Ok((self.named_operation.unwrap_or_default(), CallInput::Streamed(Bytes::new())));
        } else {
            self.check_declared_input(self.named_operation.unwrap_or_default(), incoming.headers())?;
            // A caller that waits for `100 Continue` sends no byte of a body that is too large.
            let max_bytes = self.streamed_bound.max_bytes();
            if incoming.content_length().is_some_and(|length| length > max_bytes as u64) {
                return Err(self.streamed_bound.exceeded());
            }
            // Read before the call takes its concurrency permit, which a caller that sends nothing would hold.
            let first = incoming.first_chunk().await?;
            if !may_be_batch(incoming.headers(), self.route) {
                return Ok((self.named_operation.unwrap_or_default(), CallInput::Streamed(first)));
            }
            if first_significant_byte(&first) != Some(b'[') {
                // A buffered body can be retried where that is safe.
                let is_complete = incoming.content_length() == Some(first.len() as u64) && !first.is_empty();
                if is_complete {
                    let _ = self.buffered_input.set(first.clone());
                }
                let input = if is_complete { CallInput::Complete(first) } else { CallInput::Streamed(first) };
                return Ok((self.named_operation.unwrap_or_default(), input));
            }
            incoming.unread(first);
        }
        let account = BodyAccount { limits: &self.gateway.limits, client: self.client };
        let bound = BodyBound::of_checked(self.route, self.contract_config);
        let bytes = incoming.read_complete(bound, account).await?;
        check_size_without_texts(&bytes, self.contract_config)?;
        // A message with files takes its size again while it is parsed.
        let mut parsed_copy = account.limits.reserve_body(account.client);
        if bytes.len() > self.contract_config.max_body_size.get() {
            parsed_copy.grow_to(bytes.len())?;
        }
        let (operation, input) = self.check_complete(bytes).await?;
        drop(parsed_copy);
        self.check_declared_input(operation, incoming.headers())?;
        Ok((operation, input))
    }

    fn check_declared_input(&self, operation: usize, headers: &HeaderMap) -> Result<()> {
        let required = self.route.operations.get(operation).map(|operation| &operation.required_inputs);
        required.map_or(Ok(()), |required| content_negotiation::check_declared_input(headers, required))
    }

    /// Validates a buffered input.
    pub(in crate::gateway) async fn check_complete(&self, bytes: Bytes) -> Result<(usize, CallInput)> {
        if bytes.is_empty() {
            return Err(Fault::new(FaultCode::InvalidInput, "The request has no body (send a JSON object)"));
        }
        // Only JSON-RPC inputs and inputs that are not JSON are held until the call ends; most calls are neither.
        let store_input = || drop(self.buffered_input.set(bytes.clone()));
        let parsed = contract::parse_json(&bytes, &JsonBounds { max_depth: self.contract_config.max_depth });
        let value = parsed.inspect_err(|_| store_input())?;
        if value.get("jsonrpc").is_some() {
            store_input();
        }
        let accepts_array = |index: usize| {
            self.route.operations.get(index).is_some_and(|operation| operation.contract.accepts_array_input())
        };
        match value {
            Value::Array(items) if self.route.agent.accepts_batch => {
                Ok((self.check_native_batch(items, bytes.len()).await?, CallInput::Complete(bytes)))
            }
            Value::Array(items) if !self.named_operation.is_some_and(accepts_array) => {
                self.split_batch(&bytes, items).await
            }
            value => {
                let index = self.select_operation(&value)?;
                self.check_input(index, value, bytes.len()).await?;
                Ok((index, CallInput::Complete(bytes)))
            }
        }
    }

    /// Validates an input with an instruction. The instruction becomes a member of the input, and is left out where the
    /// contract refuses that (R111): a task or a step that is valid without its instruction is valid with it.
    pub(in crate::gateway) async fn check_instructed(
        &self,
        input: Bytes,
        instruction: &str,
    ) -> Result<(usize, CallInput)> {
        let merged = merge_instruction(input.clone(), Some(instruction));
        if merged == input {
            return self.check_complete(input).await;
        }
        let instructed_fault = match self.check_complete(merged).await {
            Err(fault) if !fault.violations().is_empty() => fault,
            result => return result,
        };
        let result = self.check_complete(input.clone()).await;
        match &result {
            Ok(_) if may_log_now() => {
                tracing::info!(agent = %self.route.agent.id, "instruction left out: the agent's schema refuses it (at most one such line a second)");
            }
            // The instruction is a member of the schema, so its violations are the caller's too.
            Err(fault) if !fault.violations().is_empty() && self.declares_instruction(&input) => {
                return Err(instructed_fault);
            }
            _ => {}
        }
        result
    }

    /// Returns whether the schema of the operation that this input selects declares a member `instruction`.
    fn declares_instruction(&self, input: &[u8]) -> bool {
        let parsed = contract::parse_json(input, &JsonBounds { max_depth: self.contract_config.max_depth });
        let operation = parsed.and_then(|value| self.select_operation(&value));
        operation.is_ok_and(|index| self.route.operation(index).declares_instruction)
    }

    /// Validates an array for an agent that accepts batches itself; returns the operation of the items.
    async fn check_native_batch(&self, items: Vec<Value>, body_bytes: usize) -> Result<usize> {
        self.check_item_count(items.len())?;
        let operation = self.select_operation_of_items(&items)?;
        for (index, result) in self.check_items(operation, items, body_bytes).await?.into_iter().enumerate() {
            result.map_err(|fault| within_item(fault, index))?;
        }
        Ok(operation)
    }

    fn check_item_count(&self, items: usize) -> Result<()> {
        let max_items = usize::from(self.contract_config.batch.max_items);
        if items <= max_items {
            return Ok(());
        }
        let message = format!("The batch has {items} items (at most {max_items})");
        Err(Fault::new(FaultCode::InvalidInput, message).with_setting("contract.batch.max_items"))
    }

    /// Splits an array into its items, byte for byte, and validates each (R44).
    async fn split_batch(&self, bytes: &Bytes, items: Vec<Value>) -> Result<(usize, CallInput)> {
        self.check_item_count(items.len())?;
        let raw_items: Vec<&RawValue> = serde_json::from_slice(bytes)
            .map_err(|why| Fault::new(FaultCode::Internal, "The batch could not be split").with_detail(why))?;
        let raw_items: Vec<Bytes> = raw_items.into_iter().map(|item| bytes.slice_ref(item.get().as_bytes())).collect();
        let operation = self.select_operation_of_items(&items)?;
        let results = self.check_items(operation, items, bytes.len()).await?;
        Ok((operation, CallInput::Batch(raw_items.into_iter().zip(results).collect())))
    }

    /// Selects the operation of a batch, which is the same for all items.
    fn select_operation_of_items(&self, items: &[Value]) -> Result<usize> {
        let mut operation = None;
        for item in items {
            let item_operation = self.select_operation(item)?;
            if *operation.get_or_insert(item_operation) != item_operation {
                return Err(mixed_operations());
            }
        }
        // An empty batch names no operation.
        self.route.callable_operation(operation.or(self.named_operation).unwrap_or_default())
    }

    /// Selects the operation: named by the path or a header, else by the body's member `operation` (R30).
    fn select_operation(&self, value: &Value) -> Result<usize> {
        let named_in_body = value.get("operation").and_then(Value::as_str);
        match (self.named_operation, named_in_body) {
            (Some(index), Some(name)) => {
                let only = self.route.only_operation().filter(|only| !only.declares_operation && !only.name.is_empty());
                match only {
                    Some(_) if self.route.operation_index(name).is_none() => Err(unknown_operation(self.route, name)),
                    _ => Ok(index),
                }
            }
            (Some(index), None) => Ok(index),
            (None, Some(name)) => self.route.operation_index(name).ok_or_else(|| unknown_operation(self.route, name)),
            (None, None) => self.default_operation(),
        }
    }

    /// Returns the operation of a call that names none.
    fn default_operation(&self) -> Result<usize> {
        let index = self.route.agent.default_operation.ok_or_else(|| {
            Fault::new(
                FaultCode::InvalidInput,
                format!(
                    "The agent has several operations: name one in the path, in X-Operation or in the body's 'operation' ({})",
                    self.route.operation_names()
                ),
            )
            .with_rule(FaultRule::Document("default_operation"))
        })?;
        self.route.callable_operation(index)
    }

    /// Validates an input, a body of this length.
    async fn check_input(&self, operation: usize, value: Value, body_bytes: usize) -> Result<()> {
        let Some(operation) = self.route.operations.get(operation) else { return Ok(()) };
        self.report(self.find_violations(operation, value, body_bytes).await)
    }

    /// Returns the violations of an input that is not refused for them.
    async fn find_violations(
        &self,
        operation: &CompiledOperation,
        mut value: Value,
        body_bytes: usize,
    ) -> Result<Vec<Violation>> {
        remove_operation_selector(operation, &mut value);
        let work = operation.contract.input_work(&value, body_bytes);
        if CheckWork::are_heavy(std::slice::from_ref(&work)) {
            let mut results = Box::pin(self.check_apart(operation, vec![value], vec![work])).await?;
            return results.pop().unwrap_or(Ok(Vec::new()));
        }
        operation.contract.check_input(&value, &work)
    }

    /// Validates the items of a batch, a body of this length.
    async fn check_items(&self, operation: usize, mut items: Vec<Value>, body_bytes: usize) -> Result<Vec<Result<()>>> {
        let Some(operation) = self.route.operations.get(operation) else {
            return Ok(items.iter().map(|_| Ok(())).collect());
        };
        items.iter_mut().for_each(|item| remove_operation_selector(operation, item));
        let contract = &operation.contract;
        let works: Vec<CheckWork> = items.iter().map(|item| contract.input_work(item, body_bytes)).collect();
        if CheckWork::are_heavy(&works) {
            let results = Box::pin(self.check_apart(operation, items, works)).await?;
            return Ok(results.into_iter().map(|result| self.report(result)).collect());
        }
        Ok(items.iter().zip(&works).map(|(item, work)| self.report(contract.check_input(item, work))).collect())
    }

    /// Validates inputs apart from the threads that serve calls.
    async fn check_apart(
        &self,
        operation: &CompiledOperation,
        items: Vec<Value>,
        works: Vec<CheckWork>,
    ) -> Result<Vec<Result<Vec<Violation>>>> {
        let contract = operation.contract.clone();
        let check = move || items.iter().zip(&works).map(|(item, work)| contract.check_input(item, work)).collect();
        let request = HeavyCheckRequest {
            agent: &self.route.heavy_checks,
            client: self.client,
            config: &self.contract_config.heavy_checks,
            max_share: self.gateway.limits.max_share(),
            deadline: self.deadline,
        };
        let results = self.gateway.heavy_checks.run(request, check).await;
        results.inspect_err(|fault| self.route.record_refused_check(fault))
    }

    /// Reports the violations of an input that is not refused.
    fn report(&self, result: Result<Vec<Violation>>) -> Result<()> {
        let violations = result?;
        match self.unenforced_violations {
            None => self.gateway.report_contract_violations(self.route, ShadowRule::Input, &violations),
            Some(collected) => collected.lock().extend(violations),
        }
        Ok(())
    }
}

/// Whether no instruction that was left out was logged during the last second.
fn may_log_now() -> bool {
    static LAST_LOGGED: Mutex<Option<Instant>> = Mutex::new(None);
    let (mut last_logged, now) = (LAST_LOGGED.lock(), Instant::now());
    let is_due = last_logged.is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1));
    if is_due {
        *last_logged = Some(now);
    }
    is_due
}

/// Removes the member `operation` of an input where it only selects the operation, and so is not validated.
fn remove_operation_selector(operation: &CompiledOperation, input: &mut Value) {
    if let Value::Object(members) = input
        && is_operation_selector(operation, members.get("operation"))
    {
        members.remove("operation");
    }
}

/// Returns whether the member `operation` only selects the operation, and so is not validated.
fn is_operation_selector(operation: &CompiledOperation, member: Option<&Value>) -> bool {
    !operation.name.is_empty() && !operation.declares_operation && member.is_some_and(Value::is_string)
}

/// Returns whether a body without a schema may be a batch that this agent does not accept itself.
fn may_be_batch(headers: &HeaderMap, route: &Route) -> bool {
    !route.agent.accepts_batch && is_json_content(headers.get(http::header::CONTENT_TYPE))
}

fn first_significant_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

fn mixed_operations() -> Fault {
    Fault::new(FaultCode::InvalidInput, "All items of a batch must be for the same operation")
}

/// Makes the pointers of an item's violations relative to the whole array.
fn within_item(fault: Fault, index: usize) -> Fault {
    let prefix_pointer = |violation: &Violation| Violation {
        pointer: format!("/{index}{}", violation.pointer),
        message: violation.message.clone(),
    };
    let violations = fault.violations().iter().map(prefix_pointer).collect();
    Fault::new(fault.code(), format!("Item {index}: {}", fault.message())).with_violations(violations)
}
