//! Withdrawal of an agent from its broker: announces it as unavailable, and drains its running tasks.

use super::{agent_session::AgentSession, mqtt_topic, payload, task_runner::log_panic};
use crate::mqtt_client::{MqttReceiver, MqttSender};
use std::time::Duration;

/// Time for publishing the errors of tasks that did not finish.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);

impl AgentSession {
    /// Announces the agent as unavailable, finishes running tasks and disconnects (R119).
    pub(super) async fn withdraw(&mut self, sender: &MqttSender, receiver: &mut MqttReceiver, drain_timeout: Duration) {
        let deadline = tokio::time::Instant::now() + drain_timeout;
        let (status, input) = (mqtt_topic::status_topic(&self.agent), mqtt_topic::input_topic(&self.agent));
        let unavailable = payload::status_payload(&self.agent, None);
        let announcement = async {
            sender.publish(&status, unavailable, true).await?;
            sender.unsubscribe(&[&input]).await?;
            sender.unsubscribe(&[input.trim_start_matches('/')]).await
        };
        let mut announcement = std::pin::pin!(announcement);
        // Messages that arrive before the unsubscription were sent to an available agent.
        while let Some(message) = tokio::select! {
            announcement = &mut announcement => {
                if let Err(error) = announcement {
                    tracing::debug!(%error, "cannot announce the withdrawal of the agent");
                }
                None
            },
            message = receiver.next() => message.ok(),
        } {
            self.handle_message(&message);
        }
        self.drain(sender, receiver, deadline).await;
        tracing::info!(agent = self.agent, broker = self.broker, "agent withdrawn from the MQTT broker");
    }

    pub(super) fn has_running_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Finishes running tasks on another connection.
    pub(super) async fn drain_on(
        &mut self,
        (sender, mut receiver): (MqttSender, MqttReceiver),
        drain_timeout: Duration,
    ) {
        self.current_sender.send_replace(Some(sender.clone()));
        self.drain(&sender, &mut receiver, tokio::time::Instant::now() + drain_timeout).await;
    }

    /// Waits for running tasks, publishes errors for those that exceed the time (R122), and disconnects.
    async fn drain(&mut self, sender: &MqttSender, receiver: &mut MqttReceiver, mut deadline: tokio::time::Instant) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(result) = self.tasks.join_next() => log_panic(result),
                // Further messages are ignored, but acknowledgements have to be received.
                message = receiver.next() => if message.is_err() { break },
                () = tokio::time::sleep_until(deadline) => match self.drain_expired.send_replace(true) {
                    false => {
                        tracing::warn!(agent = self.agent, "agent withdrawn before all its tasks finished");
                        deadline += ERROR_TIMEOUT;
                    }
                    true => self.tasks.shutdown().await,
                },
            }
        }
        sender.disconnect().await;
    }

    /// Waits for `pause` while there is no connection, and reaps the tasks that end meanwhile.
    pub(super) async fn wait_reaping_tasks(&mut self, pause: Duration) {
        let deadline = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return,
                Some(result) = self.tasks.join_next() => log_panic(result),
            }
        }
    }
}
