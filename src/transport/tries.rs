//! Failover: makes one call at one of the endpoints of an upstream, skipping endpoints whose circuit breaker is open.
//! The call moves to the next endpoint only where the agent cannot execute it twice (R45).

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
    /// Makes the call at one of the endpoints. Neither this function nor the ones it calls are `async fn`: each would
    /// hold the request one more time than necessary.
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

    /// Makes the call over this transport, without asking the circuit breaker.
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

    /// Opens the WebSocket of the agent's primary endpoint, if it has one.
    pub(super) async fn socket_at(
        &self,
        route: &Route,
        request: Request<'_>,
        deadline: Instant,
    ) -> Result<Option<Opened>, Fault> {
        let end = &route.0.first;
        // Calls probe an agent that has no WebSocket: this request must not use up the half-open probe.
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

    /// Tries one endpoint after the other. A streamed body is sent to the first endpoint only.
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
            // A later endpoint that is unreachable does not undo what an earlier one may have executed.
            let unsure = failed.filter(|failed: &Fault| failed.reach() == Some(Reach::Unsure));
            failed = Some(unsure.unwrap_or(fault));
        }
        Err(failed.unwrap_or_else(|| shut(wait.unwrap_or(route.0.rules.open_for))))
    }
}
