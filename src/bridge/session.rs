//! One agent's conversation with its broker: subscribed and found well, then available (R118), then task after task (R120),
//! until it is lost or the agent leaves (R119). Nothing is awaited between two messages but messages: whatever is said is
//! said by tasks of their own, as many as there may be.

use super::{
    Card, House,
    health::Health,
    presence::Offer,
    task::{Arrived, Desk, Told, Verdict},
    topic,
    words::{self, Failure, Kind},
    work::{Work, finished, publish},
};
use crate::broker::{Message, Speaker, Words};
use serde_json::Value;
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
/// How long it may take to say that tasks in hand come to nothing.
const LAST_WORDS: Duration = Duration::from_secs(1);
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
    /// Whether there is no time left for tasks in hand.
    over: watch::Sender<bool>,
    /// The connection of the moment, for answers.
    line: watch::Sender<Option<Speaker>>,
    health: Health,
    /// Whether it was said last that the agent is available.
    said: Option<bool>,
    logged: (Instant, u32),
}

impl Session {
    pub(super) fn new(desk: Desk, offer: &Offer, house: &Arc<dyn House>, health: Health) -> Self {
        let concurrency = usize::from(offer.config.concurrency.get());
        Self {
            agent: desk.agent().to_owned(),
            desk,
            base: offer.address.base(),
            house: Arc::clone(house),
            turns: Arc::new(Semaphore::new(concurrency)),
            most: concurrency + usize::from(offer.config.waiting),
            tasks: JoinSet::new(),
            over: watch::channel(false).0,
            line: watch::channel(None).0,
            health,
            said: None,
            logged: (Instant::now(), 0),
        }
    }

    /// One conversation from its beginning to its end.
    pub(super) async fn converse(
        &mut self,
        (speaker, mut words): (Speaker, Words),
        cards: &mut Cards,
        linger: &watch::Receiver<Duration>,
    ) -> Ended {
        self.said = None;
        let ended = match self.appear(&speaker, &mut words, cards).await {
            Ok(true) => self.attend(&speaker, &mut words, cards).await,
            Ok(false) => Ended::Left,
            Err(why) => Ended::Lost(why),
        };
        if matches!(ended, Ended::Left) {
            let linger = *linger.borrow();
            self.leave(&speaker, &mut words, linger).await;
        }
        self.line.send_replace(None);
        ended
    }

    /// Subscribes, and says that the agent is available only after the broker has granted it and the agent was found well
    /// (R118); whether it is not to leave meanwhile.
    async fn appear(&mut self, speaker: &Speaker, words: &mut Words, cards: &mut Cards) -> Result<bool, String> {
        let (input, status) = (topic::input(&self.agent), topic::status(&self.agent));
        // The spelling without the first slash is another topic to a broker, and the same to the protocol (R109).
        let filters = [input.as_str(), input.trim_start_matches('/'), status.as_str()];
        let granted = speaker.subscribe(&filters).await.map_err(|why| why.to_string())?;
        if granted.first() != Some(&true) {
            return Err(format!("the broker does not let the gateway read {input}"));
        }
        self.line.send_replace(Some(speaker.clone()));
        let (mut health, agent) = (self.health.clone(), self.agent.clone());
        let said = async {
            let well = health.wait_for(Option::is_some).await.is_ok_and(|well| *well == Some(true));
            let card = cards.borrow_and_update().clone();
            let Some(card) = card else { return Ok::<_, String>(None) };
            let said = speaker.publish(&status, words::status(&agent, well.then_some(&*card)), true).await;
            said.map(|_| Some(well)).map_err(|why| why.to_string())
        };
        let mut said = std::pin::pin!(said);
        loop {
            // Messages are taken from the first moment, or the broker's acknowledgement could not come through.
            tokio::select! {
                said = &mut said => {
                    let said = said?;
                    self.tells(said);
                    return Ok(said.is_some());
                }
                message = words.next() => { self.take(&message?); }
            }
        }
    }

    /// What is said of the agent from now on.
    fn tells(&mut self, available: Option<bool>) {
        if self.said == available {
            return;
        }
        self.said = available;
        let (agent, broker) = (&self.agent, &self.base);
        match available {
            Some(true) => tracing::info!(agent, broker, "an agent is offered"),
            Some(false) => tracing::warn!(agent, broker, "an agent is not available: it cannot be reached"),
            None => {}
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
                Ok(()) = self.health.changed() => heal = true,
                () = tokio::time::sleep_until((healed + HEALING).into()), if heal => {
                    (heal, healed) = (false, Instant::now());
                    let card = cards.borrow_and_update().clone();
                    let Some(card) = card else { return Ended::Left };
                    let well = *self.health.borrow_and_update() == Some(true);
                    self.tells(Some(well));
                    self.say(speaker.clone(), words::status(&self.agent, well.then_some(&*card)));
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

    /// Waits for the tasks in hand, has those that take too long say so (R122), and says good-bye.
    async fn settle(&mut self, speaker: &Speaker, words: &mut Words, mut until: tokio::time::Instant) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(done) = self.tasks.join_next() => finished(done),
                // Nothing that counts comes any more, but acknowledgements have to come through.
                message = words.next() => if message.is_err() { break },
                () = tokio::time::sleep_until(until) => match self.over.send_replace(true) {
                    false => {
                        tracing::warn!(agent = self.agent, "an agent leaves with tasks that did not finish in time");
                        until += LAST_WORDS;
                    }
                    true => self.tasks.shutdown().await,
                },
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
            return !message.retained && self.said.is_some_and(|said| said != says_available(&message.payload));
        }
        let arrived = Arrived { topic: &topic, payload: &message.payload, retained: message.retained };
        match self.desk.judge(&arrived, Instant::now()) {
            Verdict::Discard(why) => self.note(why),
            Verdict::Refuse(told) => self.tell(told),
            Verdict::Process(task) if self.tasks.len() >= self.most => {
                self.tell(task.done(Err(Failure::new(Kind::InternalError, "too many tasks at once, try again later"))));
            }
            Verdict::Process(task) => {
                let work = Work {
                    agent: self.agent.clone(),
                    house: Arc::clone(&self.house),
                    turns: Arc::clone(&self.turns),
                    over: self.over.subscribe(),
                    line: self.line.subscribe(),
                };
                self.tasks.spawn(work.on(task));
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

fn says_available(payload: &[u8]) -> bool {
    let status: Option<Value> = serde_json::from_slice(payload).ok();
    status.is_some_and(|status| status.get("status").is_some_and(|word| word == "available"))
}
