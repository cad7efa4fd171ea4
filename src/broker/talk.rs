//! A conversation that goes on: what is said is acknowledged or is known to be in doubt, what is heard is read at its
//! reader's pace. Reading and acknowledging are a task of their own, so that nobody who says something while reading
//! waits for himself.

use super::line::{Ear, Heard, Message, Mouth, Spoken};
use bytes::Bytes;
use std::{fmt, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
};

/// Messages that wait for their reader; a full queue stops the broker.
const QUEUE: usize = 64;
/// Bytes of a packet besides topic and payload, at most.
const AROUND: usize = 16;

/// Why the broker has not acknowledged what was said. It may be told to an operator, not to a caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    /// The message is longer than the broker takes; it was not sent.
    #[error("the broker takes no messages of more than {0} bytes")]
    TooLarge(usize),
    /// The broker, or the protocol, refuses it.
    #[error("{0}")]
    Refused(String),
    /// The conversation is over. Whether the broker has it, nobody knows; it is not sent again.
    #[error("the conversation is over: {0}")]
    Lost(String),
}

/// The gateway's side of a conversation. Cheap to clone.
#[derive(Clone)]
pub struct Speaker {
    mouth: Arc<dyn Mouth>,
    takes: usize,
    patience: Duration,
    over: watch::Receiver<Option<String>>,
    give_up: Arc<Notify>,
}

impl fmt::Debug for Speaker {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Speaker").field("over", &*self.over.borrow()).finish_non_exhaustive()
    }
}

/// What the broker says. Dropping it ends the conversation without a good-bye: the last will is carried out.
#[derive(Debug)]
pub struct Words {
    messages: mpsc::Receiver<Message>,
    over: watch::Receiver<Option<String>>,
    _task: JoinSet<()>,
}

/// Goes on with a conversation that has begun.
pub(super) fn begin(spoken: Spoken, patience: Duration) -> (Speaker, Words) {
    let (tell, over) = watch::channel(None);
    let (queue, messages) = mpsc::channel(QUEUE);
    let give_up = Arc::new(Notify::new());
    let mut task = JoinSet::new();
    let (mut ear, given_up) = (spoken.ear, Arc::clone(&give_up));
    task.spawn(async move {
        let why = tokio::select! {
            why = listen(ear.as_mut(), &queue) => why,
            () = given_up.notified() => "the broker does not acknowledge what is said".to_owned(),
        };
        // Whoever waits for an acknowledgement hears the reason before the library says that there is none.
        tell.send_replace(Some(why));
    });
    let speaker = Speaker { mouth: spoken.mouth, takes: spoken.takes, patience, over: over.clone(), give_up };
    (speaker, Words { messages, over, _task: task })
}

async fn listen(ear: &mut dyn Ear, queue: &mpsc::Sender<Message>) -> String {
    loop {
        match ear.next().await {
            Ok(None) => {}
            Ok(Some(message)) => {
                if queue.send(message).await.is_err() {
                    return "nobody listens any more".to_owned();
                }
            }
            Err(why) => return why,
        }
    }
}

impl Words {
    /// The next message. Nothing is lost when this is dropped before it resolves.
    ///
    /// # Errors
    /// The conversation is over, and why; so it stays. It may be told to an operator, not to a caller.
    pub async fn next(&mut self) -> Result<Message, String> {
        match self.messages.recv().await {
            Some(message) => Ok(message),
            None => Err(over(self.over.clone()).await),
        }
    }
}

impl Speaker {
    /// Publishes with QoS 1 (R105); resolves when the broker has it. The message is sent once: where this fails with
    /// [`Unheard::Lost`], or is dropped, nobody knows whether it has arrived.
    ///
    /// # Errors
    /// The broker has not acknowledged it, and never will.
    pub async fn publish(&self, topic: &str, payload: impl Into<Bytes>, retain: bool) -> Result<Heard, Unheard> {
        let payload = payload.into();
        if AROUND + topic.len() + payload.len() > self.takes {
            return Err(Unheard::TooLarge(self.takes));
        }
        self.said(self.mouth.publish(topic, payload, retain)).await
    }

    /// Asks for the messages of `filters`; resolves when the broker has answered (SUBACK), with whether each of them
    /// is granted. What is published after that is not missed.
    ///
    /// # Errors
    /// The broker has not answered, and never will.
    pub async fn subscribe(&self, filters: &[&str]) -> Result<Vec<bool>, Unheard> {
        self.said(self.mouth.subscribe(filters)).await
    }

    /// Takes back what was asked for with `filter`; resolves when the broker has answered.
    ///
    /// # Errors
    /// The broker has not answered, and never will.
    pub async fn unsubscribe(&self, filter: &str) -> Result<(), Unheard> {
        self.said(self.mouth.unsubscribe(filter)).await
    }

    /// Says good-bye after what was said before is acknowledged, and waits until the conversation is over, but not
    /// beyond its patience. The last will is then not carried out.
    pub async fn disconnect(&self) {
        let bye = async {
            match self.mouth.disconnect().await {
                Ok(()) => drop(over(self.over.clone()).await),
                Err(why) => tracing::debug!(why, "a broker could not be told good-bye"),
            }
        };
        if tokio::time::timeout(self.patience, bye).await.is_err() {
            self.give_up.notify_one();
        }
    }

    /// Whether the conversation is over.
    pub fn is_over(&self) -> bool {
        self.over.borrow().is_some() || self.over.has_changed().is_err()
    }

    /// Resolves when the conversation is over, with the reason.
    pub async fn over(&self) -> String {
        over(self.over.clone()).await
    }

    async fn said<T>(&self, acknowledged: impl Future<Output = Result<T, String>>) -> Result<T, Unheard> {
        let waited = tokio::time::timeout(self.patience, acknowledged);
        tokio::select! {
            biased;
            done = waited => match done {
                Ok(Ok(done)) => Ok(done),
                // The library only says that nobody will answer; the conversation's end says why.
                Ok(Err(why)) => Err(match self.is_over() {
                    true => Unheard::Lost(over(self.over.clone()).await),
                    false => Unheard::Refused(why),
                }),
                Err(_) => {
                    self.give_up.notify_one();
                    Err(Unheard::Lost("the broker does not acknowledge what is said".to_owned()))
                }
            },
            why = over(self.over.clone()) => Err(Unheard::Lost(why)),
        }
    }
}

async fn over(mut told: watch::Receiver<Option<String>>) -> String {
    let why = told.wait_for(Option::is_some).await;
    // Nobody tells any more where reading has failed by a defect, or was stopped with its reader.
    why.ok().and_then(|why| why.clone()).unwrap_or_else(|| "reading has ended".to_owned())
}
