//! Presence of one agent on one broker, while the agent is exposed there. It has its own MQTT connection, because the
//! last will belongs to one connection, and reconnects whenever the connection ends. Its task ids outlive connections.

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

/// Timeout of each step of connecting, and of each acknowledgement.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest and longest delay between two connection attempts.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// An attempt and its connection that lasted at least this long reset the delay to the shortest one.
const LASTING: Duration = Duration::from_secs(10);

/// One entry of the bridge configuration, with its address parsed and its key loaded.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer {
    /// Address of the broker.
    pub address: Address,
    /// The configuration entry: connection settings and limits.
    pub config: Config,
    /// API key for the calls to agents; the MQTT client ids are derived from it.
    pub key: Secret,
}

/// One agent on one broker.
pub struct Presence {
    /// Id of the agent.
    pub agent: String,
    /// The bridge entry that exposes the agent.
    pub offer: Arc<Offer>,
    /// Calls the agent.
    pub house: Arc<dyn House>,
    /// Details for the status. `None`, or a dropped sender, withdraws the agent.
    pub card: watch::Receiver<Option<Arc<Card>>>,
    /// Time that running tasks have to finish after the agent is withdrawn.
    pub linger: watch::Receiver<Duration>,
}

impl Presence {
    /// Keeps the agent on the broker until it is withdrawn; then announces that and finishes running tasks (R119).
    pub async fn keep(mut self) {
        let (config, agent) = (&self.offer.config, self.agent.clone());
        let memory = Memory::new(config.max_deduplication_ids.get() as usize, config.deduplication_ttl.get());
        let (health, _probe) = health::look_after(&self.house, &agent);
        let mut session = Session::new(Desk::new(&agent, memory), &self.offer, &self.house, health);
        let (mut pause, mut withdrawn) = (PAUSE.0, self.card.clone());
        while self.is_wanted() {
            let began = Instant::now();
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = left(&mut withdrawn) => break,
            };
            let why = match opened {
                Ok(connection) => match session.converse(connection, &mut self.card, &self.linger).await {
                    Ended::Left => break,
                    Ended::Lost(why) => why,
                },
                Err(why) => why,
            };
            if began.elapsed() >= LASTING {
                pause = PAUSE.0;
            }
            if self.is_wanted() {
                tracing::warn!(agent, broker = %self.offer.address.base(), why, "no MQTT connection for the agent");
                tokio::select! {
                    () = session.rest(jittered(pause)) => {}
                    () = left(&mut withdrawn) => break,
                }
            }
            pause = (pause * 2).min(PAUSE.1);
        }
        // Another gateway took the connection over, or it broke: running tasks are still answered, on a new connection.
        if session.is_busy()
            && let Ok(connection) = self.line().await
        {
            let linger = *self.linger.borrow();
            session.finish(connection, linger).await;
        }
    }

    fn is_wanted(&self) -> bool {
        self.card.borrow().is_some() && self.card.has_changed().is_ok()
    }

    /// Connects with a last will that announces the agent as unavailable (R118).
    async fn open(&self) -> Result<(Speaker, Words), String> {
        let opening = self.offer.config.mqtt.opening(&self.offer.address, PATIENCE).await?;
        let will = Will { topic: topic::status(&self.agent), payload: words::status(&self.agent, None).into() };
        broker::open(&Opening { will: Some(will), id: Some(self.identifier()), ..opening }).await
    }

    /// Connects with a random client id and without a last will.
    async fn line(&self) -> Result<(Speaker, Words), String> {
        broker::open(&self.offer.config.mqtt.opening(&self.offer.address, PATIENCE).await?).await
    }

    /// Derives the MQTT client id from the key. The id is stable, so that a gateway that takes over ends the connection
    /// of its predecessor and no task is executed by both. Without the key it cannot be guessed.
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

/// Resolves when the agent is withdrawn.
async fn left(card: &mut watch::Receiver<Option<Arc<Card>>>) {
    // A dropped sender withdraws the agent, too.
    let _ = card.wait_for(Option::is_none).await;
}
