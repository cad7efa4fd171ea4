//! The reply of an agent to a request for a completion: read whole, or part by part.

use super::{agent_answer::AgentAnswer, config::OpenAiConfig};
use crate::{
    fault::Fault,
    gateway::{
        admission::Admitted,
        call::CallResult,
        exchange::Exchange,
        response::{ErrorEventDetector, EventSplitter, ReplyValidator},
        upstream::BodyPump,
    },
    transport::UpstreamReply,
    values::EventReader,
};
use bytes::Bytes;

/// The longest line, and the longest data of an event, in bytes.
const MAX_EVENT: usize = 256 << 10;

/// The reply of the agent, while the caller is watched.
pub(super) struct AgentStream {
    pub(super) reply: UpstreamReply,
    pub(super) pump: BodyPump,
}

/// The parts of an answer that is an event stream.
pub(super) struct AnswerParts<'s> {
    agent: &'s mut AgentStream,
    rule: Option<&'s OpenAiConfig>,
    splitter: EventSplitter,
    detector: ErrorEventDetector,
    events: EventReader,
    /// The failure that the agent reports, which follows the parts before it.
    failure: Option<Fault>,
    has_bytes: bool,
    is_at_end: bool,
}

impl AgentStream {
    async fn next_chunk(&mut self, exchange: &mut Exchange<'_>) -> CallResult<Option<Bytes>> {
        loop {
            tokio::select! {
                biased;
                chunk = self.reply.body.next_chunk() => return Ok(chunk.transpose()?),
                result = self.pump.advance(exchange.session) => result?,
            }
        }
    }

    /// Returns the parts of the answer, whose failures `detector` finds.
    pub(super) fn parts<'s>(
        &'s mut self,
        detector: ErrorEventDetector,
        rule: Option<&'s OpenAiConfig>,
    ) -> AnswerParts<'s> {
        AnswerParts {
            agent: self,
            rule,
            splitter: EventSplitter::default(),
            detector,
            events: EventReader::new(MAX_EVENT),
            failure: None,
            has_bytes: false,
            is_at_end: false,
        }
    }

    /// Reads and judges the whole reply.
    pub(super) async fn read_answer(
        mut self,
        exchange: &mut Exchange<'_>,
        admitted: &Admitted,
        rule: Option<&OpenAiConfig>,
    ) -> CallResult<AgentAnswer> {
        let Exchange { gateway, config, .. } = *exchange;
        let validator = ReplyValidator { gateway, contract_config: &config.contract, admitted };
        let (body, reported) = {
            let mut reading = std::pin::pin!(validator.read_and_judge(&mut self.reply));
            loop {
                tokio::select! {
                    biased;
                    read = &mut reading => break read?,
                    result = self.pump.advance(exchange.session) => result?,
                }
            }
        };
        if let Some(fault) = reported {
            return Err(fault.into());
        }
        Ok(AgentAnswer::from_reply(&self.reply.headers, &body, rule)?)
    }
}

impl AnswerParts<'_> {
    /// Waits for the next part; `None` after the last one.
    ///
    /// # Errors
    /// The stream breaks off, cannot be read or reports a failure; or the caller is gone.
    pub(super) async fn next_part(&mut self, exchange: &mut Exchange<'_>) -> CallResult<Option<AgentAnswer>> {
        loop {
            let event = if self.is_at_end { self.events.take_rest()? } else { self.events.next_event()? };
            if let Some(event) = event {
                let Some(data) = event.data.filter(|_| event.name.as_deref() != Some(b"error")) else { continue };
                return Ok(Some(AgentAnswer::from_event(&data, self.rule)?));
            }
            if let Some(fault) = self.failure.take() {
                return Err(fault.into());
            }
            if self.is_at_end {
                return Ok(None);
            }
            match self.agent.next_chunk(exchange).await? {
                Some(chunk) => {
                    self.has_bytes |= !chunk.is_empty();
                    self.events.push(&chunk);
                    self.failure = self.detector.push(&self.splitter.push(chunk));
                }
                None => {
                    self.is_at_end = true;
                    self.failure = self.detector.finish();
                }
            }
        }
    }

    /// Returns whether the agent has sent anything.
    pub(super) fn has_bytes(&self) -> bool {
        self.has_bytes
    }
}
