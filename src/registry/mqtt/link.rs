//! Status subscriber: keeps a connection to a broker with reconnects and backoff, and passes status messages on to the
//! status table. The only timers of the MQTT feed are here.

use super::{board::Board, settings::MqttSettings, status::FILTERS};
use crate::broker::{self, Address, Message, Speaker, Unheard, Words, jittered};
use std::{pin::pin, time::Duration};
use tokio::time::Instant;

/// Minimum and maximum delay between two connection attempts.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// Duration after which a connection counts as good, so that the next delay is the minimum again.
const LASTING: Duration = Duration::from_secs(10);

/// A broker and its connection settings.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    pub(super) address: Address,
    pub(super) settings: MqttSettings,
    /// Timeout of each step of connecting.
    pub(super) timeout: Duration,
}

/// Keeps a connection to `broker`; never returns.
pub(super) async fn keep(broker: Broker, board: &Board) {
    let mut pause = PAUSE.0;
    loop {
        let began = Instant::now();
        let why = broker.converse(board).await;
        board.lost(format!("the broker at {}: {why}", broker.address.base()));
        if began.elapsed() >= LASTING {
            pause = PAUSE.0;
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

impl Broker {
    /// Runs one connection to its end; returns why it ended.
    async fn converse(&self, board: &Board) -> String {
        let (speaker, mut words) = match self.open().await {
            Ok(begun) => begun,
            Err(why) => return why,
        };
        board.begin();
        match tokio::time::timeout(self.timeout, subscribed(&speaker, &mut words, board)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why,
            Err(_) => return "no response in time".to_owned(),
        }
        board.granted();
        tracing::info!(broker = %self.address.base(), "subscribed to agent statuses");
        let (settle, mut settled) = (Instant::now() + self.settings.resync_timeout.get(), false);
        loop {
            tokio::select! {
                word = words.next() => match word {
                    Ok(message) => hear(board, &message),
                    Err(why) => return why,
                },
                () = tokio::time::sleep_until(settle), if !settled => {
                    settled = true;
                    board.settle();
                }
            }
        }
    }

    async fn open(&self) -> Result<(Speaker, Words), String> {
        broker::open(&self.settings.broker().opening(&self.address, self.timeout).await?).await
    }
}

/// Subscribes to the statuses and waits for the acknowledgement; retained statuses may arrive before it.
async fn subscribed(speaker: &Speaker, words: &mut Words, board: &Board) -> Result<(), String> {
    let mut asked = pin!(speaker.subscribe(&FILTERS));
    let granted = loop {
        tokio::select! {
            biased;
            granted = &mut asked => break granted,
            word = words.next() => hear(board, &word?),
        }
    };
    match granted {
        Ok(granted) if granted.contains(&true) => Ok(()),
        Ok(_) => Err("subscription to /control/agents/+/status refused (check the broker's ACL)".to_owned()),
        Err(Unheard::Lost(why)) => Err(why),
        Err(why) => Err(why.to_string()),
    }
}

fn hear(board: &Board, message: &Message) {
    board.hear(&message.topic, &message.payload, message.retained);
}
