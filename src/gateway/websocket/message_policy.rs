//! The policy for relayed WebSocket messages. A caller's message counts as the calls in it and is validated if the
//! operation has a schema. An agent's message is replaced if it is an embedded error (R41) or, where that is
//! configured, if it violates the output schema.

use super::{
    WebSocketSession,
    caller_message::{self, AnswerForm},
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
    pub(super) frames: MessageFraming,
    pub(super) validates: Option<bool>,
}

/// The decision about a caller's message.
pub(super) enum MessageVerdict {
    Pass,
    Refuse(Fault),
    /// The caller is no longer authorised; the WebSocket closes.
    Expel(Fault),
}

impl WebSocketSession {
    /// Decides whether a message may pass: the caller is still authorised, is within its limits, and the input is
    /// valid.
    pub(super) async fn check_message(&self, text: Option<&str>, rules: MessageRules) -> MessageVerdict {
        let gateway = &self.gateway;
        let address = self.connection.peer_address.ip();
        if let Err(fault) = gateway.limits.acquire_for_address(address) {
            return MessageVerdict::Refuse(fault);
        }
        let config = gateway.config.load_full();
        let (route, who) = match gateway.authorize_unrecorded(&config, &self.agent, &self.caller_context()).await {
            Ok(known) => known,
            Err((_, fault)) if is_permanent_refusal(&fault) => return MessageVerdict::Expel(fault),
            Err((_, fault)) => return MessageVerdict::Refuse(fault),
        };
        if route.agent().status == AgentStatus::Inactive {
            return MessageVerdict::Refuse(Fault::new(FaultCode::AgentUnavailable, "The agent is not active"));
        }
        let account = gateway.rate_limit_account(&who, address);
        let calls = text.map_or(NonZeroU32::MIN, |text| count_calls(text, rules.frames));
        if let Err(fault) = gateway.limits.acquire_for_calls(&route.limits, &account, calls) {
            return MessageVerdict::Refuse(fault);
        }
        match self.validate_message(&config, text, &route, rules) {
            Ok(()) => MessageVerdict::Pass,
            Err(fault) => MessageVerdict::Refuse(fault),
        }
    }

    /// Returns the fault if the caller is no longer authorised. A failure to find out is not a reason.
    pub(super) async fn authorization_fault(&self) -> Option<Fault> {
        let config = self.gateway.config.load_full();
        let looked = self.gateway.authorize_unrecorded(&config, &self.agent, &self.caller_context()).await;
        looked.err().map(|(_, fault)| fault).filter(is_permanent_refusal)
    }

    fn caller_context(&self) -> CallerContext<'_> {
        CallerContext {
            headers: &self.headers,
            peer: self.connection.client_identity(),
            address: self.connection.peer_address.ip(),
        }
    }

    /// Validates a message (step 8).
    fn validate_message(
        &self,
        config: &ConfigSnapshot,
        text: Option<&str>,
        route: &Route,
        MessageRules { frames, validates: check }: MessageRules,
    ) -> Result<()> {
        let declared = route.operations.iter().any(|operation| operation.contract.input.is_some());
        if !check.unwrap_or(declared) || !declared {
            return Ok(());
        }
        let text = text.ok_or_else(|| {
            Fault::new(FaultCode::UnsupportedMediaType, "This agent's input is validated (send JSON as a text message)")
        })?;
        let named = named_operation(route, self.operation.as_deref(), &self.headers)?;
        let judge = |named: Option<usize>, input: Bytes| {
            InputReader {
                gateway: &self.gateway,
                route,
                contract_config: &config.contract,
                named_operation: named,
                buffered_input: &OnceLock::new(),
            }
            .check_complete(input)
            .map(drop)
        };
        match frames {
            MessageFraming::JsonRpc => match caller_message::parse_json_rpc_input(text, route)? {
                Some((by_method, input)) => judge(by_method.or(named), input),
                None => Ok(()),
            },
            MessageFraming::Bare => judge(named, Bytes::from(text.to_owned())),
            MessageFraming::Ndjson => {
                message_lines(text).try_for_each(|line| judge(named, Bytes::from(line.to_owned())))
            }
        }
    }

    /// Returns the text that replaces an agent's message; `None` passes the message.
    pub(super) fn replacement(&self, text: &str, admitted: &Admitted, rules: MessageRules) -> Option<String> {
        let several = rules.frames == MessageFraming::Ndjson && text.trim_ascii().contains('\n');
        if !several {
            return self.line_replacement(text, admitted, rules);
        }
        // Any of the lines may be an embedded error.
        let (mut all, mut changed) = (String::with_capacity(text.len()), false);
        for line in message_lines(text) {
            let told = self.line_replacement(line, admitted, rules);
            changed |= told.is_some();
            all.push_str(told.as_deref().unwrap_or(line));
            all.push('\n');
            if changed && all.len() > self.config.max_message_size.get() {
                return AnswerForm::Plain.format_fault(&answer_too_large(), self.call.id());
            }
        }
        changed.then_some(all)
    }

    fn line_replacement(&self, text: &str, admitted: &Admitted, rules: MessageRules) -> Option<String> {
        let config = self.gateway.config.load();
        let judge = ReplyValidator { gateway: &self.gateway, contract_config: &config.contract, admitted };
        if may_embed_error(text.as_bytes()) {
            let body = ReplyBody::from(Bytes::new());
            let reply = UpstreamReply { status: StatusCode::OK, headers: HeaderMap::new(), body };
            if let Err(fault) = judge.reject_failure(&reply, text.as_bytes(), true) {
                return AnswerForm::Plain.format_fault(&fault, self.call.id());
            }
        }
        // Only if configured, and only if the answering operation is known.
        if rules.validates != Some(true)
            || !matches!(named_operation(admitted.agent_route(), self.operation.as_deref(), &self.headers), Ok(Some(_)))
        {
            return None;
        }
        let (form, output) = match rules.frames {
            MessageFraming::JsonRpc => caller_message::parse_result(text)?,
            MessageFraming::Bare | MessageFraming::Ndjson => (AnswerForm::Plain, text),
        };
        let broken = judge.check_output(output.as_bytes()).err()?;
        form.format_fault(&broken, self.call.id())
    }
}

/// Returns whether a refusal also holds for every later message.
fn is_permanent_refusal(fault: &Fault) -> bool {
    matches!(fault.code(), FaultCode::Unauthorized | FaultCode::PermissionDenied | FaultCode::NotFound)
}

pub(super) fn answer_too_large() -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's answer is too large")
}

fn message_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty())
}

/// Returns how many calls a message makes: each line is one, and each item of a JSON-RPC batch.
fn count_calls(text: &str, frames: MessageFraming) -> NonZeroU32 {
    let count = match frames {
        MessageFraming::Bare => 1,
        MessageFraming::Ndjson => message_lines(text).count(),
        MessageFraming::JsonRpc if text.trim_ascii_start().starts_with('[') => {
            serde_json::from_str::<Vec<&RawValue>>(text).map_or(1, |items| items.len())
        }
        MessageFraming::JsonRpc => 1,
    };
    u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}
