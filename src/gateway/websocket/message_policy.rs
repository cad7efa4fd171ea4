//! The policy for relayed WebSocket messages. A caller's message counts as the calls in it and is validated if the
//! operation has a schema. An agent's message is replaced if it is an embedded error (R41) or, where that is
//! configured, if it violates the output schema.

use super::{
    WebSocketSession,
    caller_message::{self, ResponseFormat},
};
use crate::{
    agent::AgentStatus,
    fault::{Fault, FaultCode, Result},
    gateway::{
        ConfigSnapshot,
        admission::{Admitted, CallerContext},
        input_validation::{InputReader, named_operation},
        reply_validation::ReplyValidator,
        response_normalization::may_embed_error,
        route::Route,
    },
    transport::{MessageFraming, ReplyBody, UpstreamReply},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use std::{num::NonZeroU32, sync::OnceLock};

/// The framing of an agent's messages, and whether messages are validated; by default the caller's are, if the
/// operation has a schema.
#[derive(Clone, Copy)]
pub(super) struct MessageRules {
    pub(super) framing: MessageFraming,
    pub(super) validate: Option<bool>,
}

/// The decision about a caller's message.
pub(super) enum MessageVerdict {
    Pass,
    Refuse(Fault),
    /// The caller is no longer authorised: the WebSocket closes.
    Disconnect(Fault),
}

impl WebSocketSession {
    /// Decides whether a message may pass: the caller is still authorised, is within its limits, and the input is
    /// valid.
    pub(super) async fn check_message(&self, text: Option<&str>, rules: MessageRules) -> MessageVerdict {
        let gateway = &self.gateway;
        let address = self.connection.peer_address.ip();
        if let Err(fault) = gateway.limits.acquire_for_address(address).await {
            return MessageVerdict::Refuse(fault);
        }
        let config = gateway.config.load_full();
        let (route, caller) = match gateway.authorize_unrecorded(&config, &self.agent, &self.caller_context()).await {
            Ok(route_and_caller) => route_and_caller,
            Err((_, fault)) if is_permanent_refusal(&fault) => return MessageVerdict::Disconnect(fault),
            Err((_, fault)) => return MessageVerdict::Refuse(fault),
        };
        if route.agent().status == AgentStatus::Inactive {
            return MessageVerdict::Refuse(Fault::new(FaultCode::AgentUnavailable, "The agent is not active"));
        }
        let account = gateway.rate_limit_account(&caller, address);
        let calls = text.map_or(NonZeroU32::MIN, |text| count_calls(text, rules.framing));
        if let Err(fault) = gateway.limits.acquire_for_calls(&route.limits, &account, calls).await {
            return MessageVerdict::Refuse(fault);
        }
        match self.validate_message(&config, text, &route, rules) {
            Ok(()) => MessageVerdict::Pass,
            Err(fault) => MessageVerdict::Refuse(fault),
        }
    }

    /// Returns the fault if the caller is no longer authorised; `None` also if authentication is not available.
    pub(super) async fn authorization_fault(&self) -> Option<Fault> {
        let config = self.gateway.config.load_full();
        let result = self.gateway.authorize_unrecorded(&config, &self.agent, &self.caller_context()).await;
        result.err().map(|(_, fault)| fault).filter(is_permanent_refusal)
    }

    fn caller_context(&self) -> CallerContext<'_> {
        CallerContext {
            headers: &self.headers,
            client_certificate: self.connection.client_identity(),
            address: self.connection.peer_address.ip(),
        }
    }

    /// Validates a message (step 8).
    fn validate_message(
        &self,
        config: &ConfigSnapshot,
        text: Option<&str>,
        route: &Route,
        MessageRules { framing, validate }: MessageRules,
    ) -> Result<()> {
        let has_input_schema = route.operations.iter().any(|operation| operation.contract.input.is_some());
        if !validate.unwrap_or(has_input_schema) || !has_input_schema {
            return Ok(());
        }
        let text = text.ok_or_else(|| {
            Fault::new(FaultCode::UnsupportedMediaType, "This agent's input is validated (send JSON as a text message)")
        })?;
        let named_operation_index = named_operation(route, self.operation.as_deref(), &self.headers)?;
        let check_input = |named_operation_index: Option<usize>, input: Bytes| {
            InputReader {
                gateway: &self.gateway,
                route,
                contract_config: &config.contract,
                named_operation: named_operation_index,
                buffered_input: &OnceLock::new(),
            }
            .check_complete(input)
            .map(drop)
        };
        match framing {
            MessageFraming::JsonRpc => match caller_message::parse_json_rpc_input(text, route)? {
                Some((by_method, input)) => check_input(by_method.or(named_operation_index), input),
                None => Ok(()),
            },
            MessageFraming::Bare => check_input(named_operation_index, Bytes::from(text.to_owned())),
            MessageFraming::Ndjson => message_lines(text)
                .try_for_each(|line| check_input(named_operation_index, Bytes::from(line.to_owned()))),
        }
    }

    /// Returns the text that replaces an agent's message; `None` passes the message.
    pub(super) fn replacement(&self, text: &str, admitted: &Admitted, rules: MessageRules) -> Option<String> {
        let has_lines = rules.framing == MessageFraming::Ndjson && text.trim_ascii().contains('\n');
        if !has_lines {
            return self.line_replacement(text, admitted, rules);
        }
        // Any of the lines may be an embedded error.
        let (mut replaced, mut changed) = (String::with_capacity(text.len()), false);
        for line in message_lines(text) {
            let replacement = self.line_replacement(line, admitted, rules);
            changed |= replacement.is_some();
            replaced.push_str(replacement.as_deref().unwrap_or(line));
            replaced.push('\n');
            if changed && replaced.len() > self.config.max_message_size.get() {
                return ResponseFormat::Plain.format_fault(&reply_too_large(), self.call.id());
            }
        }
        changed.then_some(replaced)
    }

    fn line_replacement(&self, text: &str, admitted: &Admitted, rules: MessageRules) -> Option<String> {
        let config = self.gateway.config.load();
        let validator = ReplyValidator { gateway: &self.gateway, contract_config: &config.contract, admitted };
        if may_embed_error(text.as_bytes()) {
            let body = ReplyBody::from(Bytes::new());
            let reply = UpstreamReply { status: StatusCode::OK, headers: HeaderMap::new(), body };
            if let Err(fault) = validator.reject_failure(&reply, text.as_bytes(), true) {
                return ResponseFormat::Plain.format_fault(&fault, self.call.id());
            }
        }
        // Output is validated only where that is configured, and only if the operation is certain.
        if rules.validate != Some(true)
            || !matches!(named_operation(admitted.agent_route(), self.operation.as_deref(), &self.headers), Ok(Some(_)))
        {
            return None;
        }
        let (format, output) = match rules.framing {
            MessageFraming::JsonRpc => caller_message::parse_result(text)?,
            MessageFraming::Bare | MessageFraming::Ndjson => (ResponseFormat::Plain, text),
        };
        let fault = validator.check_output(output.as_bytes()).err()?;
        format.format_fault(&fault, self.call.id())
    }
}

/// Returns whether a refusal also holds for every later message.
fn is_permanent_refusal(fault: &Fault) -> bool {
    matches!(fault.code(), FaultCode::Unauthorized | FaultCode::PermissionDenied | FaultCode::NotFound)
}

pub(super) fn reply_too_large() -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's answer is too large")
}

fn message_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty())
}

/// Returns how many calls a message makes: each line is one, and each item of a JSON-RPC batch.
fn count_calls(text: &str, framing: MessageFraming) -> NonZeroU32 {
    let count = match framing {
        MessageFraming::Bare => 1,
        MessageFraming::Ndjson => message_lines(text).count(),
        MessageFraming::JsonRpc if text.trim_ascii_start().starts_with('[') => {
            serde_json::from_str::<Vec<&RawValue>>(text).map_or(1, |items| items.len())
        }
        MessageFraming::JsonRpc => 1,
    };
    u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}
