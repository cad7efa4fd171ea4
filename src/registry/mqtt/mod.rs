//! The feed of agents over MQTT (2389 Agent Protocol): their retained statuses are the directory (R134). A task of its
//! own keeps the connection and writes on a board; a look reads the board and waits for nothing but the first answer.
//! It publishes nothing and calls no agent.

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

/// How long the first look waits for the broker: a start does not wait longer for any feed.
const FIRST: Duration = Duration::from_secs(4);

/// The agents of one broker.
#[derive(Debug)]
pub struct Mqtt {
    broker: Broker,
    board: Arc<Board>,
    /// The connection, which ends with this.
    task: JoinSet<()>,
    looked: bool,
}

impl Mqtt {
    /// A feed of the agents whose statuses are at the broker `url`, at most `most` of them. Each step of connecting
    /// may take `timeout`. It connects at the first look.
    ///
    /// # Errors
    /// What is wrong with `url`; [`MqttSettings::problems`] says everything.
    pub fn new(url: &str, settings: MqttSettings, timeout: Duration, most: usize) -> Result<Self, String> {
        let address = Address::read(url)?;
        let board = Arc::new(Board::new(address.base(), most));
        Ok(Self { broker: Broker { address, settings, timeout }, board, task: JoinSet::new(), looked: false })
    }

    /// Starts the connection, again if it came to an end that it should never come to.
    fn connect(&mut self) {
        if self.task.try_join_next().is_some() {
            tracing::error!("reading agents' statuses failed in a way that is a defect of the gateway; it begins anew");
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
