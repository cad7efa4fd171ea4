//! MQTT feed (2389 Agent Protocol): the agents' retained statuses are the directory (R134). A subscriber task keeps the
//! connection and writes to the status table; a poll reads the table, and waits only at the first time.
//! The feed publishes nothing and calls no agent.

mod board;
mod link;
mod settings;
mod state;
mod status;

pub use settings::MqttSettings;

use super::feed::{Change, Feed};
use crate::broker::Address;
use board::Board;
use link::Broker;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// How long the first poll waits for the broker; less than startup waits for remote sources.
const FIRST: Duration = Duration::from_secs(4);

/// Feed of the agents of one broker.
#[derive(Debug)]
pub struct Mqtt {
    broker: Broker,
    board: Arc<Board>,
    /// The subscriber task, which ends when the feed is dropped.
    task: JoinSet<()>,
    looked: bool,
}

impl Mqtt {
    /// Creates a feed of the agents that publish a status on the broker `url`, at most `most` of them. `timeout` bounds
    /// each step of connecting. The feed connects at its first poll.
    ///
    /// # Errors
    /// Why `url` is invalid; [`MqttSourceConfig::problems`] reports all problems.
    pub fn new(url: &str, settings: MqttSettings, timeout: Duration, most: usize) -> Result<Self, String> {
        let address = Address::read(url)?;
        let board = Arc::new(Board::new(address.base(), most));
        Ok(Self { broker: Broker { address, settings, timeout }, board, task: JoinSet::new(), looked: false })
    }

    /// Starts the subscriber task, and restarts it if it panicked.
    fn connect(&mut self) {
        if self.task.try_join_next().is_some() {
            tracing::error!("MQTT status subscriber panicked: restarting (a defect of the gateway)");
        }
        if self.task.is_empty() {
            let (broker, board) = (self.broker.clone(), Arc::clone(&self.board));
            self.task.spawn(async move { link::keep(broker, &board).await });
        }
    }
}

#[async_trait::async_trait]
impl Feed for Mqtt {
    async fn next(&mut self) -> Change {
        self.connect();
        if !self.looked {
            self.board.first(FIRST).await;
            self.looked = true;
        }
        self.board.change()
    }

    async fn wake(&mut self) {
        self.board.woken().await;
    }

    fn taken(&mut self) {
        self.board.taken();
    }

    fn forget(&mut self) {
        self.board.forget();
    }
}

#[cfg(test)]
mod tests;
