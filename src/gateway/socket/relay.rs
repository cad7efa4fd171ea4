//! An agent that has a WebSocket itself: messages pass both ways, no faster than the other side takes them. What may
//! pass is for `ruling`; what may not is answered in the gateway's words.

use super::{
    End, GOING, Sitting,
    message::{self, Form},
    ruling::{Rules, Ruling, too_large},
};
use crate::{
    fault::{Code, Fault, public_text},
    gateway::admit::Admitted,
    transport::{Came, Leg, Lost, Socket},
};
use std::{future::poll_fn, task::Poll, time::Duration};
use tokio::time::{Instant, sleep_until};

/// Refusals that wait for a caller; with more, nothing is read from it.
const MOST_QUEUED: u32 = 16;

/// How often it is asked at least whether a caller that says nothing may still be here.
const AGAIN: Duration = Duration::from_secs(30);

/// What is said to one that may not.
const EXPELLED: (u16, &str) = (1008, "the caller may not call this agent any more");

/// What happened.
enum Turn {
    Caller(Came),
    Agent(Came),
    Tick,
    Stop,
}

impl Sitting {
    pub(super) async fn relay(&mut self, caller: &mut Leg, socket: Socket, admitted: &Admitted) -> End {
        let Socket { leg: mut agent, frames, check, .. } = socket;
        let rules = Rules { frames, check };
        let mut since = Instant::now();
        let mut again = since + AGAIN;
        let end = loop {
            let ((over, farewell), now) = (self.over(since), Instant::now());
            if over <= now {
                break End::Order(Some(farewell));
            }
            if again <= now {
                again = now + AGAIN;
                if let Some(fault) = self.expelled().await {
                    self.tell(caller, &Form::Plain, &fault);
                    break End::Order(Some(EXPELLED));
                }
            }
            match self.turn(caller, &mut agent, over.min(again)).await {
                Turn::Stop => break End::Order(Some(GOING)),
                Turn::Tick => {
                    caller.tick(agent.queued() == 0);
                    agent.tick(caller.queued() == 0);
                    // Nobody has said anything for a while.
                    again = Instant::now();
                    continue;
                }
                Turn::Caller(Came::Closed(close)) => {
                    self.part(agent, Some((close.map_or(1000, |(code, _)| code), "")));
                    return End::Order(None);
                }
                Turn::Caller(Came::Lost(lost)) => break End::Caller(lost),
                Turn::Caller(came) => {
                    if let Some(end) = self.pass_on(came, caller, &mut agent, rules).await {
                        break end;
                    }
                }
                Turn::Agent(came @ (Came::Text(_) | Came::Binary(_))) => {
                    self.pass_back(came, caller, (admitted, rules));
                }
                Turn::Agent(Came::Closed(close)) => {
                    self.part(agent, None);
                    return self.left(caller, close).await;
                }
                Turn::Agent(Came::Lost(lost)) => {
                    let fault = lost.fault();
                    self.part(agent, lost.farewell());
                    return self.failed(caller, fault).await;
                }
            }
            since = Instant::now();
        };
        // Nobody waits for its word: the caller is told at once.
        self.part(agent, Some((1001, "")));
        end
    }

    /// Ends the agent's side, which nobody waits for unless the gateway stops.
    fn part(&mut self, agent: Leg, why: Option<(u16, &'static str)>) {
        self.parting = Some(tokio::spawn(agent.end(why)));
    }

    /// Waits for either side. A side is read from only when the other has taken what it was sent.
    async fn turn(&self, caller: &mut Leg, agent: &mut Leg, over: Instant) -> Turn {
        let due = over.min(caller.due()).min(agent.due());
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
        let (text, size) = match &came {
            Came::Text(text) => (Some(text.as_str()), text.len()),
            Came::Binary(bytes) => (None, bytes.len()),
            Came::Closed(_) | Came::Lost(_) => (None, 0),
        };
        let ruling = match agent.takes(size) {
            true => self.ruling(text, rules).await,
            false => Ruling::Refuse(Fault::new(Code::PayloadTooLarge, "the message is too large for this agent")),
        };
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
        let form = text.map_or(Form::Plain, message::form);
        self.tell(caller, &form, &fault);
        expelled.then_some(End::Order(Some(EXPELLED)))
    }

    /// Passes a message to the caller, or what it is told instead.
    fn pass_back(&self, came: Came, caller: &mut Leg, (admitted, rules): (&Admitted, Rules)) {
        match came {
            Came::Text(text) if caller.takes(text.len()) => match self.instead(text.as_str(), admitted, rules) {
                Some(told) => caller.text(told),
                None => caller.text(text),
            },
            Came::Binary(bytes) if caller.takes(bytes.len()) => caller.binary(bytes),
            _ => self.tell(caller, &Form::Plain, &too_large()),
        }
    }

    fn tell(&self, caller: &mut Leg, form: &Form, fault: &Fault) {
        if let Some(told) = form.fault(fault, self.call.id()) {
            caller.text(told);
        }
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
        self.tell(caller, &Form::Plain, &fault);
        // Where it takes nothing, it is not told.
        if let Err(lost @ Lost::Slow) = caller.flush().await {
            return End::Caller(lost);
        }
        End::Agent(fault)
    }
}
