//! WebSockets of callers whose agent has none: each message is a call that takes every step of a call, one after the
//! other in order. While a message is answered the caller is watched, and at most one more message is read.

use super::{
    End, FAR, GOING, Sitting,
    message::{self, Form, Message},
    ruling::too_large,
    stream::Cutter,
};
use crate::{
    fault::{Code, Fault, Result},
    gateway::{
        World,
        admit::Shown,
        errand::{Errand, Fetched},
        judge::Judge,
        normalise::may_hide_failure,
        stream::is_sequence,
    },
    transport::{Came, Leg, Passage, Reply, ReplyBody},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{pin::pin, sync::Arc};
use tokio::time::{Instant, sleep_until};

/// The default `Accept` towards agents.
const ANY: HeaderValue = HeaderValue::from_static("application/json, application/x-ndjson, text/event-stream");

/// A caller's connection, and one message that arrived while another was answered.
struct Line<'a> {
    leg: &'a mut Leg,
    held: Option<Came>,
}

impl Line<'_> {
    /// Runs `work` while watching the caller.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> std::result::Result<T, Came> {
        let mut work = pin!(work);
        loop {
            if self.held.is_some() {
                let done = work.as_mut().await;
                self.leg.tick(false);
                return Ok(done);
            }
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                came = self.leg.next() => match came {
                    Came::Text(_) | Came::Binary(_) => self.held = Some(came),
                    over => return Err(over),
                },
            }
        }
    }

    async fn say(&mut self, text: Option<String>) -> std::result::Result<(), Came> {
        let Some(text) = text else { return Ok(()) };
        self.leg.text(text);
        self.leg.flush().await.map_err(Came::Lost)
    }
}

/// Returns how the session ends when the caller's side does.
fn ended(came: Came) -> End {
    match came {
        Came::Lost(lost) => End::Caller(lost),
        _ => End::Order(None),
    }
}

impl Sitting {
    pub(super) async fn calls(&mut self, caller: &mut Leg) -> End {
        let mut line = Line { leg: caller, held: None };
        loop {
            let came = match line.held.take() {
                Some(came) => came,
                None => match self.wait(line.leg).await {
                    Ok(came) => came,
                    Err(end) => return end,
                },
            };
            if self.connection.draining() {
                return End::Order(Some(GOING));
            }
            let done = match came {
                Came::Text(text) => self.answer(text.as_str(), &mut line).await,
                Came::Binary(_) => {
                    let fault =
                        Fault::new(Code::UnsupportedMediaType, "This agent accepts text (send JSON as a text message)");
                    line.say(Form::Plain.fault(&fault, self.call.id())).await
                }
                over => Err(over),
            };
            if let Err(over) = done {
                return ended(over);
            }
        }
    }

    /// Waits for the next message, or returns why there is none.
    async fn wait(&self, leg: &mut Leg) -> std::result::Result<Came, End> {
        let (over, farewell) = self.over(Instant::now());
        let over = over.min(Instant::now() + 24 * FAR);
        tokio::select! {
            biased;
            () = self.connection.stopping() => Err(End::Order(Some(GOING))),
            came = leg.next() => Ok(came),
            () = sleep_until(over) => Err(End::Order(Some(farewell))),
        }
    }

    /// Makes one call and sends its answer. An error is the end of the caller's side, and drops the call.
    async fn answer(&self, text: &str, line: &mut Line<'_>) -> std::result::Result<(), Came> {
        let world = self.gateway.world.load_full();
        let known = self.gateway.catalogue.load().get(&self.agent).cloned();
        let message = match &known {
            Some(route) => message::read(text, route),
            // The subrequest refuses a call to an agent that does not exist.
            None => Message { operation: None, input: Bytes::from(text.to_owned()), form: message::form(text) },
        };
        let form = message.form.clone();
        let told = match line.during(self.fetch(&world, message)).await? {
            Ok(fetched) if is_sequence(&fetched.reply.headers) && fetched.reply.status.is_success() => {
                return self.parts(&world, fetched, &form, line).await;
            }
            Ok(fetched) => line.during(self.whole(&world, fetched, &form)).await?,
            Err(fault) => Err(fault),
        };
        match told {
            Ok(Told::Text(text)) => line.say(text).await,
            Ok(Told::Bytes(bytes)) => {
                line.leg.binary(bytes);
                line.leg.flush().await.map_err(Came::Lost)
            }
            Err(fault) => line.say(form.fault(&fault, self.call.id())).await,
        }
    }

    async fn fetch(&self, world: &World, message: Message) -> Result<Fetched> {
        let address = self.connection.peer.ip();
        // A message counts as a request of this address.
        self.gateway.limits.address(address)?;
        let shown = Shown { headers: &self.headers, peer: self.connection.certificate(), address };
        let errand = Errand {
            shown,
            passage: Passage { forwarded: Some(&self.forwarded), key_header: world.key_header.as_ref(), fields: &[] },
            id: Some(self.call.id()),
            part: false,
            agent: &self.agent,
            operation: message.operation.as_deref().or(self.operation.as_deref()),
            input: message.input,
            instruction: None,
            until: None,
        };
        let accept = self.headers.get(header::ACCEPT).cloned().unwrap_or(ANY);
        self.gateway.errand_accepting(world, errand, accept).await
    }

    async fn whole(&self, world: &World, fetched: Fetched, form: &Form) -> Result<Told> {
        let whole = fetched.whole(&self.gateway, world).await?;
        let most = self.config.max_message_size.get();
        if whole.body.len() > most {
            return Err(too_large());
        }
        Ok(match std::str::from_utf8(&whole.body) {
            // Every message gets an answer, so that callers can match answers to messages by order.
            Ok("") => Told::Text(form.answer("null")),
            Ok(text) => Told::Text(form.answer(text)),
            Err(_) => Told::Bytes(whole.body),
        })
    }

    /// Sends a streamed answer part by part, with back-pressure from the caller.
    async fn parts(
        &self,
        world: &Arc<World>,
        mut fetched: Fetched,
        form: &Form,
        line: &mut Line<'_>,
    ) -> std::result::Result<(), Came> {
        let mut cutter = Cutter::of(&fetched.reply.headers, self.config.max_message_size.get());
        let mut bytes = 0;
        loop {
            let chunk = line.during(fetched.reply.body.chunk()).await?;
            let (parts, over) = match chunk {
                Some(Ok(chunk)) => {
                    bytes += chunk.len() as u64;
                    (cutter.push(&chunk), false)
                }
                Some(Err(fault)) => (Err(fault), true),
                None => (cutter.rest().map(|rest| rest.into_iter().collect()), true),
            };
            let parts = match parts {
                Ok(parts) => parts,
                Err(fault) => {
                    fetched.broke(fault.clone());
                    return line.say(form.fault(&fault, self.call.id())).await;
                }
            };
            for part in parts {
                let told = match self.hidden_in(world, &fetched, &part) {
                    Some(fault) => Form::Plain.fault(&fault, self.call.id()).and_then(|told| form.part(&told)),
                    None => form.part(&part),
                };
                line.say(told).await?;
            }
            if over {
                fetched.ended(bytes);
                return line.say(form.end(self.config.end_marker.as_deref())).await;
            }
        }
    }

    /// Returns the fault if a part of an answer is an embedded error (R41).
    fn hidden_in(&self, world: &World, fetched: &Fetched, part: &str) -> Option<Fault> {
        if !may_hide_failure(part.as_bytes()) {
            return None;
        }
        let body = ReplyBody::from(Bytes::new());
        let reply = Reply { status: StatusCode::OK, headers: HeaderMap::new(), body };
        let judge = Judge { gateway: &self.gateway, rules: &world.contract, admitted: &fetched.admitted };
        judge.verdict(&reply, part.as_bytes(), true).err()
    }
}

/// The answer to a message.
enum Told {
    Text(Option<String>),
    Bytes(Bytes),
}
