//! WebSockets of callers whose agent has one too: relays messages in both directions with back-pressure.
//! `message_policy` decides which messages pass; for the others the caller receives a fault.

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

/// The most refusals queued for a caller; with more, nothing is read from it.
const MOST_QUEUED: u32 = 16;

/// The longest interval between two checks whether a silent caller is still authorised.
const AGAIN: Duration = Duration::from_secs(30);

/// The close frame for a caller that is no longer authorised.
const EXPELLED: (u16, &str) = (1008, "The caller may no longer call this agent");

/// The next event of a relay.
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
                    // Both sides were silent for a while: check the authorisation now.
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
        // The caller is told at once, without waiting for the agent's close frame.
        self.part(agent, Some((1001, "")));
        end
    }

    /// Closes the agent's side in the background; only a shutdown waits for it.
    fn part(&mut self, agent: Leg, why: Option<(u16, &'static str)>) {
        self.parting = Some(tokio::spawn(agent.end(why)));
    }

    /// Waits for either side. A side is read from only when the other side has taken everything that was sent to it.
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

    /// Forwards a message to the agent, or sends the caller the fault.
    async fn pass_on(&mut self, came: Came, caller: &mut Leg, agent: &mut Leg, rules: Rules) -> Option<End> {
        let (text, size) = match &came {
            Came::Text(text) => (Some(text.as_str()), text.len()),
            Came::Binary(bytes) => (None, bytes.len()),
            Came::Closed(_) | Came::Lost(_) => (None, 0),
        };
        let ruling = match agent.takes(size) {
            true => self.ruling(text, rules).await,
            false => Ruling::Refuse(Fault::new(Code::PayloadTooLarge, "The message is too large for this agent")),
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

    /// Forwards a message to the caller, or its replacement.
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

    /// Ends the session after the agent's close frame.
    async fn left(&self, caller: &mut Leg, close: Option<(u16, String)>) -> End {
        let Some((code, reason)) = close else { return End::Order(Some((1000, ""))) };
        tracing::debug!(code, reason = public_text(&reason), "agent closed its WebSocket");
        match code {
            1000 | 1001 | 1012 | 1013 | 3000..=4999 => End::Order(Some((code, ""))),
            code => {
                let detail = format!("the agent closed with {code}: {reason}");
                let fault = Fault::new(Code::AgentError, "The agent closed the connection").detail(detail);
                self.failed(caller, fault).await
            }
        }
    }

    /// Tells the caller that the agent's connection is lost.
    async fn failed(&self, caller: &mut Leg, fault: Fault) -> End {
        self.tell(caller, &Form::Plain, &fault);
        // A caller that has stopped reading does not receive the fault.
        if let Err(lost @ Lost::Slow) = caller.flush().await {
            return End::Caller(lost);
        }
        End::Agent(fault)
    }
}
