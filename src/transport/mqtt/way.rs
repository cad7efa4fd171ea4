//! One call over MQTT: a conversation, the task published for it, and the first reply to that task.

use super::{
    desk::{Expected, WAITING},
    envelope::Asked,
    events,
    link::Link,
    session::{Conversation, Session, Watch, lost, unheard},
};
use crate::{
    agent::Agent,
    broker::{Heard, LARGEST, Unheard},
    fault::{Code, Fault, Reach},
    transport::{Bounds, Reply, ReplyBody, Request, Way},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

/// The highest concurrency that an agent's own record may declare.
const MOST_AT_ONCE: u32 = 1_000;

/// The transport to one agent.
#[derive(Debug)]
pub(super) struct Task {
    /// The agent's input topic, in canonical form.
    topic: String,
    /// The agent's id at the broker, under which it replies.
    agent: String,
    at_once: NonZeroU32,
    link: Arc<Link>,
    bounds: Bounds,
}

/// A published task whose reply is awaited.
#[derive(Debug)]
pub(super) struct Asking {
    answer: oneshot::Receiver<Result<Bytes, Fault>>,
    progress: mpsc::Receiver<String>,
    publishing: Option<JoinHandle<Result<Heard, Unheard>>>,
    conversation: Conversation,
    /// Keeps the broker connection open while a reply may arrive.
    _link: Arc<Link>,
    _watch: Option<Watch>,
}

/// The next event of a task.
pub(super) enum Came {
    Progress(String),
    Answer(Bytes),
}

fn late() -> Fault {
    Fault::new(Code::Timeout, "The agent did not answer in time")
}

impl Task {
    pub(super) fn new(named: String, agent: &Agent, (link, bounds): (Arc<Link>, Bounds)) -> Self {
        let topic = format!("/control/agents/{named}/input");
        Self { agent: named, at_once: declared(agent), topic, link, bounds }
    }

    /// Returns a broker session, within a time bound; after a timeout, nothing was published.
    async fn session(&self) -> Result<Arc<Session>, Fault> {
        // Both versions of MQTT may have to be tried.
        let session = timeout(self.bounds.connect * 2, self.link.session()).await;
        session.unwrap_or_else(|_| {
            let why = "connecting to the agent's broker took too long";
            Err(late().detail(why).reached(Reach::Nowhere))
        })
    }

    /// Publishes the task, after subscribing to a conversation for its reply.
    async fn ask(&self, asked: &Asked, watching: bool) -> Result<Asking, Fault> {
        // A connection that is lost before publishing has carried nothing: the task may use the next connection.
        for _ in 0..2 {
            let session = self.session().await?;
            let Some(conversation) = session.conversation().await? else { continue };
            let watch = match watching {
                true => match session.watch(&self.agent).await {
                    Ok(watch) => Some(watch),
                    Err(Unheard::Lost(_)) => continue,
                    // The reply arrives even without progress messages.
                    Err(_) => None,
                },
                false => None,
            };
            let task = uuid::Uuid::new_v4().to_string();
            let message = asked.write(&self.topic, &task, &conversation.name)?;
            let ((tell, answer), (teller, progress)) = (oneshot::channel(), mpsc::channel(WAITING));
            let expected =
                Expected { task, from: self.agent.clone(), answer: tell, progress: watching.then_some(teller) };
            if !conversation.expect(expected) {
                continue;
            }
            let (speaker, topic) = (session.speaker.clone(), self.topic.clone());
            // The publishing task outlives the call, so that a broker that does not acknowledge is detected.
            let publishing = tokio::spawn(async move { speaker.publish(&topic, message, false).await });
            let (publishing, _link) = (Some(publishing), Arc::clone(&self.link));
            return Ok(Asking { answer, progress, publishing, conversation, _link, _watch: watch });
        }
        Err(lost("the connection was lost repeatedly").reached(Reach::Nowhere))
    }

    async fn begin(&self, asked: &Asked, deadline: Option<Instant>) -> Result<Reply, Fault> {
        let mut asking = self.ask(asked, deadline.is_some()).await?;
        let (media, body) = match (asking.next().await?, deadline) {
            (Came::Progress(text), Some(deadline)) => {
                ("text/event-stream", events::stream(asking, text, (self.bounds.idle, deadline)))
            }
            (Came::Progress(_), None) => ("application/json", ReplyBody::from(asking.last().await?)),
            (Came::Answer(answer), Some(_)) => ("text/event-stream", ReplyBody::from(events::result(&answer))),
            (Came::Answer(answer), None) => ("application/json", ReplyBody::from(answer)),
        };
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media))]);
        Ok(Reply { status: StatusCode::OK, headers, body })
    }
}

/// Returns the concurrency that the agent's record declares (`max_concurrency`), else one: agents of this protocol
/// execute one task after the other.
fn declared(agent: &Agent) -> NonZeroU32 {
    #[derive(serde::Deserialize)]
    struct Declares {
        #[serde(default)]
        max_concurrency: serde_json::Value,
    }
    let read = serde_json::from_str::<Declares>(&agent.document).ok();
    let told = read.and_then(|declares| u32::try_from(declares.max_concurrency.as_u64()?).ok());
    told.and_then(|most| NonZeroU32::new(most.min(MOST_AT_ONCE))).unwrap_or(NonZeroU32::MIN)
}

impl Asking {
    /// Waits for the next event.
    ///
    /// # Errors
    /// The agent failed or is not subscribed, or the outcome can never be known.
    pub(super) async fn next(&mut self) -> Result<Came, Fault> {
        loop {
            tokio::select! {
                biased;
                // Progress that arrived before the reply is delivered before it.
                Some(text) = self.progress.recv() => return Ok(Came::Progress(text)),
                answer = &mut self.answer => return match answer {
                    Ok(answer) => answer.map(Came::Answer),
                    Err(_) => Err(lost(self.conversation.session.speaker.over().await)),
                },
                heard = published(&mut self.publishing) => match heard {
                    Ok(Heard::Taken) => {}
                    Ok(Heard::ByNobody) => return Err(absent()),
                    Err(why) => return Err(unheard(&why)),
                },
            }
        }
    }

    /// Waits for the reply and drops progress messages.
    async fn last(&mut self) -> Result<Bytes, Fault> {
        loop {
            if let Came::Answer(answer) = self.next().await? {
                return Ok(answer);
            }
        }
    }
}

/// Resolves once, when the broker has acknowledged the task or the publish has failed.
async fn published(publishing: &mut Option<JoinHandle<Result<Heard, Unheard>>>) -> Result<Heard, Unheard> {
    let Some(handle) = publishing else { return std::future::pending().await };
    let heard = handle.await;
    *publishing = None;
    heard.unwrap_or_else(|why| Err(Unheard::Lost(why.to_string())))
}

fn absent() -> Fault {
    Fault::new(Code::AgentUnavailable, "The agent is not connected")
        .detail("the broker reports no subscriber of the agent's input topic")
        .retry_after(Duration::from_secs(1))
        .reached(Reach::Nowhere)
}

#[async_trait::async_trait]
impl Way for Task {
    fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    fn at_once(&self) -> Option<NonZeroU32> {
        Some(self.at_once)
    }

    fn takes_instructions(&self) -> bool {
        true
    }

    async fn call(&self, request: Request<'_>, deadline: Instant) -> Result<Reply, Fault> {
        let Request { operation, headers, body, instruction, .. } = request;
        let slow = |_| Fault::new(Code::Timeout, "The request body did not arrive in time").status(408);
        let body = timeout_at(deadline, body.whole(LARGEST)).await.map_err(slow)??;
        let asked = Asked::read(&body, operation, instruction)?;
        let until = deadline.min(Instant::now() + self.bounds.first_byte);
        let begun = timeout_at(until, self.begin(&asked, events::wanted(headers).then_some(deadline))).await;
        begun.unwrap_or_else(|_| Err(late().detail(format_args!("no message on the conversation: {}", self.topic))))
    }
}
