//! Status subscriber: keeps a connection to a broker with reconnects and backoff, and passes status messages on to the
//! status table. The only timers of the MQTT feed are here.

use super::{config::MqttSourceConfig, status_message::STATUS_TOPIC_FILTERS, status_table::StatusTable};
use crate::{
    mqtt_client::{self, BrokerAddress, ConnectOptions, IncomingMessage, MqttReceiver, MqttSendError, MqttSender},
    telemetry::BrokerMetrics,
    values::{Backoff, jittered},
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Minimum and maximum delay between two connection attempts, before jitter.
const MIN_RECONNECT_DELAY: Duration = Duration::from_secs(1);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(15);
/// How much the delay varies in either direction, as a share of it.
const RECONNECT_JITTER: f64 = 0.5;
/// Duration after which a connection counts as good, so that the next delay is the minimum again.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// A broker and its connection settings.
#[derive(Clone, Debug)]
pub(super) struct StatusSubscriber {
    pub(super) address: BrokerAddress,
    pub(super) settings: MqttSourceConfig,
    /// Timeout of each step of connecting.
    pub(super) timeout: Duration,
    pub(super) broker: Option<Arc<BrokerMetrics>>,
}

/// Keeps a connection to `broker`; never returns.
pub(super) async fn run_subscriber(subscriber: StatusSubscriber, table: &StatusTable) {
    let mut backoff = Backoff::new(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY);
    loop {
        let began = Instant::now();
        let why = subscriber.run_connection(table).await;
        table.record_disconnected(format!("the broker at {}: {why}", subscriber.address.base_url()));
        if began.elapsed() >= STABLE_AFTER {
            backoff.reset();
        }
        tokio::time::sleep(jittered(backoff.next_delay(), RECONNECT_JITTER)).await;
    }
}

impl StatusSubscriber {
    /// Runs one connection to its end; returns why it ended.
    async fn run_connection(&self, table: &StatusTable) -> String {
        let (sender, mut receiver) = match self.connect().await {
            Ok(connection) => connection,
            Err(why) => return why,
        };
        table.record_connected();
        match tokio::time::timeout(self.timeout, subscribe(&sender, &mut receiver, table)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return why,
            Err(_) => return "no response in time".to_owned(),
        }
        table.record_subscribed();
        tracing::info!(broker = %self.address.base_url(), "subscribed to agent statuses");
        let (resync_deadline, mut resynced) = (Instant::now() + self.settings.resync_timeout.get(), false);
        loop {
            tokio::select! {
                received = receiver.next() => match received {
                    Ok(message) => forward_message(table, &message),
                    Err(why) => return why,
                },
                () = tokio::time::sleep_until(resync_deadline), if !resynced => {
                    resynced = true;
                    table.remove_missing_agents();
                }
            }
        }
    }

    async fn connect(&self) -> Result<(MqttSender, MqttReceiver), String> {
        let options = self.settings.client_settings().connect_options(&self.address, self.timeout).await?;
        mqtt_client::connect(&ConnectOptions { metrics: self.broker.clone(), ..options }).await
    }
}

/// Subscribes to the statuses and waits for the acknowledgement; retained statuses may arrive before it.
async fn subscribe(sender: &MqttSender, receiver: &mut MqttReceiver, table: &StatusTable) -> Result<(), String> {
    let mut subscription = pin!(sender.subscribe(&STATUS_TOPIC_FILTERS));
    let granted = loop {
        tokio::select! {
            biased;
            granted = &mut subscription => break granted,
            received = receiver.next() => forward_message(table, &received?),
        }
    };
    match granted {
        Ok(granted) if granted.contains(&true) => Ok(()),
        Ok(_) => Err("subscription to /control/agents/+/status refused (check the broker's ACL)".to_owned()),
        Err(MqttSendError::ConnectionLost(why)) => Err(why),
        Err(why) => Err(why.to_string()),
    }
}

fn forward_message(table: &StatusTable, message: &IncomingMessage) {
    table.process_message(&message.topic, &message.payload, message.retained);
}
