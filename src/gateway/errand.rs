//! Errands: calls that are no request of their own, such as a step of a pipeline, a frame of a WebSocket or a message
//! of a broker. Each takes every step that a request takes, with a record of its own; only its answer is somebody
//! else's to write.

use super::{
    Gateway, World,
    admit::{Admitted, Shown},
    asks::{deadline, named_by_us},
    call::{Call, Stage},
    forward::{Told, as_json},
    input::{self, Input, Reading},
    judge::Judge,
    versions,
};
use crate::{
    bridge::instructed,
    fault::{Code, Fault, Result},
    transport::{Body, Passage, Reply},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{sync::Arc, time::Instant};

/// What is to be asked of an agent, and by whom.
pub(super) struct Errand<'a> {
    /// The credentials that count, and what else the caller says in fields.
    pub(super) shown: Shown<'a>,
    /// What the agent is told about the caller; its own fields are left out.
    pub(super) passage: Passage<'a>,
    /// The id of the call that this belongs to; a new one where there is none.
    pub(super) id: Option<&'a str>,
    /// Whether it is a part of what was let in already, and would be lost without it.
    pub(super) part: bool,
    /// Which agent, by its id; well formed or not.
    pub(super) agent: &'a str,
    /// Which operation, where that is not left to the input.
    pub(super) operation: Option<&'a str>,
    /// JSON, one input.
    pub(super) input: Bytes,
    /// What the agent is to do with it, in words; a part of the input for agents that have no other place for it.
    pub(super) instruction: Option<&'a str>,
    /// When it must be over, where that is sooner than the agent's own bound.
    pub(super) until: Option<Instant>,
}

/// An errand that an agent has begun to answer. Its place among the agent's calls is held until this goes.
pub(super) struct Fetched {
    call: Call,
    pub(super) admitted: Admitted,
    pub(super) reply: Reply,
    asked: Instant,
}

/// An answer that is whole, and judged.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) status: StatusCode,
    /// As the agent sent them.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Gateway {
    /// Steps 5 to 11.
    ///
    /// # Errors
    /// Whatever a request would be answered.
    pub(super) async fn errand(self: &Arc<Self>, world: &World, errand: Errand<'_>) -> Result<Fetched> {
        self.errand_accepting(world, errand, HeaderValue::from_static("application/json")).await
    }

    /// The same, for whoever takes other answers than JSON, too: `accept` says which.
    ///
    /// # Errors
    /// As above.
    pub(super) async fn errand_accepting(
        self: &Arc<Self>,
        world: &World,
        errand: Errand<'_>,
        accept: HeaderValue,
    ) -> Result<Fetched> {
        let mut call = Call::arrive(self, Some(errand.shown.address));
        call.is_errand(errand.id, errand.agent);
        call.let_in = errand.part;
        match self.run(world, &mut call, (errand, accept)).await {
            Ok((admitted, reply, asked)) => Ok(Fetched { call, admitted, reply, asked }),
            Err(fault) => {
                call.stage = Stage::Refused(fault.clone());
                Err(fault)
            }
        }
    }

    /// An errand whose answer is wanted whole, and good.
    ///
    /// # Errors
    /// As above, and whatever is wrong with the answer; `AgentError` for a status that is no success.
    pub(super) async fn whole_errand(self: &Arc<Self>, world: &World, errand: Errand<'_>) -> Result<Whole> {
        let whole = self.errand(world, errand).await?.whole(self, world).await?;
        match whole.status.is_success() {
            true => Ok(whole),
            false => Err(Fault::new(Code::AgentError, "the agent failed").detail(whole.status)),
        }
    }

    async fn run(
        &self,
        world: &World,
        call: &mut Call,
        (errand, accept): (Errand<'_>, HeaderValue),
    ) -> Result<(Admitted, Reply, Instant)> {
        let Errand { shown, passage, agent, operation, input, instruction, until, .. } = errand;
        let shown_headers = shown.headers;
        call.count.bytes_in = input.len() as u64;
        let (agent, version) = agent.split_once('@').map_or((agent, None), |(agent, version)| (agent, Some(version)));
        let mut entry = self.enter(world, call, agent, shown).await?;
        let named = input::named(&entry.known.route, operation, shown_headers)?;
        let asked = versions::Asked::of(version, None, shown_headers, true)?;
        entry.known.version = entry.known.route.versions.choose(&asked)?;
        let most = deadline(call, &entry.known.route, shown_headers)?;
        let reading =
            Reading { gateway: self, route: &entry.known.route, rules: &world.contract, named, read: &call.read };
        // R111: objects and strings stay what they are there; what else an answer may be, such agents take in an object.
        let plain = matches!(input.trim_ascii_start().first(), Some(b'{' | b'"'));
        let apart = plain && entry.known.route.way.takes_instructions();
        let (within, instruction) = if apart { (None, instruction) } else { (instruction, None) };
        let (operation, input) = reading.bytes(instructed(input, within))?;
        let Input::Whole(input) = input else {
            return Err(Fault::new(Code::InvalidInput, "a batch is not taken here (send one input)"));
        };
        call.operates(operation);
        let admitted = entry.admit(operation, until.map_or(most, |until| until.min(most)));
        let mut headers = shown_headers.clone();
        as_json(&mut headers);
        headers.insert(header::ACCEPT, accept);
        let fields: Vec<_> = named_by_us(call, &admitted).collect();
        let told =
            Told { id: call.id(), headers: &headers, passage: Passage { fields: &fields, ..passage }, instruction };
        let asked = Instant::now();
        let reply = self.send(&admitted, told, Body::from(input)).await;
        call.count.agent_took = Some(asked.elapsed());
        Ok((admitted, reply?, asked))
    }
}

impl Fetched {
    /// The whole answer, judged; this ends the errand.
    ///
    /// # Errors
    /// The answer is a failure, breaks an enforced contract, or is too large to be held.
    pub(super) async fn whole(mut self, gateway: &Gateway, world: &World) -> Result<Whole> {
        let judge = Judge { gateway, rules: &world.contract, admitted: &self.admitted };
        let body = judge.whole(&mut self.reply).await;
        self.call.count.agent_took = Some(self.asked.elapsed());
        match body {
            Ok(body) => {
                self.ended(body.len() as u64);
                Ok(Whole { status: self.reply.status, headers: self.reply.headers, body })
            }
            Err(fault) => {
                self.call.stage = Stage::Refused(fault.clone());
                Err(fault)
            }
        }
    }

    /// The answer was passed on to its end, `bytes` long.
    pub(super) fn ended(&mut self, bytes: u64) {
        self.call.count.bytes_out = bytes;
        self.call.stage = Stage::Answered(self.reply.status.as_u16());
    }

    /// The answer broke off after it had begun to be passed on.
    pub(super) fn broke(&mut self, fault: Fault) {
        self.call.stage = Stage::Broken(self.reply.status.as_u16(), fault);
    }
}
