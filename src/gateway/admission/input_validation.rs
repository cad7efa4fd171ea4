//! Step 8: the input. Selects the operation, validates the input against its schema, and splits batches. The agent
//! receives the original bytes, never a re-serialisation.

use super::{
    body_account::BodyAccount,
    body_bound::BodyBound,
    incoming_body::IncomingBody,
    operation_selector::{InputSelectors, without_selectors},
};
use crate::{
    contract::{self, BodyTape, CallChecks, CheckOwner, JsonBounds, MemoryAccounts, Node, NodeKind, Tape, text_of},
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
        let (operation, input) = self.check_complete(bytes).await?;
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
        let account = BodyAccount { limits: &self.gateway.limits, client: self.client };
        let mut checks = self.checks(&account);
        // Only JSON-RPC inputs and inputs that are not JSON are held until the call ends; most calls are neither.
        let store_input = || drop(self.buffered_input.set(bytes.clone()));
        let parsed = checks.parse(bytes.clone(), self.bounds()).await;
        let body = parsed.inspect_err(|_| store_input())?;
        let is_array = body.kind(Tape::ROOT) == NodeKind::Array;
        let accepts_array = |index: usize| {
            self.route.operations.get(index).is_some_and(|operation| operation.contract.accepts_array_input())
        };
        if is_array && self.route.agent.accepts_batch {
            return Ok((self.check_native_batch(checks, body).await?, CallInput::Complete(bytes)));
        }
        if is_array && !self.named_operation.is_some_and(accepts_array) {
            return self.split_batch(checks, body).await;
        }
        let selectors = InputSelectors::read(&body, Tape::ROOT);
        if selectors.is_json_rpc {
            store_input();
        }
        let index = self.select_operation(&body, selectors)?;
        if let Some(operation) = self.route.operations.get(index) {
            let is_selector = is_operation_selector(operation, selectors);
            let found = if is_selector {
                Box::pin(self.check_without_selectors(&mut checks, operation, body)).await
            } else {
                checks.check_input(&operation.contract, body, Tape::ROOT).await
            };
            self.report(found)?;
        }
        Ok((index, CallInput::Complete(bytes)))
    }

    /// Returns the checks of this call.
    fn checks<'c>(&'c self, accounts: &'c dyn MemoryAccounts) -> CallChecks<'c> {
        let owner = CheckOwner {
            agent: &self.route.suspended_checks,
            client: self.client,
            config: &self.contract_config.suspended_checks,
            deadline: self.deadline,
        };
        CallChecks::new(&self.gateway.check_scheduler, owner, accounts)
    }

    fn bounds(&self) -> JsonBounds {
        JsonBounds { max_depth: self.contract_config.max_depth }
    }

    /// Validates an input whose member `operation` only selects the operation, and so is not validated.
    async fn check_without_selectors(
        &self,
        checks: &mut CallChecks<'_>,
        operation: &CompiledOperation,
        body: BodyTape,
    ) -> Result<Vec<Violation>> {
        if operation.contract.input.is_none() {
            return Ok(Vec::new());
        }
        let text = without_selectors(&body, [Tape::ROOT]);
        drop(body);
        let body = checks.parse(text, self.bounds()).await?;
        checks.check_input(&operation.contract, body, Tape::ROOT).await
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
    fn declares_instruction(&self, input: &Bytes) -> bool {
        // It was parsed before.
        let parsed = contract::parse_json(input.clone(), self.bounds());
        let operation = parsed.and_then(|body| self.select_operation(&body, InputSelectors::read(&body, Tape::ROOT)));
        operation.is_ok_and(|index| self.route.operation(index).declares_instruction)
    }

    /// Validates an array for an agent that accepts batches itself; returns the operation of the items.
    async fn check_native_batch(&self, checks: CallChecks<'_>, body: BodyTape) -> Result<usize> {
        let items = self.items_of(&body)?;
        let operation = self.select_operation_of_items(&body, &items)?;
        for (index, result) in self.check_items(checks, operation, body, items).await?.into_iter().enumerate() {
            result.map_err(|fault| within_item(fault, index))?;
        }
        Ok(operation)
    }

    fn items_of(&self, body: &Tape) -> Result<Vec<Node>> {
        let max_items = usize::from(self.contract_config.batch.max_items);
        let items: Vec<Node> = body.items(Tape::ROOT).take(max_items + 1).collect();
        if items.len() <= max_items {
            return Ok(items);
        }
        self.check_item_count(body.items(Tape::ROOT).count()).map(|()| items)
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
    async fn split_batch(&self, checks: CallChecks<'_>, body: BodyTape) -> Result<(usize, CallInput)> {
        let items = self.items_of(&body)?;
        let texts: Vec<Bytes> = items.iter().map(|item| text_of(&body, *item)).collect();
        let operation = self.select_operation_of_items(&body, &items)?;
        let results = self.check_items(checks, operation, body, items).await?;
        Ok((operation, CallInput::Batch(texts.into_iter().zip(results).collect())))
    }

    /// Selects the operation of a batch, which is the same for all items.
    fn select_operation_of_items(&self, body: &Tape, items: &[Node]) -> Result<usize> {
        let mut operation = None;
        for item in items {
            let item_operation = self.select_operation(body, InputSelectors::read(body, *item))?;
            if *operation.get_or_insert(item_operation) != item_operation {
                return Err(mixed_operations());
            }
        }
        // An empty batch names no operation.
        self.route.callable_operation(operation.or(self.named_operation).unwrap_or_default())
    }

    /// Selects the operation: named by the path or a header, else by the body's member `operation` (R30).
    fn select_operation(&self, body: &Tape, selectors: InputSelectors) -> Result<usize> {
        let named_in_body = selectors.operation.map(|name| body.text(name));
        match (self.named_operation, named_in_body.as_deref()) {
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

    /// Validates the items of a batch.
    async fn check_items(
        &self,
        checks: CallChecks<'_>,
        operation: usize,
        body: BodyTape,
        items: Vec<Node>,
    ) -> Result<Vec<Result<()>>> {
        let Some(operation) = self.route.operations.get(operation) else {
            return Ok(items.iter().map(|_| Ok(())).collect());
        };
        let (mut checks, mut body, mut items) = (checks, body, items);
        let is_selector = |item: &Node| is_operation_selector(operation, InputSelectors::read(&body, *item));
        if operation.contract.input.is_some() && items.iter().any(is_selector) {
            let text = without_selectors(&body, items.into_iter().filter(is_selector));
            drop(body);
            body = checks.parse(text, self.bounds()).await?;
            items = body.items(Tape::ROOT).collect();
        }
        let results = checks.check_items(&operation.contract, body, items).await;
        let results = results.inspect_err(|fault| self.route.record_refused_check(fault))?;
        Ok(results.into_iter().map(|result| self.report(result)).collect())
    }

    /// Reports the violations of an input that is not refused.
    fn report(&self, result: Result<Vec<Violation>>) -> Result<()> {
        let violations = result.inspect_err(|fault| self.route.record_refused_check(fault))?;
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

/// Returns whether the member `operation` only selects the operation, and so is not validated.
fn is_operation_selector(operation: &CompiledOperation, selectors: InputSelectors) -> bool {
    !operation.name.is_empty() && !operation.declares_operation && selectors.operation.is_some()
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
    let prefix_pointer =
        |violation: &Violation| Violation { pointer: format!("/{index}{}", violation.pointer), ..violation.clone() };
    let violations = fault.violations().iter().map(prefix_pointer).collect();
    Fault::new(fault.code(), format!("Item {index}: {}", fault.message())).with_violations(violations)
}
