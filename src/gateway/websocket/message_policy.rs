//! The policy for relayed WebSocket messages. A caller's message counts as the calls in it and is validated if the
//! operation has a schema. An agent's message is replaced if it is an embedded error (R41) or, where that is
//! configured, if it violates the output schema.

use super::{
    caller_message::{self, ResponseFormat},
    websocket_session::WebSocketSession,
};
use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::{
            AdmissionPipeline, AdmissionRecorder, AdmissionRequest, Admitted, AgentAuthorization, AuthorizedCall,
            CallSource, InputReader, named_operation,
        },
        path_router::CallTarget,
        response::ReplyValidator,
        route::Route,
    },
    transport::MessageFraming,
};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::{
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::Instant,
};

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

/// A relayed message on its way through admission. It has no access-log entry of its own.
struct RelayedMessage<'a> {
    call_id: &'a str,
    arrived_at: Instant,
    buffered_input: OnceLock<Bytes>,
}

impl AdmissionRecorder for RelayedMessage<'_> {
    fn call_id(&self) -> &str {
        self.call_id
    }

    fn arrived_at(&self) -> Instant {
        self.arrived_at
    }

    fn is_exempt_from_shedding(&self) -> bool {
        false
    }

    fn buffered_input(&self) -> &OnceLock<Bytes> {
        &self.buffered_input
    }

    fn record_caller(&mut self, _: &Arc<crate::auth::Caller>) {}

    fn record_route(&mut self, _: &Arc<Route>) {}

    fn record_operation(&mut self, _: usize) {}
}

/// Decides which messages of a session pass.
#[derive(Clone, Copy)]
pub(super) struct MessagePolicy<'a> {
    pub(super) session: &'a WebSocketSession,
    pub(super) rules: MessageRules,
}

/// Returns the fault if the caller is no longer authorised; `None` also if authentication is not available.
pub(super) async fn authorization_fault(session: &WebSocketSession) -> Option<Fault> {
    let config = session.gateway.config.load_full();
    let authorization = AgentAuthorization { gateway: &session.gateway, config: &config };
    let result = authorization.find_and_authorize(&session.agent, &session.caller_context()).await;
    result.err().map(|refusal| refusal.fault).filter(is_permanent_refusal)
}

impl MessagePolicy<'_> {
    /// Decides whether a message may pass: the caller is still authorised, is within its limits, and the input is
    /// valid.
    pub(super) async fn check_message(&self, text: Option<&str>) -> MessageVerdict {
        match self.admit_message(text).await {
            Ok(()) => MessageVerdict::Pass,
            Err(fault) if is_permanent_refusal(&fault) => MessageVerdict::Disconnect(fault),
            Err(fault) => MessageVerdict::Refuse(fault),
        }
    }

    /// Passes a message through admission (steps 3 and 5 to 8); the WebSocket itself holds the concurrency permit.
    async fn admit_message(&self, text: Option<&str>) -> Result<()> {
        let session = self.session;
        let config = session.gateway.config.load_full();
        let admission = AdmissionPipeline { gateway: &session.gateway, config: &config };
        admission.charge_address(session.connection.client_address()).await?;
        let mut message =
            RelayedMessage { call_id: session.call.id(), arrived_at: Instant::now(), buffered_input: OnceLock::new() };
        let request = AdmissionRequest {
            source: CallSource::RelayedMessage,
            caller: session.caller_context(),
            target: CallTarget {
                agent: &session.agent,
                version: None,
                operation: session.operation.as_deref(),
                may_be_agent: false,
            },
            query: None,
            calls: text.map_or(NonZeroU32::MIN, |text| count_calls(text, self.rules.framing)),
        };
        let authorized = admission.authorize(&mut message, &request).await?;
        self.validate_message(&admission, &authorized, text).await
    }

    /// Validates a message (step 8).
    async fn validate_message(
        &self,
        admission: &AdmissionPipeline<'_>,
        authorized: &AuthorizedCall,
        text: Option<&str>,
    ) -> Result<()> {
        let MessageRules { framing, validate } = self.rules;
        let route = authorized.route();
        let has_input_schema = route.operations.iter().any(|operation| operation.contract.input.is_some());
        if !validate.unwrap_or(has_input_schema) || !has_input_schema {
            return Ok(());
        }
        let text = text.ok_or_else(|| {
            Fault::new(FaultCode::UnsupportedMediaType, "This agent's input is validated (send JSON as a text message)")
        })?;
        let named_operation = authorized.named_operation();
        let check_input = async |named_operation: Option<usize>, input: Bytes| {
            let buffered_input = OnceLock::new();
            let reader = InputReader { named_operation, ..admission.input_reader(authorized, &buffered_input) };
            reader.check_complete(input).await.map(drop)
        };
        match framing {
            MessageFraming::JsonRpc => match caller_message::parse_json_rpc_input(text, route)? {
                Some((by_method, input)) => check_input(by_method.or(named_operation), input).await,
                None => Ok(()),
            },
            MessageFraming::Bare => check_input(named_operation, Bytes::from(text.to_owned())).await,
            MessageFraming::Ndjson => {
                for line in message_lines(text) {
                    check_input(named_operation, Bytes::from(line.to_owned())).await?;
                }
                Ok(())
            }
        }
    }

    /// Returns the text that replaces an agent's message; `None` passes the message.
    pub(super) async fn replacement(&self, text: &str, admitted: &Admitted) -> Option<String> {
        let has_lines = self.rules.framing == MessageFraming::Ndjson && text.trim_ascii().contains('\n');
        if !has_lines {
            return self.line_replacement(text, admitted).await;
        }
        // Any of the lines may be an embedded error.
        let (mut replaced, mut changed) = (String::with_capacity(text.len()), false);
        for line in message_lines(text) {
            let replacement = self.line_replacement(line, admitted).await;
            changed |= replacement.is_some();
            replaced.push_str(replacement.as_deref().unwrap_or(line));
            replaced.push('\n');
            if changed && replaced.len() > self.session.config.max_message_size.get() {
                return ResponseFormat::Plain.format_fault(&reply_too_large(), self.session.call.id());
            }
        }
        changed.then_some(replaced)
    }

    async fn line_replacement(&self, text: &str, admitted: &Admitted) -> Option<String> {
        let config = self.session.gateway.config.load_full();
        let validator = ReplyValidator { gateway: &self.session.gateway, contract_config: &config.contract, admitted };
        if let Some(fault) = validator.embedded_error(text.as_bytes()) {
            return ResponseFormat::Plain.format_fault(&fault, self.session.call.id());
        }
        // Output is validated only where that is configured, and only if the operation is certain.
        if self.rules.validate != Some(true)
            || !matches!(
                named_operation(admitted.agent_route(), self.session.operation.as_deref(), &self.session.headers),
                Ok(Some(_))
            )
        {
            return None;
        }
        let (format, output) = match self.rules.framing {
            MessageFraming::JsonRpc => caller_message::parse_result(text)?,
            MessageFraming::Bare | MessageFraming::Ndjson => (ResponseFormat::Plain, text),
        };
        // A message has no deadline of its own: it has the time of a call.
        let deadline = Instant::now() + admitted.agent_route().upstream.timeouts().total;
        let output = Bytes::copy_from_slice(output.as_bytes());
        let fault = validator.check_output_until(&output, deadline).await.err()?;
        format.format_fault(&fault, self.session.call.id())
    }
}

/// Returns whether a refusal also holds for every later message.
pub(in crate::gateway) fn is_permanent_refusal(fault: &Fault) -> bool {
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
