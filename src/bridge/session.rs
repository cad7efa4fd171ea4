//! One agent's conversation with its broker: subscribed, then available (R118), then task after task (R120), until it is
//! lost or the agent leaves (R119). Nothing is awaited between two messages but messages: whatever is said is said by
//! tasks of their own, as many as there may be.

use super::{
    Asked, Card, House,
    presence::Offer,
    task::{Arrived, Desk, Told, Verdict},
    topic,
    words::{self, Failure, Kind},
};
use crate::broker::{Message, Speaker, Words};
use serde_json::{Value, value::RawValue};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// Refusals that may be under way; beyond them, messages are dropped.
const REFUSALS: usize = 64;
/// How long an answer waits for a connection.
const BELATED: Duration = Duration::from_secs(30);
/// How often a status that another has published is put right, at most.
const HEALING: Duration = Duration::from_secs(1);
/// Dropped messages that are logged in one second.
const LOGGED: u32 = 10;

/// How a conversation ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The agent said that it is not available, and good-bye.
    Left,
    /// The connection is gone.
    Lost(String),
}

type Line = watch::Sender<Option<Speaker>>;
type Cards = watch::Receiver<Option<Arc<Card>>>;

/// What outlives connections: tasks in hand, and what was seen of them.
pub(super) struct Session {
    desk: Desk,
    agent: String,
    base: String,
    house: Arc<dyn House>,
    turns: Arc<Semaphore>,
    most: usize,
    tasks: JoinSet<()>,
    /// The connection of the moment, for answers.
    line: Line,
    logged: (Instant, u32),
}

impl Session {
    pub(super) fn new(desk: Desk, offer: &Offer, house: &Arc<dyn House>) -> Self {
        let concurrency = usize::from(offer.config.concurrency.get());
        Self {
            agent: desk.agent().to_owned(),
            desk,
            base: offer.address.base(),
            house: Arc::clone(house),
            turns: Arc::new(Semaphore::new(concurrency)),
            most: concurrency + usize::from(offer.config.waiting),
            tasks: JoinSet::new(),
            line: watch::channel(None).0,
            logged: (Instant::now(), 0),
        }
    }

    /// One conversation from its beginning to its end.
    pub(super) async fn converse(
        &mut self,
        (speaker, mut words): (Speaker, Words),
        cards: &mut Cards,
        linger: Duration,
    ) -> Ended {
        let ended = match self.appear(&speaker, &mut words, cards).await {
            Ok(()) => self.attend(&speaker, &mut words, cards).await,
            Err(why) => Ended::Lost(why),
        };
        if matches!(ended, Ended::Left) {
            self.leave(&speaker, &mut words, linger).await;
        }
        self.line.send_replace(None);
        ended
    }

    /// Subscribes, and says that the agent is available only after the broker has granted it (R118).
    async fn appear(&mut self, speaker: &Speaker, words: &mut Words, cards: &mut Cards) -> Result<(), String> {
        let (input, status) = (topic::input(&self.agent), topic::status(&self.agent));
        // The spelling without the first slash is another topic to a broker, and the same to the protocol (R109).
        let filters = [input.as_str(), input.trim_start_matches('/'), status.as_str()];
        let granted = speaker.subscribe(&filters).await.map_err(|why| why.to_string())?;
        if granted.first() != Some(&true) {
            return Err(format!("the broker does not let the gateway read {input}"));
        }
        self.line.send_replace(Some(speaker.clone()));
        let card = cards.borrow_and_update().clone();
        let Some(card) = card else { return Ok(()) };
        let available = speaker.publish(&status, words::status(&self.agent, Some(&card)), true);
        let mut available = std::pin::pin!(available);
        loop {
            // Messages are taken from the first moment, or the broker's acknowledgement could not come through.
            tokio::select! {
                said = &mut available => {
                    said.map_err(|why| why.to_string())?;
                    tracing::info!(agent = self.agent, broker = self.base, "an agent is offered");
                    return Ok(());
                }
                message = words.next() => { self.take(&message?); }
            }
        }
    }

    /// Takes tasks until the connection is lost, or the agent is to leave.
    async fn attend(&mut self, speaker: &Speaker, words: &mut Words, cards: &mut Cards) -> Ended {
        let (mut heal, mut healed) = (false, Instant::now());
        loop {
            tokio::select! {
                message = words.next() => match message {
                    Ok(message) => heal |= self.take(&message),
                    Err(why) => return Ended::Lost(why),
                },
                changed = cards.changed() => match changed {
                    Ok(()) if cards.borrow().is_some() => heal = true,
                    _ => return Ended::Left,
                },
                () = tokio::time::sleep_until((healed + HEALING).into()), if heal => {
                    (heal, healed) = (false, Instant::now());
                    let card = cards.borrow_and_update().clone();
                    let Some(card) = card else { return Ended::Left };
                    self.say(speaker.clone(), words::status(&self.agent, Some(&card)));
                }
                Some(done) = self.tasks.join_next() => finished(done),
            }
        }
    }

    /// Says that the agent is not available, finishes what is in hand, and says good-bye (R119).
    async fn leave(&mut self, speaker: &Speaker, words: &mut Words, linger: Duration) {
        let until = tokio::time::Instant::now() + linger;
        let (status, input) = (topic::status(&self.agent), topic::input(&self.agent));
        let unavailable = words::status(&self.agent, None);
        let said = async {
            speaker.publish(&status, unavailable, true).await?;
            speaker.unsubscribe(&[&input]).await?;
            speaker.unsubscribe(&[input.trim_start_matches('/')]).await
        };
        let mut said = std::pin::pin!(said);
        // What comes until then came to an agent that was available.
        while let Some(message) = tokio::select! {
            said = &mut said => said.map_err(|why| tracing::debug!(%why, "an agent could not take its leave")).ok().and(None),
            message = words.next() => message.ok(),
        } {
            self.take(&message);
        }
        self.settle(speaker, words, until).await;
        tracing::info!(agent = self.agent, broker = self.base, "an agent is offered no longer");
    }

    /// Whether there are tasks in hand.
    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Finishes what is in hand on another connection.
    pub(super) async fn finish(&mut self, (speaker, mut words): (Speaker, Words), linger: Duration) {
        self.line.send_replace(Some(speaker.clone()));
        self.settle(&speaker, &mut words, tokio::time::Instant::now() + linger).await;
    }

    /// Waits for the tasks in hand, and says good-bye.
    async fn settle(&mut self, speaker: &Speaker, words: &mut Words, until: tokio::time::Instant) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(done) = self.tasks.join_next() => finished(done),
                // Nothing that counts comes any more, but acknowledgements have to come through.
                message = words.next() => if message.is_err() { break },
                () = tokio::time::sleep_until(until) => {
                    tracing::warn!(agent = self.agent, "an agent leaves with tasks in hand that did not finish in time");
                    self.tasks.shutdown().await;
                }
            }
        }
        speaker.disconnect().await;
    }

    /// Lets tasks in hand go on while there is no connection.
    pub(super) async fn rest(&mut self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                Some(done) = self.tasks.join_next() => finished(done),
            }
        }
    }

    /// Takes in one message; whether the agent's status has to be put right.
    fn take(&mut self, message: &Message) -> bool {
        let topic = String::from_utf8_lossy(&message.topic);
        if *topic == topic::status(&self.agent) {
            return !message.retained && !says_available(&message.payload);
        }
        let arrived = Arrived { topic: &topic, payload: &message.payload, retained: message.retained };
        match self.desk.judge(&arrived, Instant::now()) {
            Verdict::Discard(why) => self.note(why),
            Verdict::Refuse(told) => self.tell(told),
            Verdict::Process(task) if self.tasks.len() >= self.most => {
                self.tell(task.done(Err(Failure::new(Kind::InternalError, "too many tasks at once, try again later"))));
            }
            Verdict::Process(task) => {
                let (house, turns, agent) = (Arc::clone(&self.house), Arc::clone(&self.turns), self.agent.clone());
                let line = self.line.subscribe();
                self.tasks.spawn(async move {
                    let Ok(_turn) = turns.acquire().await else { return };
                    let (id, instruction) = (task.id.as_str(), task.instruction.as_deref());
                    let asked = Asked { agent: &agent, task: id, instruction, input: task.input.clone() };
                    let answer = house.call(asked).await;
                    let answer = answer.and_then(|text| RawValue::from_string(text).map_err(unwritten));
                    let told = match &answer {
                        Ok(answer) => task.done(Ok(answer)),
                        Err(fault) => task.done(Err(Failure::of(fault))),
                    };
                    publish(line, told).await;
                });
            }
        }
        false
    }

    fn tell(&mut self, told: Told) {
        if self.tasks.len() < self.most + REFUSALS {
            self.tasks.spawn(publish(self.line.subscribe(), told));
        } else {
            self.note("there are too many");
        }
    }

    fn say(&mut self, speaker: Speaker, status: Vec<u8>) {
        let topic = topic::status(&self.agent);
        self.tasks.spawn(async move {
            if let Err(why) = speaker.publish(&topic, status, true).await {
                tracing::debug!(%why, "a status could not be published");
            }
        });
    }

    /// Logs a message that comes to nothing, but no flood of them.
    fn note(&mut self, why: &str) {
        if self.logged.0.elapsed() >= Duration::from_secs(1) {
            self.logged = (Instant::now(), 0);
        }
        self.logged.1 += 1;
        if self.logged.1 <= LOGGED {
            tracing::info!(agent = self.agent, broker = self.base, "a message is discarded: {why}");
        }
    }
}

/// Publishes what becomes of a task, on the connection of the moment. It is sent once: where the connection is lost
/// before the broker has acknowledged it, it may have arrived.
async fn publish(mut line: watch::Receiver<Option<Speaker>>, told: Told) {
    let ready = tokio::time::timeout(BELATED, line.wait_for(Option::is_some)).await.is_ok_and(|ready| ready.is_ok());
    let speaker = if ready { line.borrow().clone() } else { None };
    let Some(speaker) = speaker else {
        return tracing::warn!("the answer to a task is lost: there was no connection to its broker");
    };
    if let Err(why) = speaker.publish(&told.topic, told.payload, false).await {
        tracing::warn!(%why, "the answer to a task may be lost");
    }
}

fn finished(done: Result<(), tokio::task::JoinError>) {
    if let Err(why) = done {
        tracing::error!("a task of the bridge failed in a way that is a defect of the gateway ({why})");
    }
}

fn unwritten(why: serde_json::Error) -> crate::fault::Fault {
    crate::fault::Fault::new(crate::fault::Code::AgentError, "the agent's answer is not JSON").detail(why)
}

fn says_available(payload: &[u8]) -> bool {
    let status: Option<Value> = serde_json::from_slice(payload).ok();
    status.is_some_and(|status| status.get("status").is_some_and(|word| word == "available"))
}
