//! Withdrawal of an agent from its broker: announces it as unavailable, and drains its running tasks.

use super::{session::Session, topic, words, work::finished};
use crate::broker::{Speaker, Words};
use std::time::Duration;

/// Time for publishing the errors of tasks that did not finish.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Session {
    /// Announces the agent as unavailable, finishes running tasks and disconnects (R119).
    pub(super) async fn leave(&mut self, sender: &Speaker, receiver: &mut Words, linger: Duration) {
        let until = tokio::time::Instant::now() + linger;
        let (status, input) = (topic::status(&self.agent), topic::input(&self.agent));
        let unavailable = words::status(&self.agent, None);
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
            self.take(&message);
        }
        self.settle(sender, receiver, until).await;
        tracing::info!(agent = self.agent, broker = self.base, "agent withdrawn from the MQTT broker");
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Finishes running tasks on another connection.
    pub(super) async fn finish(&mut self, (sender, mut receiver): (Speaker, Words), linger: Duration) {
        self.line.send_replace(Some(sender.clone()));
        self.settle(&sender, &mut receiver, tokio::time::Instant::now() + linger).await;
    }

    /// Waits for running tasks, publishes errors for those that exceed the time (R122), and disconnects.
    async fn settle(&mut self, sender: &Speaker, receiver: &mut Words, mut until: tokio::time::Instant) {
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(done) = self.tasks.join_next() => finished(done),
                // Further messages are ignored, but acknowledgements have to be received.
                message = receiver.next() => if message.is_err() { break },
                () = tokio::time::sleep_until(until) => match self.over.send_replace(true) {
                    false => {
                        tracing::warn!(agent = self.agent, "agent withdrawn before all its tasks finished");
                        until += LAST_WORDS;
                    }
                    true => self.tasks.shutdown().await,
                },
            }
        }
        sender.disconnect().await;
    }

    /// Lets running tasks continue during `pause`, while there is no connection.
    pub(super) async fn rest(&mut self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                Some(done) = self.tasks.join_next() => finished(done),
            }
        }
    }
}
