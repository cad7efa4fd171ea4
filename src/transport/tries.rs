//! One call at one endpoint or another, never where the breaker is open. It goes on to the next one only where that
//! cannot make an agent do a thing twice (R45).

use super::{
    Request, Transport,
    body::Body,
    breaker::{Given, InFlight, shut},
    ends::{End, Lead, Route},
    reply::Reply,
    session,
    websocket::Opened,
};
use crate::fault::{Fault, Reach};
use futures_util::{
    FutureExt,
    future::{Either, ready},
};
use std::time::Duration;
use tokio::time::Instant;

impl Transport {
    /// Makes the call at one endpoint or another. Like what it is made of it is no `async fn`, which would keep the
    /// request once more than it is needed.
    pub(super) fn at_ends<'a>(
        &'a self,
        route: &'a Route,
        request: Request<'a>,
        (session, deadline): (Option<u64>, Instant),
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        if !route.0.further.is_empty() {
            return Either::Left(self.at_one_of(route, request, session, deadline).boxed());
        }
        let end = &route.0.first;
        Either::Right(match end.breaker.admit(&route.0.rules) {
            Ok(()) => Either::Left(self.at(route, end, request, deadline)),
            Err(wait) => Either::Right(ready(Err(shut(wait)))),
        })
    }

    fn at<'a>(
        &'a self,
        route: &'a Route,
        end: &'a End,
        request: Request<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        let streamed = matches!(request.body, Body::Stream(_));
        let given = Given { began: Instant::now(), deadline, streamed, bounds: *end.lead.bounds() };
        self.along(&end.lead, request, deadline).inspect(move |made| route.learn(end, given, made))
    }

    /// Makes the call there, whatever is known of the endpoint.
    pub(super) fn along<'a>(
        &'a self,
        lead: &'a Lead,
        request: Request<'a>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send + 'a {
        match lead {
            Lead::Http(target) => Either::Left(self.http.call(target, request, deadline)),
            Lead::Other(way) => Either::Right(way.call(request, deadline)),
        }
    }

    /// Opens the WebSocket of the agent's own endpoint, if it has one.
    pub(super) async fn socket_at(
        &self,
        route: &Route,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<Option<Opened>, Fault> {
        let end = &route.0.first;
        // An agent without one is tried by its calls: what is asked here must not take their turn.
        let Lead::Other(way) = &end.lead else { return Ok(None) };
        if !way.has_socket() {
            return Ok(None);
        }
        let given = Given { began: Instant::now(), deadline, streamed: false, bounds: *way.bounds() };
        end.breaker.admit(&route.0.rules).map_err(shut)?;
        let Some(made) = way.socket(request, deadline).await else { return Ok(None) };
        route.learn(end, given, &made);
        made.map(Some)
    }

    /// Goes from endpoint to endpoint. A body that is streamed was begun with the first one, and stays there.
    async fn at_one_of(
        &self,
        route: &Route,
        request: Request<'_>,
        session: Option<u64>,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let (tag, untagged) = session::untagged(request.headers).unzip();
        let Request { id, operation, method, path, headers, body, passage, instruction } = request;
        let headers = untagged.as_ref().unwrap_or(headers);
        let repeatable = method.is_idempotent() || headers.contains_key("idempotency-key");
        let (mut body, mut failed, mut wait) = (Some(body), None, None::<Duration>);
        for end in route.order(session, tag) {
            if let Err(until) = end.breaker.admit(&route.0.rules) {
                wait = Some(wait.map_or(until, |wait| wait.min(until)));
                continue;
            }
            let Some(sent) = body.take() else { break };
            body = match &sent {
                Body::Empty => Some(Body::Empty),
                Body::Whole(bytes) => Some(Body::Whole(bytes.clone())),
                Body::Stream(_) => None,
            };
            let place = InFlight::at(&end.breaker);
            let (method, path) = (method.clone(), path.clone());
            let request = Request { id, operation, method, path, headers, body: sent, passage, instruction };
            let fault = match self.at(route, end, request, deadline).await {
                Ok(mut reply) => {
                    reply.body.hold(place);
                    session::tag_in(&mut reply.headers, end.mark());
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            let again = match fault.reach() {
                Some(Reach::Nowhere) => true,
                Some(Reach::Unsure) => repeatable,
                None => false,
            };
            if !again {
                return Err(fault);
            }
            // What one of them may have done is not made undone by another that cannot be reached.
            let unsure = failed.filter(|failed: &Fault| failed.reach() == Some(Reach::Unsure));
            failed = Some(unsure.unwrap_or(fault));
        }
        Err(failed.unwrap_or_else(|| shut(wait.unwrap_or(route.0.rules.open_for))))
    }
}
