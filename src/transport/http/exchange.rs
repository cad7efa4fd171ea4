//! One call over HTTP: a connection, the request, the head of the reply. The request is retried once, and only where
//! the agent cannot execute it twice (R45).

use super::{
    Http, Target,
    answer::{Answer, Held, Source},
    connect::{Way, connect},
    failure,
    line::{Line, Stream},
    message::{Exchange, Message, believable},
};
use crate::{
    fault::{Fault, Reach},
    transport::{
        Reply, Request,
        body::{Body, Course, Outgoing},
        headers,
        reply::ReplyBody,
    },
};
use http::{Response, Version};
use hyper::{body::Incoming, client::conn::TrySendError};
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context as TaskContext, Waker},
};
use tokio::{
    task::coop::unconstrained,
    time::{Instant, timeout_at},
};

/// A failed attempt.
struct Failed {
    fault: Fault,
    /// The request, if no byte of it was sent.
    unsent: Option<Message>,
    reached: Reached,
}

/// How far the request of a failed attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// No byte was sent, or the agent says that it has not processed the request.
    Nobody,
    /// The agent may have read the request, and sent no reply.
    Maybe,
    /// The agent has read the request.
    Agent,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, unsent: None, reached: Reached::Agent }
    }
}

impl Http {
    pub(in crate::transport) async fn call(
        &self,
        target: &Arc<Target>,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let Request { method, path, headers, body, passage, .. } = request;
        let exchange = Exchange { target, method, path, headers, passage, deadline };
        let (copy, course) = match &body {
            Body::Empty => (Some(None), None),
            Body::Whole(bytes) => (Some(Some(bytes.clone())), None),
            Body::Stream(intake) => (None, Some(intake.course())),
        };
        let way = self.way(target, deadline).await?;
        let reused = way.is_reused();
        let Failed { fault, unsent, reached } = match exchange.send(way, body.into(), course.as_deref()).await {
            Ok(reply) => return Ok(reply),
            Err(failed) => failed,
        };
        let safe = reached == Reached::Nobody || (reached == Reached::Maybe && exchange.is_repeatable());
        let again = unsent.map(Message::into_body).or_else(|| copy.filter(|_| safe).map(Outgoing::Whole));
        // A fresh connection would fail in the same way.
        let Some(again) = again.filter(|_| reused) else {
            return Err(fault);
        };
        // The other idle connections are probably dead as well.
        let way = self.connect(target, deadline).await?;
        exchange.send(way, again, course.as_deref()).await.map_err(|failed| failed.fault)
    }

    async fn way(&self, target: &Arc<Target>, deadline: Instant) -> Result<Way, Fault> {
        let now = Instant::now();
        if deadline <= now {
            return Err(failure::too_late("the call's deadline passed before the agent was called"));
        }
        if let Some(stream) = target.pool.take_trunk() {
            return Ok(Way::Stream(stream, true));
        }
        // If the agent has closed the connection, nothing is sent on it, and a new one is opened.
        if let Some(mut line) = target.pool.take_line(now) {
            line.reused = true;
            return Ok(Way::Line(line));
        }
        self.connect(target, deadline).await
    }

    /// Opens a connection. Boxed, so that the futures of calls over an existing connection stay small.
    async fn connect(&self, target: &Target, deadline: Instant) -> Result<Way, Fault> {
        Box::pin(connect(target, &self.policy(), deadline)).await
    }
}

impl Exchange<'_> {
    async fn send(&self, way: Way, body: Outgoing, course: Option<&Course>) -> Result<Reply, Failed> {
        let sent = match way {
            Way::Line(line) => self.on_line(line, body, course).await,
            Way::Stream(stream, _) => self.on_stream(stream, body, course).await,
        };
        // A truncated request body explains every other failure.
        sent.map_err(|failed| match course.and_then(Course::fault) {
            Some(fault) => fault.into(),
            None => failed,
        })
    }

    async fn on_line(&self, mut line: Line, body: Outgoing, course: Option<&Course>) -> Result<Reply, Failed> {
        let message = self.message(body, Version::HTTP_11)?;
        let before = line.ledger.read();
        // Only driving the connection can bring the reply, so nothing else needs to wake this call. The reply is polled
        // outside tokio's budget: a poll deferred for lack of budget would not be woken.
        let mut answer = pin!(unconstrained(line.sender.try_send_request(message)));
        let head = poll_fn(|cx| {
            // If the connection has ended, the reply's future knows why.
            let _ = line.drive(cx);
            answer.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
        });
        let head = self.in_time(pin!(head), course).await?;
        let response = match head {
            Ok(response) => response,
            Err(failed) => {
                let now = line.ledger.read();
                let reached = match now {
                    _ if now == before => Reached::Nobody,
                    (_, received) if received == before.1 => Reached::Maybe,
                    _ => Reached::Agent,
                };
                return Err(lost(failed, reached));
            }
        };
        believable(&response)?;
        let hint = headers::keeps_alive_for(response.headers());
        let pool = Arc::clone(&self.target.pool);
        Ok(self.reply(response, Source::Line(Box::new(Held { line, pool, hint }))))
    }

    async fn on_stream(&self, stream: Stream, body: Outgoing, course: Option<&Course>) -> Result<Reply, Failed> {
        let message = self.message(body, Version::HTTP_2)?;
        let answer = stream.sender().try_send_request(message);
        match self.in_time(pin!(answer), course).await? {
            Ok(response) => {
                believable(&response)?;
                Ok(self.reply(response, Source::Stream(stream)))
            }
            Err(failed) => {
                let reached = match failure::is_unprocessed(failed.error()) {
                    true => Reached::Nobody,
                    false => Reached::Maybe,
                };
                Err(lost(failed, reached))
            }
        }
    }

    /// Waits for the response head: within the call's deadline, and within the first-byte timeout, which restarts while
    /// the caller is still sending.
    async fn in_time<T>(
        &self,
        mut head: Pin<&mut impl Future<Output = T>>,
        course: Option<&Course>,
    ) -> Result<T, Fault> {
        loop {
            let until = Instant::now() + self.target.bounds.first_byte;
            match timeout_at(until.min(self.deadline), head.as_mut()).await {
                Ok(head) => return Ok(head),
                Err(_) if until >= self.deadline => {
                    return Err(failure::too_late("the call's deadline passed before the response head"));
                }
                Err(_) if course.is_some_and(Course::has_moved) => {}
                Err(_) => {
                    let bound = self.target.bounds.first_byte;
                    return Err(failure::too_late(format_args!("no complete response head within {bound:?}")));
                }
            }
        }
    }

    fn reply(&self, response: Response<Incoming>, source: Source) -> Reply {
        let (head, body) = response.into_parts();
        let body = Answer::new(body, source, (self.target.bounds.idle, self.deadline));
        Reply { status: head.status, headers: head.headers, body: ReplyBody::from(body) }
    }
}

fn lost(mut failed: TrySendError<Message>, reached: Reached) -> Failed {
    let fault = failure::unanswered(failed.error());
    let fault = if reached == Reached::Nobody { fault.reached(Reach::Nowhere) } else { fault };
    Failed { fault, unsent: failed.take_message(), reached }
}
