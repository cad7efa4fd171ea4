//! One agent's presence on one broker, from the day it is offered to the day it is not: a connection of its own (the last
//! will belongs to one), made again whenever it ends. What it remembers of tasks outlives every connection.

use super::{
    Card, Config, House, health,
    memory::Memory,
    session::{Ended, Session},
    task::Desk,
    topic, words,
};
use crate::{
    broker::{self, Address, Opening, Speaker, Will, Words, jittered},
    unit::Secret,
};
use aws_lc_rs::hmac;
use std::{fmt::Write as _, sync::Arc, time::Duration};
use tokio::{sync::watch, time::Instant};

/// For each step of connecting, and for each acknowledgement.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// An attempt and its connection that took so long was a good one: the next pause is the shortest again.
const LASTING: Duration = Duration::from_secs(10);

/// What is offered, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer {
    /// The broker.
    pub address: Address,
    /// How it is reached, and every bound.
    pub config: Config,
    /// The key with which agents are called; it also makes the names of the connections.
    pub key: Secret,
}

/// An agent to be present.
pub struct Presence {
    /// Its id.
    pub agent: String,
    /// Where.
    pub offer: Arc<Offer>,
    /// Who makes its calls.
    pub house: Arc<dyn House>,
    /// What it says of itself; `None`, or no sender any more, once it is to leave.
    pub card: watch::Receiver<Option<Arc<Card>>>,
    /// How long tasks in hand may take to finish when it leaves.
    pub linger: watch::Receiver<Duration>,
}

impl Presence {
    /// Is present until it is to leave; then says so, finishes what it has in hand, and is gone (R119).
    pub async fn keep(mut self) {
        let (config, agent) = (&self.offer.config, self.agent.clone());
        let memory = Memory::new(config.remembered.get() as usize, config.remember.get());
        let (health, _looking) = health::look_after(&self.house, &agent);
        let mut session = Session::new(Desk::new(&agent, memory), &self.offer, &self.house, health);
        let (mut pause, mut leaving) = (PAUSE.0, self.card.clone());
        while self.is_wanted() {
            let began = Instant::now();
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = left(&mut leaving) => break,
            };
            let why = match opened {
                Ok(line) => match session.converse(line, &mut self.card, &self.linger).await {
                    Ended::Left => break,
                    Ended::Lost(why) => why,
                },
                Err(why) => why,
            };
            if began.elapsed() >= LASTING {
                pause = PAUSE.0;
            }
            if self.is_wanted() {
                tracing::warn!(agent, broker = %self.offer.address.base(), why, "an agent is not offered now");
                tokio::select! {
                    () = session.rest(jittered(pause)) => {}
                    () = left(&mut leaving) => break,
                }
            }
            pause = (pause * 2).min(PAUSE.1);
        }
        // A successor has taken the connection over, or it broke: what is in hand is answered all the same.
        if session.is_busy()
            && let Ok(line) = self.line().await
        {
            let linger = *self.linger.borrow();
            session.finish(line, linger).await;
        }
    }

    fn is_wanted(&self) -> bool {
        self.card.borrow().is_some() && self.card.has_changed().is_ok()
    }

    /// Connects, with the last will that says that the agent is not available (R118).
    async fn open(&self) -> Result<(Speaker, Words), String> {
        let opening = self.offer.config.mqtt.opening(&self.offer.address, PATIENCE).await?;
        let will = Will { topic: topic::status(&self.agent), payload: words::status(&self.agent, None).into() };
        broker::open(&Opening { will: Some(will), id: Some(self.identifier()), ..opening }).await
    }

    /// Connects as nobody in particular.
    async fn line(&self) -> Result<(Speaker, Words), String> {
        broker::open(&self.offer.config.mqtt.opening(&self.offer.address, PATIENCE).await?).await
    }

    /// The name of the connection. It is always the same: a process that takes over ends the connection of the one
    /// before, so that no task is done by both. Nobody without the key can guess it.
    fn identifier(&self) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.offer.key.expose().as_bytes());
        let tag = hmac::sign(&key, format!("{} {}", self.offer.address.base(), self.agent).as_bytes());
        let mut id = "gp".to_owned();
        for byte in tag.as_ref().iter().take(10) {
            let _ = write!(id, "{byte:02x}");
        }
        id
    }
}

/// Resolves when the agent is to leave.
async fn left(card: &mut watch::Receiver<Option<Arc<Card>>>) {
    // No sender any more says the same as none to offer.
    let _ = card.wait_for(Option::is_none).await;
}
