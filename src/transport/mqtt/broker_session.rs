//! One connection to a broker, shared by calls. Each call has a conversation of its own, subscribed to before its task
//! is published. A few spare conversations are subscribed to in advance, so that a call costs one round trip instead of
//! two. A background task cleans up after calls.

use super::{
    pending_tasks::{MessageOutcome, PendingTask, PendingTasks},
    status_reading::{self, StatusRequests},
};
use crate::{
    fault::{CallProgress, Fault, FaultCode},
    mqtt_client::{MqttReceiver, MqttSendError, MqttSender},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// The number of conversations that are subscribed to in advance.
const SPARE_CONVERSATIONS: usize = 8;
/// With more spare conversations than this, no further ones are subscribed to: one request prepares several calls.
const FEW_SPARE_CONVERSATIONS: usize = 4;
/// The most conversations that are unsubscribed from in one request.
const UNSUBSCRIBE_BATCH: usize = 100;
/// Fewer finished conversations than this are unsubscribed from after a pause, in which others may finish.
const FEW_FINISHED_CONVERSATIONS: usize = 8;
/// How long finished conversations stay subscribed to at most, after the last call.
const UNSUBSCRIBE_DELAY: Duration = Duration::from_secs(1);

/// A broker connection, and the calls that use it.
#[derive(Debug)]
pub(super) struct BrokerSession {
    pub(super) sender: MqttSender,
    pending: Mutex<PendingTasks>,
    /// The clean-up after calls: finished conversations, and agents with one progress watcher less.
    cleanup: Mutex<CleanupQueue>,
    maintenance: Notify,
    /// The time before which calls do not subscribe to the statuses of their agents.
    statuses_paused_until: Option<Instant>,
    /// Whether a subscription to statuses awaits the broker's answer; notifies the calls that wait for it.
    is_requesting_statuses: watch::Sender<bool>,
    /// The agents whose progress is subscribed to; locked during the request to the broker.
    progress_subscriptions: tokio::sync::Mutex<HashMap<String, ProgressSubscription>>,
    retired: AtomicBool,
    maybe_unused: Notify,
    /// The number of messages that no call awaited.
    dropped_messages: AtomicU64,
}

#[derive(Debug, Default)]
struct CleanupQueue {
    conversations: Vec<String>,
    agents: Vec<String>,
}

#[derive(Debug, Default)]
struct ProgressSubscription {
    watchers: usize,
    granted: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

fn conversation_filter(id: &str) -> String {
    format!("/conversations/{id}/+")
}

/// The filters of an agent's status, in both spellings of its topic (R109).
fn status_filters(agent: &str) -> [String; 2] {
    [format!("/control/agents/{agent}/status"), format!("control/agents/{agent}/status")]
}

fn progress_filter(agent: &str) -> String {
    format!("/control/agents/{agent}/progress/#")
}

/// Creates an unguessable id with 122 random bits.
fn new_conversation_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn as_strs(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// The fault of a failed request to the broker.
pub(super) fn request_fault(error: &MqttSendError) -> Fault {
    match error {
        MqttSendError::TooLarge(max_bytes) => super::task_envelope::too_large_fault(*max_bytes),
        // Brokers report this for messages that they drop, but the client library uses it for other reasons as well.
        MqttSendError::Refused(_) => refused_fault(error).with_progress(CallProgress::PossiblySent),
        MqttSendError::ConnectionLost(_) => connection_lost_fault(error),
    }
}

/// The fault of a task that was not published.
fn refused_fault(reason: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's message broker refused the call")
        .with_detail(format_args!("MQTT broker: {reason}"))
        .with_progress(CallProgress::NotSent)
}

/// The fault of a lost connection: no reply can arrive, and the agent may have received the task.
pub(super) fn connection_lost_fault(reason: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::AgentError, "The connection to the agent was lost before it replied")
        .with_detail(format_args!("MQTT broker: {reason}"))
        .with_progress(CallProgress::PossiblySent)
}

impl BrokerSession {
    pub(super) fn new(sender: MqttSender, statuses_paused_until: Option<Instant>) -> Self {
        Self {
            sender,
            statuses_paused_until,
            is_requesting_statuses: watch::Sender::new(false),
            pending: Mutex::default(),
            cleanup: Mutex::default(),
            maintenance: Notify::new(),
            progress_subscriptions: tokio::sync::Mutex::default(),
            retired: AtomicBool::new(false),
            maybe_unused: Notify::new(),
            dropped_messages: AtomicU64::new(0),
        }
    }

    /// Delivers incoming messages until the connection is lost, or is retired and unused.
    pub(super) async fn run(&self, mut receiver: MqttReceiver) {
        let reason = loop {
            tokio::select! {
                received = receiver.next() => match received {
                    Ok(message) => {
                        let outcome = lock(&self.pending).deliver(&message);
                        if outcome != MessageOutcome::Delivered {
                            let dropped = self.dropped_messages.fetch_add(1, Relaxed) + 1;
                            tracing::debug!(?outcome, dropped, "MQTT message dropped: no call awaits it");
                        }
                    }
                    Err(reason) => break reason,
                },
                () = self.maybe_unused.notified() => {}
            }
            if self.retired.load(Relaxed) && lock(&self.pending).waiting.is_empty() {
                break "retired and unused".to_owned();
            }
        };
        tracing::debug!(reason, "MQTT connection to an agent's broker ended");
        let mut pending = lock(&self.pending);
        pending.closed = true;
        // Dropping the senders tells the waiting calls that no reply can arrive.
        pending.waiting.clear();
    }

    /// Takes the connection out of use for further calls.
    pub(super) fn retire(&self) {
        self.retired.store(true, Relaxed);
        self.maybe_unused.notify_one();
    }

    /// Cleans up after calls and prepares conversations for the next ones, while the connection lasts.
    pub(super) async fn run_maintenance(&self) {
        let mut few_finished = 0;
        loop {
            let result = self.run_maintenance_once(few_finished).await;
            if let Err(error) = result {
                tracing::debug!(%error, "MQTT subscription maintenance failed");
                if matches!(error, MqttSendError::ConnectionLost(_)) {
                    return;
                }
            }
            few_finished = FEW_FINISHED_CONVERSATIONS;
            if lock(&self.cleanup).conversations.is_empty() {
                self.maintenance.notified().await;
            } else if tokio::time::timeout(UNSUBSCRIBE_DELAY, self.maintenance.notified()).await.is_err() {
                few_finished = 0;
            }
        }
    }

    /// Leaves fewer than `few_finished` conversations subscribed to.
    async fn run_maintenance_once(&self, few_finished: usize) -> Result<(), MqttSendError> {
        loop {
            let prepared = self.prepare_conversations().await;
            // Calls wait for this request, even where the broker refuses the other one.
            self.request_statuses().await?;
            prepared?;
            self.unsubscribe_idle_statuses().await?;
            let (conversations, agents) = {
                let mut cleanup = lock(&self.cleanup);
                let finished = cleanup.conversations.len();
                let batch = if finished < few_finished { 0 } else { finished.min(UNSUBSCRIBE_BATCH) };
                let start = finished - batch;
                (cleanup.conversations.split_off(start), std::mem::take(&mut cleanup.agents))
            };
            for agent in &agents {
                self.unsubscribe_progress(agent).await?;
            }
            if conversations.is_empty() {
                return Ok(());
            }
            let filters: Vec<String> = conversations.iter().map(|name| conversation_filter(name)).collect();
            self.sender.unsubscribe(&as_strs(&filters)).await?;
        }
    }

    /// Subscribes to the statuses of the agents that were called since the last request.
    async fn request_statuses(&self) -> Result<(), MqttSendError> {
        loop {
            let agents = lock(&self.pending).statuses.take_unrequested();
            if agents.is_empty() || self.sender.is_closed() {
                return Ok(());
            }
            let filters: Vec<String> = agents.iter().flat_map(|agent| status_filters(agent)).collect();
            self.is_requesting_statuses.send_replace(true);
            // Without this subscription, a call to an agent that died ends with its timeout.
            let granted = self.sender.subscribe(&as_strs(&filters)).await;
            if let Err(error @ MqttSendError::ConnectionLost(_)) = granted {
                return Err(error);
            }
            lock(&self.pending).statuses.record_answer(&agents);
            self.is_requesting_statuses.send_replace(false);
        }
    }

    /// Unsubscribes from the statuses of agents that had no call for some time.
    async fn unsubscribe_idle_statuses(&self) -> Result<(), MqttSendError> {
        let agents = lock(&self.pending).take_idle_agents(Instant::now());
        if agents.is_empty() {
            return Ok(());
        }
        let filters: Vec<String> = agents.iter().flat_map(|agent| status_filters(agent)).collect();
        self.sender.unsubscribe(&as_strs(&filters)).await
    }

    /// What became of the subscriptions to statuses, after the connection has ended.
    pub(super) fn status_requests(&self) -> StatusRequests {
        if *self.is_requesting_statuses.borrow() {
            StatusRequests::EndedConnection
        } else if lock(&self.pending).statuses.has_answers() {
            StatusRequests::Answered
        } else {
            StatusRequests::None
        }
    }

    /// Watches the status of `agent`; returns whether the call can go on.
    fn is_watched_or_paused(&self, agent: &str) -> bool {
        let mut pending = lock(&self.pending);
        let (pending, now) = (&mut *pending, Instant::now());
        let has_other_calls = || !pending.statuses.has_answers() && !pending.waiting.is_empty();
        status_reading::is_paused(self.statuses_paused_until, now, has_other_calls)
            || pending.statuses.watch(agent, now)
    }

    /// Waits until the broker has answered the subscription to the status of `agent`. A refused one is not an error.
    ///
    /// # Errors
    /// The connection is lost. Some brokers close it where they do not permit a subscription, so no task is published
    /// before.
    pub(super) async fn watch_status(&self, agent: &str) -> Result<(), MqttSendError> {
        if self.is_watched_or_paused(agent) {
            return Ok(());
        }
        let mut answers = self.is_requesting_statuses.subscribe();
        while !lock(&self.pending).statuses.watch(agent, Instant::now()) {
            self.maintenance.notify_one();
            tokio::select! {
                _ = answers.changed() => {}
                reason = self.sender.closed() => return Err(MqttSendError::ConnectionLost(reason)),
            }
        }
        Ok(())
    }

    /// Subscribes to spare conversations.
    async fn prepare_conversations(&self) -> Result<(), MqttSendError> {
        let spare = lock(&self.pending).spare_conversations.len();
        if spare > FEW_SPARE_CONVERSATIONS || self.retired.load(Relaxed) {
            return Ok(());
        }
        let missing = SPARE_CONVERSATIONS.saturating_sub(spare);
        let fresh: Vec<String> = (0..missing).map(|_| new_conversation_id()).collect();
        let filters: Vec<String> = fresh.iter().map(|name| conversation_filter(name)).collect();
        let granted = self.sender.subscribe(&as_strs(&filters)).await?;
        let granted_ids = fresh.into_iter().zip(granted).filter(|(_, granted)| *granted).map(|(name, _)| name);
        lock(&self.pending).spare_conversations.extend(granted_ids);
        Ok(())
    }

    /// Returns a conversation that is subscribed to; `None` where the connection is lost.
    ///
    /// # Errors
    /// The broker refuses the subscription.
    pub(super) async fn acquire_conversation(self: &Arc<Self>) -> Result<Option<Conversation>, Fault> {
        let spare = {
            let mut pending = lock(&self.pending);
            if pending.closed {
                return Ok(None);
            }
            pending.spare_conversations.pop()
        };
        self.maintenance.notify_one();
        let conversation_with_id = |id| Conversation { session: Arc::clone(self), id };
        if let Some(id) = spare {
            return Ok(Some(conversation_with_id(id)));
        }
        // From here on, dropping the conversation unsubscribes from it.
        let conversation = conversation_with_id(new_conversation_id());
        match self.sender.subscribe(&[&conversation_filter(&conversation.id)]).await {
            Ok(granted) if granted == [true] => Ok(Some(conversation)),
            Ok(_) => Err(refused_fault("subscription to /conversations/+/+ refused (check the broker's ACL)")),
            Err(MqttSendError::ConnectionLost(_)) => Ok(None),
            Err(error) => Err(request_fault(&error)),
        }
    }

    /// Subscribes to the progress of `agent`, for as long as the returned guard lives.
    ///
    /// # Errors
    /// The connection is lost. A refused subscription is not an error: the reply arrives without progress messages.
    pub(super) async fn subscribe_progress(self: &Arc<Self>, agent: &str) -> Result<ProgressGuard, MqttSendError> {
        let mut subscriptions = self.progress_subscriptions.lock().await;
        let subscription = subscriptions.entry(agent.to_owned()).or_default();
        subscription.watchers += 1;
        let guard = ProgressGuard { session: Arc::clone(self), agent: agent.to_owned() };
        if !subscription.granted {
            subscription.granted = self.sender.subscribe(&[&progress_filter(agent)]).await?.contains(&true);
        }
        Ok(guard)
    }

    async fn unsubscribe_progress(&self, agent: &str) -> Result<(), MqttSendError> {
        let mut subscriptions = self.progress_subscriptions.lock().await;
        let Some(subscription) = subscriptions.get_mut(agent) else { return Ok(()) };
        subscription.watchers = subscription.watchers.saturating_sub(1);
        if subscription.watchers > 0 {
            return Ok(());
        }
        subscriptions.remove(agent);
        self.sender.unsubscribe(&[&progress_filter(agent)]).await
    }
}

/// The conversation of one call. Dropping it ends the conversation: later messages are dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) session: Arc<BrokerSession>,
    pub(super) id: String,
}

impl Conversation {
    /// Registers the task whose reply is awaited, before it is published. `false` where the connection is lost.
    pub(super) fn register(&self, task: PendingTask) -> bool {
        let mut pending = lock(&self.session.pending);
        if pending.closed {
            return false;
        }
        pending.waiting.insert(self.id.clone(), task);
        true
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        lock(&self.session.pending).waiting.remove(&self.id);
        lock(&self.session.cleanup).conversations.push(std::mem::take(&mut self.id));
        self.session.maintenance.notify_one();
        self.session.maybe_unused.notify_one();
    }
}

/// A caller's interest in an agent's progress.
#[derive(Debug)]
pub(super) struct ProgressGuard {
    session: Arc<BrokerSession>,
    agent: String,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        lock(&self.session.cleanup).agents.push(std::mem::take(&mut self.agent));
        self.session.maintenance.notify_one();
    }
}
