//! MQTT feed (2389 Agent Protocol): the agents' retained statuses are the directory (R134). A subscriber task keeps the
//! connection and writes to the status table; a poll reads the table, and only the first poll waits for the broker.
//! The feed publishes nothing and calls no agent.

mod config;
mod status_message;
mod status_subscriber;
mod status_table;
mod status_table_state;

pub use config::MqttSourceConfig;

use super::{
    feed::{Feed, PollResult},
    table_task::{FIRST_POLL_TIMEOUT, TableTask},
};
use crate::{mqtt_client::BrokerAddress, telemetry::Metrics};
use status_subscriber::StatusSubscriber;
use status_table::StatusTable;
use std::{sync::Arc, time::Duration};

/// Feed of the agents of one broker.
#[derive(Debug)]
pub struct MqttFeed {
    subscriber: StatusSubscriber,
    table: Arc<StatusTable>,
    task: TableTask,
}

impl MqttFeed {
    /// Creates a feed of the agents that publish a status on the broker `url`, at most `max_agents` of them. `timeout`
    /// bounds each step of connecting. The feed connects at its first poll.
    ///
    /// # Errors
    /// Why `url` is invalid; [`MqttSourceConfig::problems`] reports all problems.
    pub fn new(url: &str, settings: MqttSourceConfig, timeout: Duration, max_agents: usize) -> Result<Self, String> {
        let address = BrokerAddress::parse(url)?;
        let table = Arc::new(StatusTable::new(address.base_url(), max_agents));
        Ok(Self {
            subscriber: StatusSubscriber { address, settings, timeout, broker: None },
            table,
            task: TableTask::new("MQTT status subscriber"),
        })
    }

    /// Reports the connection to the broker to these metrics.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Option<&Metrics>) -> Self {
        let label = self.subscriber.address.metric_label();
        self.subscriber.broker = metrics.map(|metrics| metrics.brokers().broker(&label));
        self
    }
}

#[async_trait::async_trait]
impl Feed for MqttFeed {
    async fn poll(&mut self) -> PollResult {
        let (subscriber, table) = (self.subscriber.clone(), Arc::clone(&self.table));
        if self.task.start(async move { status_subscriber::run_subscriber(subscriber, &table).await }) {
            self.table.wait_until_complete(FIRST_POLL_TIMEOUT).await;
        }
        self.table.take_report()
    }

    async fn wait_for_update(&mut self) {
        self.table.wait_for_update().await;
    }

    fn acknowledge(&mut self) {
        self.table.acknowledge();
    }

    fn reset(&mut self) {
        self.table.discard_report();
    }

    fn refresh(&mut self) {
        self.reset();
        // The next poll connects at once, where the subscriber may wait some seconds before it tries again.
        if self.table.is_disconnected() {
            self.task.stop();
        }
    }
}

#[cfg(test)]
mod tests;
