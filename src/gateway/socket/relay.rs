//! An agent that has a WebSocket itself: messages pass both ways, no faster than the other side takes them. A message
//! of the caller's counts as a call and is checked where the operation has a schema; what is refused is answered and
//! not passed on. A failure of the agent's is told in the gateway's words.

use super::{
    End, FAR, GOING, Sitting,
    message::{self, Form},
};
use crate::{
    agent::Status,
    fault::{Code, Fault, Result, public_text},
    gateway::{
        admit::{Admitted, Shown},
        input::Reading,
        judge::Judge,
        normalise::may_hide_failure,
        route::Route,
    },
    transport::{Came, Frames, Leg, Lost, Reply, ReplyBody, Socket},
};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use std::{
    future::poll_fn,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    task::Poll,
};
use tokio::time::{Instant, sleep_until};

/// Refusals that wait for a caller; with more, nothing is read from it.
const MOST_QUEUED: u32 = 16;

/// What happened.
enum Turn {
    Caller(Came),
    Agent(Came),
    Tick,
    Stop,
}

/// What becomes of a message of the caller's.
enum Ruling {
    Pass,
    Refuse(Fault),
    /// The caller may not be here any more.
    Expel(Fault),
}

impl Sitting {
    pub(super) async fn relay(&mut self, caller: &mut Leg, socket: Socket, admitted: &Admitted) -> End {
        let Socket { leg: mut agent, frames, check, .. } = socket;
        let rules = Rules { frames, check };
        let mut since = Instant::now();
        let end = loop {
            let (over, farewell) = self.over(since);
            if over <= Instant::now() {
                break End::Order(Some(farewell));
            }
            match self.turn(caller, &mut agent, over).await {
                Turn::Stop => break End::Order(Some(GOING)),
                Turn::Tick => {
                    caller.tick(agent.queued() == 0);
                    agent.tick(caller.queued() == 0);
                    continue;
                }
                Turn::Caller(Came::Closed(close)) => {
                    tokio::spawn(agent.end(Some((close.map_or(1000, |(code, _)| code), ""))));
                    return End::Order(None);
                }
                Turn::Caller(Came::Lost(lost)) => break End::Caller(lost),
                Turn::Caller(came) => {
                    if let Some(end) = self.pass_on(came, caller, &mut agent, rules).await {
                        break end;
                    }
                }
                Turn::Agent(Came::Text(text)) => {
                    let fault = self.hidden(text.as_str(), admitted).await;
                    match fault.and_then(|fault| Form::Plain.fault(&fault, self.call.id())) {
                        Some(told) => caller.text(told),
                        None => caller.text(text),
                    }
                }
                Turn::Agent(Came::Binary(bytes)) => caller.binary(bytes),
                Turn::Agent(Came::Closed(close)) => {
                    tokio::spawn(agent.end(None));
                    return self.left(caller, close).await;
                }
                Turn::Agent(Came::Lost(lost)) => {
                    let fault = lost.fault();
                    tokio::spawn(agent.end(lost.farewell()));
                    return self.failed(caller, fault).await;
                }
            }
            since = Instant::now();
        };
        // Nobody waits for its word: the caller is told at once.
        tokio::spawn(agent.end(Some((1001, ""))));
        end
    }

    /// Waits for either side. A side is read from only when the other has taken what it was sent.
    async fn turn(&self, caller: &mut Leg, agent: &mut Leg, over: Instant) -> Turn {
        let due = over.min(caller.due()).min(agent.due()).min(Instant::now() + FAR);
        let either = poll_fn(|task| {
            caller.poll_flush(task);
            agent.poll_flush(task);
            let (to_agent, to_caller) = (agent.queued() == 0, caller.queued() == 0);
            if (caller.is_lost() || to_agent && caller.queued() < MOST_QUEUED)
                && let Poll::Ready(came) = caller.poll_next(task)
            {
                return Poll::Ready(Turn::Caller(came));
            }
            if (agent.is_lost() || to_caller)
                && let Poll::Ready(came) = agent.poll_next(task)
            {
                return Poll::Ready(Turn::Agent(came));
            }
            Poll::Pending
        });
        tokio::select! {
            biased;
            () = self.connection.stopping() => Turn::Stop,
            turn = either => turn,
            () = sleep_until(due) => Turn::Tick,
        }
    }

    /// Passes a message to the agent, or tells the caller why not.
    async fn pass_on(&mut self, came: Came, caller: &mut Leg, agent: &mut Leg, rules: Rules) -> Option<End> {
        let text = match &came {
            Came::Text(text) => Some(text.as_str()),
            _ => None,
        };
        let (ruling, form) = (self.ruling(text, rules).await, text.map_or(Form::Plain, message::form));
        let (fault, expelled) = match ruling {
            Ruling::Pass => {
                match came {
                    Came::Text(text) => agent.text(text),
                    Came::Binary(bytes) => agent.binary(bytes),
                    Came::Closed(_) | Came::Lost(_) => {}
                }
                return None;
            }
            Ruling::Refuse(fault) => (fault, false),
            Ruling::Expel(fault) => (fault, true),
        };
        if let Some(told) = form.fault(&fault, self.call.id()) {
            caller.text(told);
        }
        expelled.then_some(End::Order(Some((1008, "the caller may not call this agent any more"))))
    }

    /// Whether a message may pass: the caller may still call the agent, has calls left, and the input fits.
    async fn ruling(&mut self, text: Option<&str>, rules: Rules) -> Ruling {
        let gateway = Arc::clone(&self.gateway);
        let world = gateway.world.load_full();
        let address = self.connection.peer.ip();
        let shown = Shown { headers: &self.headers, peer: self.connection.certificate(), address };
        let (route, who) = match gateway.look(&world, &self.agent, &shown).await {
            Ok(known) => known,
            Err((_, fault)) => return Ruling::Expel(fault),
        };
        if route.agent().status == Status::Inactive {
            return Ruling::Refuse(Fault::new(Code::AgentUnavailable, "the agent is not active"));
        }
        let account = gateway.account(&who, address);
        if let Err(fault) = gateway.limits.admit(&route.limits, &account, NonZeroU32::MIN) {
            return Ruling::Refuse(fault);
        }
        match self.check(text, &route, rules) {
            Ok(()) => Ruling::Pass,
            Err(fault) => Ruling::Refuse(fault),
        }
    }

    /// Step 8, for a message.
    fn check(&self, text: Option<&str>, route: &Route, Rules { frames, check }: Rules) -> Result<()> {
        let declared = route.operations.iter().any(|operation| operation.contract.input.is_some());
        if !check.unwrap_or(declared) || !declared {
            return Ok(());
        }
        let text = text.ok_or_else(|| {
            Fault::new(Code::UnsupportedMediaType, "this agent's input is checked (send JSON as a text message)")
        })?;
        let world = self.gateway.world.load();
        let path = self.operation.as_deref();
        let named = crate::gateway::input::named(route, path, &self.headers)?;
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
            Frames::Ndjson => {
                let mut lines = text.split('\n').map(str::trim).filter(|line| !line.is_empty());
                lines.try_for_each(|line| judge(named, Bytes::from(line.to_owned())))
            }
        }
    }

    /// The failure that an agent's message tells of, if it does (R41).
    async fn hidden(&self, text: &str, admitted: &Admitted) -> Option<Fault> {
        if !may_hide_failure(text.as_bytes()) {
            return None;
        }
        let body = ReplyBody::from(Bytes::new());
        let reply = Reply { status: StatusCode::OK, headers: HeaderMap::new(), body };
        let world = self.gateway.world.load();
        let judge = Judge { gateway: &self.gateway, rules: &world.contract, admitted };
        judge.verdict(&reply, text.as_bytes(), true).err()
    }

    /// The agent closed in order, or with a reason.
    async fn left(&self, caller: &mut Leg, close: Option<(u16, String)>) -> End {
        let Some((code, reason)) = close else { return End::Order(Some((1000, ""))) };
        tracing::debug!(code, reason = public_text(&reason), "an agent closed its socket");
        match code {
            1000 | 1001 | 1012 | 1013 | 3000..=4999 => End::Order(Some((code, ""))),
            code => {
                let detail = format!("the agent closed with {code}: {reason}");
                let fault = Fault::new(Code::AgentError, "The agent closed the connection.").detail(detail);
                self.failed(caller, fault).await
            }
        }
    }

    /// Tells a caller that its agent is gone.
    async fn failed(&self, caller: &mut Leg, fault: Fault) -> End {
        if let Some(told) = Form::Plain.fault(&fault, self.call.id()) {
            caller.text(told);
            // Where it takes nothing, it is not told.
            if let Err(lost @ Lost::Slow) = caller.flush().await {
                return End::Caller(lost);
            }
        }
        End::Agent(fault)
    }
}

/// How an agent's messages look, and whether they are checked.
#[derive(Clone, Copy)]
struct Rules {
    frames: Frames,
    check: Option<bool>,
}
