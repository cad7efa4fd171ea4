//! The conversation with a broker, begun again whenever it ends. It keeps the only clocks of this feed, and tells the
//! board what it hears.

use super::{board::Board, settings::MqttSettings, status::FILTERS};
use crate::broker::{self, Address, Message, Speaker, Unheard, Words, jittered};
use std::{pin::pin, time::Duration};
use tokio::time::Instant;

/// The shortest and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// A connection that lasted so long was a good one: the next pause is the shortest again.
const LASTING: Duration = Duration::from_secs(10);

/// A broker and how it is reached.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    pub(super) address: Address,
    pub(super) settings: MqttSettings,
    /// For each step of connecting.
    pub(super) timeout: Duration,
}

/// Keeps a connection to `broker`, for ever.
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
    /// One connection from its beginning to its end; answers why it ended.
    async fn converse(&self, board: &Board) -> String {
        let (speaker, mut words) = match self.open().await {
            Ok(begun) => begun,
            Err(why) => return why,
        };
        board.begin();
        match tokio::time::timeout(self.timeout, subscribed(&speaker, &mut words, board)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why,
            Err(_) => return "no answer in time".to_owned(),
        }
        board.granted();
        tracing::info!(broker = %self.address.base(), "agents' statuses are read");
        let (settle, mut settled) = (Instant::now() + self.settings.settle.get(), false);
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

/// Asks for the statuses and waits for the answer; those that the broker keeps may come before it.
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
        Ok(_) => Err("the broker does not let the gateway read /control/agents/+/status".to_owned()),
        Err(Unheard::Lost(why)) => Err(why),
        Err(why) => Err(why.to_string()),
    }
}

fn hear(board: &Board, message: &Message) {
    board.hear(&message.topic, &message.payload, message.retained);
}
