//! One connection to a broker, shared by calls. Each call has a conversation of its own, subscribed to before its task
//! is published. A few spare conversations are subscribed to in advance, so that a call costs one round trip instead of
//! two. A background task cleans up after calls.

use super::desk::{Desk, Expected, Fate};
use crate::{
    broker::{Speaker, Unheard, Words},
    fault::{Code, Fault, Reach},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::Notify;

/// The number of conversations that are subscribed to in advance.
const SPARE: usize = 8;
/// The number of conversations that are unsubscribed from in one request.
const AT_ONCE: usize = 100;

/// A broker connection, and the calls that use it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) speaker: Speaker,
    desk: Mutex<Desk>,
    /// The clean-up that calls left: finished conversations, and agents with one progress watcher less.
    left: Mutex<Left>,
    chores: Notify,
    /// The agents whose progress is subscribed to; locked during the request to the broker.
    watched: tokio::sync::Mutex<HashMap<String, Watched>>,
    retired: AtomicBool,
    unused: Notify,
    /// The number of messages that no call awaited.
    strays: AtomicU64,
}

#[derive(Debug, Default)]
struct Left {
    conversations: Vec<String>,
    agents: Vec<String>,
}

#[derive(Debug, Default)]
struct Watched {
    by: usize,
    granted: bool,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn conversation_filter(name: &str) -> String {
    format!("/conversations/{name}/+")
}

fn progress_filter(agent: &str) -> String {
    format!("/control/agents/{agent}/progress/#")
}

/// Creates an unguessable id with 122 random bits.
fn name() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn texts(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// The fault of a failed request to the broker.
pub(super) fn unheard(why: &Unheard) -> Fault {
    match why {
        Unheard::TooLarge(most) => super::envelope::too_large(*most),
        // A broker reports this of messages that it drops, but the client library uses it for other reasons as well.
        Unheard::Refused(_) => refused(why).reached(Reach::Unsure),
        Unheard::Lost(_) => lost(why),
    }
}

/// The fault of a task that was not published.
fn refused(why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::AgentError, "The agent's message broker refused the call")
        .detail(format_args!("MQTT broker: {why}"))
        .reached(Reach::Nowhere)
}

/// The fault of a lost connection: no reply can arrive, and the agent may have received the task.
pub(super) fn lost(why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::AgentError, "The connection to the agent was lost before it answered")
        .detail(format_args!("MQTT broker: {why}"))
        .reached(Reach::Unsure)
}

impl Session {
    pub(super) fn new(speaker: Speaker) -> Self {
        Self {
            speaker,
            desk: Mutex::default(),
            left: Mutex::default(),
            chores: Notify::new(),
            watched: tokio::sync::Mutex::default(),
            retired: AtomicBool::new(false),
            unused: Notify::new(),
            strays: AtomicU64::new(0),
        }
    }

    /// Delivers incoming messages until the connection is lost, or is retired and unused.
    pub(super) async fn serve(&self, mut words: Words) {
        let why = loop {
            tokio::select! {
                word = words.next() => match word {
                    Ok(message) => {
                        let fate = lock(&self.desk).deliver(&message);
                        if fate != Fate::Delivered {
                            let strays = self.strays.fetch_add(1, Relaxed) + 1;
                            tracing::debug!(?fate, strays, "MQTT message dropped: no call awaits it");
                        }
                    }
                    Err(why) => break why,
                },
                () = self.unused.notified() => {}
            }
            if self.retired.load(Relaxed) && lock(&self.desk).open.is_empty() {
                break "retired and unused".to_owned();
            }
        };
        tracing::debug!(why, "MQTT connection to an agent's broker ended");
        let mut desk = lock(&self.desk);
        desk.closed = true;
        // Dropping the senders tells the waiting calls that no reply can arrive.
        desk.open.clear();
    }

    /// Takes the connection out of use for further calls.
    pub(super) fn retire(&self) {
        self.retired.store(true, Relaxed);
        self.unused.notify_one();
    }

    /// Cleans up after calls and prepares conversations for the next ones, while the connection lasts.
    pub(super) async fn keep_house(&self) {
        loop {
            let done = self.chores().await;
            if let Err(why) = done {
                tracing::debug!(%why, "MQTT subscription maintenance failed");
                if matches!(why, Unheard::Lost(_)) {
                    return;
                }
            }
            self.chores.notified().await;
        }
    }

    async fn chores(&self) -> Result<(), Unheard> {
        self.provide().await?;
        loop {
            let (over, agents) = {
                let mut left = lock(&self.left);
                let from = left.conversations.len().saturating_sub(AT_ONCE);
                (left.conversations.split_off(from), std::mem::take(&mut left.agents))
            };
            for agent in &agents {
                self.unwatch(agent).await?;
            }
            if over.is_empty() {
                return Ok(());
            }
            let filters: Vec<String> = over.iter().map(|name| conversation_filter(name)).collect();
            self.speaker.unsubscribe(&texts(&filters)).await?;
        }
    }

    /// Subscribes to spare conversations.
    async fn provide(&self) -> Result<(), Unheard> {
        let missing = SPARE.saturating_sub(lock(&self.desk).ready.len());
        if missing == 0 || self.retired.load(Relaxed) {
            return Ok(());
        }
        let fresh: Vec<String> = (0..missing).map(|_| name()).collect();
        let filters: Vec<String> = fresh.iter().map(|name| conversation_filter(name)).collect();
        let granted = self.speaker.subscribe(&texts(&filters)).await?;
        let good = fresh.into_iter().zip(granted).filter(|(_, granted)| *granted).map(|(name, _)| name);
        lock(&self.desk).ready.extend(good);
        Ok(())
    }

    /// Returns a conversation that is subscribed to; `None` where the connection is lost.
    ///
    /// # Errors
    /// The broker refuses the subscription.
    pub(super) async fn conversation(self: &Arc<Self>) -> Result<Option<Conversation>, Fault> {
        let ready = {
            let mut desk = lock(&self.desk);
            if desk.closed {
                return Ok(None);
            }
            desk.ready.pop()
        };
        self.chores.notify_one();
        let made = |name| Conversation { session: Arc::clone(self), name };
        if let Some(name) = ready {
            return Ok(Some(made(name)));
        }
        // From here on, dropping the conversation unsubscribes from it.
        let conversation = made(name());
        match self.speaker.subscribe(&[&conversation_filter(&conversation.name)]).await {
            Ok(granted) if granted == [true] => Ok(Some(conversation)),
            Ok(_) => Err(refused("subscription to /conversations/+/+ refused (check the broker's ACL)")),
            Err(Unheard::Lost(_)) => Ok(None),
            Err(why) => Err(unheard(&why)),
        }
    }

    /// Subscribes to the progress of `agent`, for as long as the returned guard lives.
    ///
    /// # Errors
    /// The connection is lost. A refused subscription is not an error: the reply arrives without progress messages.
    pub(super) async fn watch(self: &Arc<Self>, agent: &str) -> Result<Watch, Unheard> {
        let mut watched = self.watched.lock().await;
        let known = watched.entry(agent.to_owned()).or_default();
        known.by += 1;
        let watch = Watch { session: Arc::clone(self), agent: agent.to_owned() };
        if !known.granted {
            known.granted = self.speaker.subscribe(&[&progress_filter(agent)]).await?.contains(&true);
        }
        Ok(watch)
    }

    async fn unwatch(&self, agent: &str) -> Result<(), Unheard> {
        let mut watched = self.watched.lock().await;
        let Some(known) = watched.get_mut(agent) else { return Ok(()) };
        known.by = known.by.saturating_sub(1);
        if known.by > 0 {
            return Ok(());
        }
        watched.remove(agent);
        self.speaker.unsubscribe(&[&progress_filter(agent)]).await
    }
}

/// The conversation of one call. Dropping it ends the conversation: later messages are dropped.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) session: Arc<Session>,
    pub(super) name: String,
}

impl Conversation {
    /// Registers the task whose reply is awaited, before it is published. `false` where the connection is lost.
    pub(super) fn expect(&self, expected: Expected) -> bool {
        let mut desk = lock(&self.session.desk);
        if !desk.closed {
            desk.open.insert(self.name.clone(), expected);
        }
        !desk.closed
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        lock(&self.session.desk).open.remove(&self.name);
        lock(&self.session.left).conversations.push(std::mem::take(&mut self.name));
        self.session.chores.notify_one();
        self.session.unused.notify_one();
    }
}

/// A caller's interest in an agent's progress.
#[derive(Debug)]
pub(super) struct Watch {
    session: Arc<Session>,
    agent: String,
}

impl Drop for Watch {
    fn drop(&mut self) {
        lock(&self.session.left).agents.push(std::mem::take(&mut self.agent));
        self.session.chores.notify_one();
    }
}
