//! The policy for relayed WebSocket messages. A caller's message counts as the calls in it and is validated if the
//! operation has a schema. An agent's message is replaced if it is an embedded error (R41) or, where that is
//! configured, if it violates the output schema.

use super::{
    Sitting,
    message::{self, Form},
};
use crate::{
    agent::Status,
    fault::{Code, Fault, Result},
    gateway::{
        World,
        admit::{Admitted, Shown},
        input::{Reading, named},
        judge::Judge,
        normalise::may_hide_failure,
        route::Route,
    },
    transport::{Frames, Reply, ReplyBody},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use std::{num::NonZeroU32, sync::OnceLock};

/// The framing of an agent's messages, and whether messages are validated; by default the caller's are, if the
/// operation has a schema.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) frames: Frames,
    pub(super) check: Option<bool>,
}

/// The decision about a caller's message.
pub(super) enum Ruling {
    Pass,
    Refuse(Fault),
    /// The caller is no longer authorised; the WebSocket closes.
    Expel(Fault),
}

impl Sitting {
    /// Decides whether a message may pass: the caller is still authorised, is within its limits, and the input is
    /// valid.
    pub(super) async fn ruling(&self, text: Option<&str>, rules: Rules) -> Ruling {
        let gateway = &self.gateway;
        let address = self.connection.peer.ip();
        if let Err(fault) = gateway.limits.address(address) {
            return Ruling::Refuse(fault);
        }
        let world = gateway.world.load_full();
        let (route, who) = match gateway.look(&world, &self.agent, &self.shown()).await {
            Ok(known) => known,
            Err((_, fault)) if is_final(&fault) => return Ruling::Expel(fault),
            Err((_, fault)) => return Ruling::Refuse(fault),
        };
        if route.agent().status == Status::Inactive {
            return Ruling::Refuse(Fault::new(Code::AgentUnavailable, "The agent is not active"));
        }
        let account = gateway.account(&who, address);
        let calls = text.map_or(NonZeroU32::MIN, |text| calls(text, rules.frames));
        if let Err(fault) = gateway.limits.admit(&route.limits, &account, calls) {
            return Ruling::Refuse(fault);
        }
        match self.check(&world, text, &route, rules) {
            Ok(()) => Ruling::Pass,
            Err(fault) => Ruling::Refuse(fault),
        }
    }

    /// Returns the fault if the caller is no longer authorised. A failure to find out is not a reason.
    pub(super) async fn expelled(&self) -> Option<Fault> {
        let world = self.gateway.world.load_full();
        let looked = self.gateway.look(&world, &self.agent, &self.shown()).await;
        looked.err().map(|(_, fault)| fault).filter(is_final)
    }

    fn shown(&self) -> Shown<'_> {
        Shown { headers: &self.headers, peer: self.connection.certificate(), address: self.connection.peer.ip() }
    }

    /// Validates a message (step 8).
    fn check(&self, world: &World, text: Option<&str>, route: &Route, Rules { frames, check }: Rules) -> Result<()> {
        let declared = route.operations.iter().any(|operation| operation.contract.input.is_some());
        if !check.unwrap_or(declared) || !declared {
            return Ok(());
        }
        let text = text.ok_or_else(|| {
            Fault::new(Code::UnsupportedMediaType, "This agent's input is validated (send JSON as a text message)")
        })?;
        let named = named(route, self.operation.as_deref(), &self.headers)?;
        let judge = |named: Option<usize>, input: Bytes| {
            Reading { gateway: &self.gateway, route, rules: &world.contract, named, read: &OnceLock::new() }
                .bytes(input)
                .map(drop)
        };
        match frames {
            Frames::JsonRpc => match message::checked(text, route)? {
                Some((by_method, input)) => judge(by_method.or(named), input),
                None => Ok(()),
            },
            Frames::Bare => judge(named, Bytes::from(text.to_owned())),
            Frames::Ndjson => lines(text).try_for_each(|line| judge(named, Bytes::from(line.to_owned()))),
        }
    }

    /// Returns the text that replaces an agent's message; `None` passes the message.
    pub(super) fn instead(&self, text: &str, admitted: &Admitted, rules: Rules) -> Option<String> {
        let several = rules.frames == Frames::Ndjson && text.trim_ascii().contains('\n');
        if !several {
            return self.told(text, admitted, rules);
        }
        // Any of the lines may be an embedded error.
        let (mut all, mut changed) = (String::with_capacity(text.len()), false);
        for line in lines(text) {
            let told = self.told(line, admitted, rules);
            changed |= told.is_some();
            all.push_str(told.as_deref().unwrap_or(line));
            all.push('\n');
            if changed && all.len() > self.config.max_message_size.get() {
                return Form::Plain.fault(&too_large(), self.call.id());
            }
        }
        changed.then_some(all)
    }

    fn told(&self, text: &str, admitted: &Admitted, rules: Rules) -> Option<String> {
        let world = self.gateway.world.load();
        let judge = Judge { gateway: &self.gateway, rules: &world.contract, admitted };
        if may_hide_failure(text.as_bytes()) {
            let body = ReplyBody::from(Bytes::new());
            let reply = Reply { status: StatusCode::OK, headers: HeaderMap::new(), body };
            if let Err(fault) = judge.verdict(&reply, text.as_bytes(), true) {
                return Form::Plain.fault(&fault, self.call.id());
            }
        }
        // Only if configured, and only if the answering operation is known.
        if rules.check != Some(true)
            || !matches!(named(admitted.agent(), self.operation.as_deref(), &self.headers), Ok(Some(_)))
        {
            return None;
        }
        let (form, output) = match rules.frames {
            Frames::JsonRpc => message::result(text)?,
            Frames::Bare | Frames::Ndjson => (Form::Plain, text),
        };
        let broken = judge.contract(output.as_bytes()).err()?;
        form.fault(&broken, self.call.id())
    }
}

/// Returns whether a refusal also holds for every later message.
fn is_final(fault: &Fault) -> bool {
    matches!(fault.code(), Code::Unauthorized | Code::PermissionDenied | Code::NotFound)
}

pub(super) fn too_large() -> Fault {
    Fault::new(Code::AgentError, "The agent's answer is too large")
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').map(str::trim).filter(|line| !line.is_empty())
}

/// Returns how many calls a message makes: each line is one, and each item of a JSON-RPC batch.
fn calls(text: &str, frames: Frames) -> NonZeroU32 {
    let count = match frames {
        Frames::Bare => 1,
        Frames::Ndjson => lines(text).count(),
        Frames::JsonRpc if text.trim_ascii_start().starts_with('[') => {
            serde_json::from_str::<Vec<&RawValue>>(text).map_or(1, |items| items.len())
        }
        Frames::JsonRpc => 1,
    };
    u32::try_from(count).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}
