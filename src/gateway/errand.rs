//! Subrequests: calls that the gateway makes for a pipeline step, a WebSocket message or an MQTT task. A subrequest
//! takes every step that a request takes and has its own access-log entry; only its response is written by the code
//! that sends it.

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

/// A call that the gateway makes on behalf of a caller.
pub(super) struct Errand<'a> {
    /// The credentials and the other header fields of the caller.
    pub(super) shown: Shown<'a>,
    /// What the agent receives about the caller; the `fields` in it are replaced.
    pub(super) passage: Passage<'a>,
    /// The id of the call that this is a part of; `None` creates a new id.
    pub(super) id: Option<&'a str>,
    /// Whether this is a part of an admitted call, and so exempt from load shedding.
    pub(super) part: bool,
    /// The agent id, with an optional `@version`; not validated yet.
    pub(super) agent: &'a str,
    /// The operation; `None` leaves the choice to the input.
    pub(super) operation: Option<&'a str>,
    /// The input: one JSON value, not a batch.
    pub(super) input: Bytes,
    /// The instruction to the agent in words; inserted into the input if the agent's transport has no field for it.
    pub(super) instruction: Option<&'a str>,
    /// The deadline, if it is earlier than the agent's own.
    pub(super) until: Option<Instant>,
}

/// The reply to a subrequest, whose body is still unread. It holds the agent's concurrency permit until it is dropped.
pub(super) struct Fetched {
    call: Call,
    pub(super) admitted: Admitted,
    pub(super) reply: Reply,
    asked: Instant,
}

/// A reply that was read completely and validated.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) status: StatusCode,
    /// The header fields as the agent sent them.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Gateway {
    /// Sends a subrequest (steps 5 to 11) that accepts JSON.
    ///
    /// # Errors
    /// The faults that a request is refused with.
    pub(super) async fn errand(self: &Arc<Self>, world: &World, subrequest: Errand<'_>) -> Result<Fetched> {
        self.errand_accepting(world, subrequest, HeaderValue::from_static("application/json")).await
    }

    /// Sends a subrequest with this `Accept`.
    ///
    /// # Errors
    /// As [`Gateway::send_subrequest`].
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

    /// Sends a subrequest, reads its reply completely and requires a success status.
    ///
    /// # Errors
    /// As [`Gateway::send_subrequest`], the faults of the reply, and `AgentError` for a status that is not a success.
    pub(super) async fn whole_errand(self: &Arc<Self>, world: &World, errand: Errand<'_>) -> Result<Whole> {
        let whole = self.errand(world, errand).await?.whole(self, world).await?;
        match whole.status.is_success() {
            true => Ok(whole),
            false => Err(Fault::new(Code::AgentError, "The agent failed").detail(whole.status)),
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
        let requested = versions::Asked::of(version, None, shown_headers, true)?;
        entry.known.version = entry.known.route.versions.choose(&requested)?;
        let most = deadline(call, &entry.known.route, shown_headers)?;
        let reading =
            Reading { gateway: self, route: &entry.known.route, rules: &world.contract, named, read: &call.read };
        // R111: objects and strings stay unchanged there; agents receive any other value wrapped in an object.
        let plain = matches!(input.trim_ascii_start().first(), Some(b'{' | b'"'));
        let apart = plain && entry.known.route.way.takes_instructions();
        let (within, instruction) = if apart { (None, instruction) } else { (instruction, None) };
        let (operation, input) = reading.bytes(instructed(input, within))?;
        let Input::Whole(input) = input else {
            return Err(Fault::new(Code::InvalidInput, "A batch is not accepted here (send one input)"));
        };
        call.operates(operation);
        let admitted = entry.admit(operation, until.map_or(most, |until| until.min(most)));
        let mut headers = shown_headers.clone();
        as_json(&mut headers);
        headers.insert(header::ACCEPT, accept);
        let fields: Vec<_> = named_by_us(call, &admitted).collect();
        let told =
            Told { id: call.id(), headers: &headers, passage: Passage { fields: &fields, ..passage }, instruction };
        let sent_at = Instant::now();
        let reply = self.send(&admitted, told, Body::from(input)).await;
        call.count.agent_took = Some(sent_at.elapsed());
        Ok((admitted, reply?, sent_at))
    }
}

impl Fetched {
    /// Reads and validates the complete reply, and ends the subrequest.
    ///
    /// # Errors
    /// The reply is a failure, violates an enforced contract, or is too large.
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

    /// Records that the reply was passed on completely, `bytes` long.
    pub(super) fn ended(&mut self, bytes: u64) {
        self.call.count.bytes_out = bytes;
        self.call.stage = Stage::Answered(self.reply.status.as_u16());
    }

    /// Records that the reply broke off after the first part of it was passed on.
    pub(super) fn broke(&mut self, fault: Fault) {
        self.call.stage = Stage::Broken(self.reply.status.as_u16(), fault);
    }
}
