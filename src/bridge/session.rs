//! MQTT session of one agent: subscribes, announces the agent as available (R118), receives tasks (R120), until the
//! connection is lost or the agent is withdrawn (R119). The receive loop awaits only messages; publications run in
//! background tasks, whose number is bounded.

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

/// Maximum number of concurrent publications besides tasks; further messages are dropped.
const REFUSALS: usize = 64;
/// Minimum interval between two publications of the status, which corrects a status that another client published.
const HEALING: Duration = Duration::from_secs(1);
/// Maximum number of discarded messages that are logged a second.
const LOGGED: u32 = 10;

/// How a session ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The agent was announced as unavailable, and the connection closed in order.
    Left,
    /// The connection was lost.
    Lost(String),
}

type Cards = watch::Receiver<Option<Arc<Card>>>;

/// State of an agent that outlives connections: running tasks, and the ids of recent ones.
pub(super) struct Session {
    desk: Desk,
    pub(super) agent: String,
    pub(super) base: String,
    house: Arc<dyn House>,
    turns: Arc<Semaphore>,
    most: usize,
    pub(super) tasks: JoinSet<()>,
    /// Becomes true when the time for finishing tasks has run out.
    pub(super) over: watch::Sender<bool>,
    /// The sender of the current connection, for results.
    pub(super) line: watch::Sender<Option<Speaker>>,
    health: Health,
    /// The availability that was announced last.
    said: Option<bool>,
    logged: (Instant, u32),
}

impl Session {
    pub(super) fn new(desk: Desk, offer: &Offer, house: &Arc<dyn House>, health: Health) -> Self {
        let concurrency = usize::from(offer.config.max_concurrency.get());
        Self {
            agent: desk.agent().to_owned(),
            desk,
            base: offer.address.base(),
            house: Arc::clone(house),
            turns: Arc::new(Semaphore::new(concurrency)),
            most: concurrency + usize::from(offer.config.max_queued),
            tasks: JoinSet::new(),
            over: watch::channel(false).0,
            line: watch::channel(None).0,
            health,
            said: None,
            logged: (Instant::now(), 0),
        }
    }

    /// Runs the session on one connection until it ends.
    pub(super) async fn converse(
        &mut self,
        (sender, mut receiver): (Speaker, Words),
        cards: &mut Cards,
        linger: &watch::Receiver<Duration>,
    ) -> Ended {
        self.said = None;
        let ended = match self.appear(&sender, &mut receiver, cards).await {
            Ok(true) => self.attend(&sender, &mut receiver, cards).await,
            Ok(false) => Ended::Left,
            Err(why) => Ended::Lost(why),
        };
        if matches!(ended, Ended::Left) {
            let linger = *linger.borrow();
            self.leave(&sender, &mut receiver, linger).await;
        }
        self.line.send_replace(None);
        ended
    }

    /// Subscribes, then announces the agent as available: after the broker granted the subscription and a probe reached
    /// the agent (R118). Returns false if the agent was withdrawn meanwhile.
    async fn appear(&mut self, sender: &Speaker, receiver: &mut Words, cards: &mut Cards) -> Result<bool, String> {
        let (input, status) = (topic::input(&self.agent), topic::status(&self.agent));
        // The spelling without the first slash is another topic for the broker and the same for the protocol (R109).
        let filters = [input.as_str(), input.trim_start_matches('/'), status.as_str()];
        let granted = sender.subscribe(&filters).await.map_err(|why| why.to_string())?;
        if granted.first() != Some(&true) {
            return Err(format!("MQTT broker refused the subscription to {input} (check the broker's ACL)"));
        }
        self.line.send_replace(Some(sender.clone()));
        let (mut health, agent) = (self.health.clone(), self.agent.clone());
        let announced = async {
            let reachable = health.wait_for(Option::is_some).await.is_ok_and(|reachable| *reachable == Some(true));
            let card = cards.borrow_and_update().clone();
            let Some(card) = card else { return Ok::<_, String>(None) };
            let announced = sender.publish(&status, words::status(&agent, reachable.then_some(&*card)), true).await;
            announced.map(|_| Some(reachable)).map_err(|why| why.to_string())
        };
        let mut announced = std::pin::pin!(announced);
        loop {
            // Messages are received from the start, because the acknowledgement arrives among them.
            tokio::select! {
                announced = &mut announced => {
                    let announced = announced?;
                    self.tells(announced);
                    return Ok(announced.is_some());
                }
                message = receiver.next() => { self.take(&message?); }
            }
        }
    }

    /// Records the announced availability, and logs a change.
    fn tells(&mut self, available: Option<bool>) {
        if self.said == available {
            return;
        }
        self.said = available;
        let (agent, broker) = (&self.agent, &self.base);
        match available {
            Some(true) => tracing::info!(agent, broker, "agent announced as available on the MQTT broker"),
            Some(false) => tracing::warn!(agent, broker, "agent announced as unavailable: it cannot be reached"),
            None => {}
        }
    }

    /// Receives tasks until the connection is lost or the agent is withdrawn.
    async fn attend(&mut self, sender: &Speaker, receiver: &mut Words, cards: &mut Cards) -> Ended {
        let (mut republish, mut republished_at) = (false, Instant::now());
        loop {
            tokio::select! {
                message = receiver.next() => match message {
                    Ok(message) => republish |= self.take(&message),
                    Err(why) => return Ended::Lost(why),
                },
                changed = cards.changed() => match changed {
                    Ok(()) if cards.borrow().is_some() => republish = true,
                    _ => return Ended::Left,
                },
                Ok(()) = self.health.changed() => republish = true,
                () = tokio::time::sleep_until((republished_at + HEALING).into()), if republish => {
                    (republish, republished_at) = (false, Instant::now());
                    let card = cards.borrow_and_update().clone();
                    let Some(card) = card else { return Ended::Left };
                    let reachable = *self.health.borrow_and_update() == Some(true);
                    self.tells(Some(reachable));
                    self.say(sender.clone(), words::status(&self.agent, reachable.then_some(&*card)));
                }
                Some(done) = self.tasks.join_next() => finished(done),
            }
        }
    }

    /// Handles one message. Returns whether the agent's status has to be published again.
    pub(super) fn take(&mut self, message: &Message) -> bool {
        let topic = String::from_utf8_lossy(&message.topic);
        if *topic == topic::status(&self.agent) {
            return !message.retained
                && self.said.is_some_and(|announced| announced != says_available(&message.payload));
        }
        let arrived = Arrived { topic: &topic, payload: &message.payload, retained: message.retained };
        match self.desk.judge(&arrived, Instant::now()) {
            Verdict::Discard(why) => self.note(why),
            Verdict::Refuse(outgoing) => self.tell(outgoing),
            Verdict::Process(task) if self.tasks.len() >= self.most => {
                self.tell(task.done(Err(Failure::new(Kind::InternalError, "Too many tasks; try again later"))));
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

    fn tell(&mut self, outgoing: Told) {
        if self.tasks.len() < self.most + REFUSALS {
            self.tasks.spawn(publish(self.line.subscribe(), outgoing));
        } else {
            self.note("too many pending publications");
        }
    }

    fn say(&mut self, sender: Speaker, status: Vec<u8>) {
        let topic = topic::status(&self.agent);
        self.tasks.spawn(async move {
            if let Err(why) = sender.publish(&topic, status, true).await {
                tracing::debug!(%why, "cannot publish the agent's status");
            }
        });
    }

    /// Logs a discarded message, with a rate limit.
    fn note(&mut self, why: &str) {
        if self.logged.0.elapsed() >= Duration::from_secs(1) {
            self.logged = (Instant::now(), 0);
        }
        self.logged.1 += 1;
        if self.logged.1 <= LOGGED {
            tracing::info!(agent = self.agent, broker = self.base, "MQTT message discarded: {why}");
        }
    }
}

fn says_available(payload: &[u8]) -> bool {
    let status: Option<Value> = serde_json::from_slice(payload).ok();
    status.is_some_and(|status| status.get("status").is_some_and(|word| word == "available"))
}
