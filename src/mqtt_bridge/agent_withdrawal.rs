//! Withdrawal of an agent from its broker: announces it as unavailable, and drains its running tasks.

use super::{agent_session::AgentSession, mqtt_topic, payload, task_runner::log_panic};
use crate::mqtt_client::{MqttReceiver, MqttSender};
use std::time::Duration;

/// Time for publishing the errors of tasks that did not finish.
const ERROR_TIMEOUT: Duration = Duration::from_secs(1);

impl AgentSession {
    /// Announces the agent as unavailable, finishes running tasks and disconnects (R119).
    pub(super) async fn withdraw(&mut self, sender: &MqttSender, receiver: &mut MqttReceiver, linger: Duration) {
        let until = tokio::time::Instant::now() + linger;
        let (status, input) = (mqtt_topic::status_topic(&self.agent), mqtt_topic::input_topic(&self.agent));
        let unavailable = payload::status_payload(&self.agent, None);
        let announced = async {
            sender.publish(&status, unavailable, true).await?;
            sender.unsubscribe(&[&input]).await?;
            sender.unsubscribe(&[input.trim_start_matches('/')]).await
        };
        let mut announced = std::pin::pin!(announced);
        // Messages that arrive before the unsubscription were sent to an available agent.
        while let Some(message) = tokio::select! {
            announced = &mut announced => announced.map_err(|why| tracing::debug!(%why, "cannot withdraw the agent")).ok().and(None),
            message = receiver.next() => message.ok(),
        } {
            self.handle_message(&message);
        }
        self.drain(sender, receiver, until).await;
        tracing::info!(agent = self.agent, broker = self.base, "agent withdrawn from the MQTT broker");
    }

    pub(super) fn has_running_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Finishes running tasks on another connection.
    pub(super) async fn drain_on(&mut self, (sender, mut receiver): (MqttSender, MqttReceiver), linger: Duration) {
        self.current_sender.send_replace(Some(sender.clone()));
        self.drain(&sender, &mut receiver, tokio::time::Instant::now() + linger).await;
    }

    /// Waits for running tasks, publishes errors for those that exceed the time (R122), and disconnects.
    async fn drain(&mut self, sender: &MqttSender, receiver: &mut MqttReceiver, mut until: tokio::time::Instant) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(done) = self.tasks.join_next() => log_panic(done),
                // Further messages are ignored, but acknowledgements have to be received.
                message = receiver.next() => if message.is_err() { break },
                () = tokio::time::sleep_until(until) => match self.time_is_up.send_replace(true) {
                    false => {
                        tracing::warn!(agent = self.agent, "agent withdrawn before all its tasks finished");
                        until += ERROR_TIMEOUT;
                    }
                    true => self.tasks.shutdown().await,
                },
            }
        }
        sender.disconnect().await;
    }

    /// Lets running tasks continue during `pause`, while there is no connection.
    pub(super) async fn wait_reaping_tasks(&mut self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                Some(done) = self.tasks.join_next() => log_panic(done),
            }
        }
    }
}
