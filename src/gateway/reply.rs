//! Step 12: the response to the caller. Every response is written here and in `streamed_response`; every fault goes
//! through one function and one table.

use super::{
    Gateway, Stop, World,
    admit::Admitted,
    call::{Call, Stage},
    cors,
    errand::Whole,
    fields::{REQUEST_ID, append, head_of, tell, with_fields},
    follow::Following,
    forward::Pump,
    judge::Judge,
    listen::{self, Connection, Outcome},
    normalise::may_hide_failure,
    route::{Route, looks_like_json},
    stream::{Onward, is_events, is_sequence},
    versions::FIELD,
};
use crate::{
    auth::Caller,
    directory,
    fault::{Code, Fault, Format},
    limit::Standing,
    transport::{Beginning, Reply, incoming_headers},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use std::sync::Arc;

/// A reply of at most this size is inspected before its head is passed on.
const LOOKED_AT: usize = 64 << 10;

/// Writes the response to an admitted call.
pub(super) struct Out<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) world: &'a World,
    pub(super) connection: &'a Connection,
    pub(super) admitted: &'a Arc<Admitted>,
    pub(super) caller: &'a Caller,
    pub(super) standing: Option<&'a Standing>,
}

impl Out<'_> {
    /// Writes the agent's reply, or returns the fault that it contains.
    pub(super) async fn answer(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        mut reply: Reply,
        mut pump: Pump<'_>,
    ) -> std::result::Result<Outcome, Stop> {
        let is_json = looks_like_json(reply.headers.get(header::CONTENT_TYPE));
        if !reply.status.is_success() {
            // An agent that breaks off inside its error response has still failed.
            let Beginning { bytes, complete } =
                self.begin(session, &mut reply, &mut pump, LOOKED_AT).await.or_else(|stop| match stop {
                    Stop::Gone => Err(Stop::Gone),
                    Stop::Fault(_) => Ok(Beginning { bytes: Bytes::new(), complete: false }),
                })?;
            self.judge().verdict(&reply, &bytes, complete)?;
            return Box::pin(self.onward(session, call, reply, pump)).await;
        }
        let enforced = self.admitted.operation().contract.enforces_output();
        // A non-JSON reply to a JSON contract violates it too; a message sequence has no single body to validate.
        let enforced = enforced && reply.status != StatusCode::NO_CONTENT && !is_sequence(&reply.headers);
        let small = reply.body.length().is_some_and(|length| length <= LOOKED_AT as u64);
        if enforced || (is_json && small) {
            let most = if enforced { self.world.contract.max_body.get() } else { LOOKED_AT };
            let Beginning { bytes, complete } = self.begin(session, &mut reply, &mut pump, most).await?;
            if !complete {
                return Err(Fault::new(Code::AgentError, "The agent's answer is too large to be validated").into());
            }
            self.judge().verdict(&reply, &bytes, true)?;
            self.judge().contract(&bytes)?;
            return self.whole(session, call, &reply, bytes).await;
        }
        if is_json && may_hide_failure(&self.begin(session, &mut reply, &mut pump, 0).await?.bytes) {
            let Beginning { bytes, complete } = self.begin(session, &mut reply, &mut pump, LOOKED_AT).await?;
            self.judge().verdict(&reply, &bytes, complete)?;
        }
        // Boxed as above: the common reply is complete, and its future need not have space for a stream.
        Box::pin(self.onward(session, call, reply, pump)).await
    }

    async fn onward(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        reply: Reply,
        pump: Pump<'_>,
    ) -> std::result::Result<Outcome, Stop> {
        let mut head = self.head(session, call, &reply, None);
        let mut reply = reply;
        if is_events(&reply.headers) && pump.is_done() {
            match self.detach(call, &mut head, reply) {
                Ok(follower) => {
                    let Self { world, connection, .. } = *self;
                    let following = Following { world, connection, follower, first: true };
                    return Ok(following.run(session, call, head).await);
                }
                Err(back) => reply = *back,
            }
        }
        Ok(Onward { out: self, reply, pump }.run(session, call, head).await)
    }

    /// Writes a JSON body of the gateway with 200.
    pub(super) async fn json(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        body: Bytes,
    ) -> std::result::Result<Outcome, Stop> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let head = self.fields(call, StatusCode::OK, headers, Some(body.len()));
        write(session, self.connection, call, head, body).await
    }

    /// Writes an agent's reply that is complete and validated.
    pub(super) async fn whole(
        &self,
        session: &mut ServerSession,
        call: &mut Call,
        reply: &Reply,
        body: Bytes,
    ) -> std::result::Result<Outcome, Stop> {
        let head = self.head(session, call, reply, Some(body.len()));
        write(session, self.connection, call, head, body).await
    }

    fn head(&self, session: &ServerSession, call: &Call, reply: &Reply, length: Option<usize>) -> ResponseHeader {
        let headers = incoming_headers(&reply.headers, reply.status);
        let length = length.or_else(|| reply.body.length().map(|length| length as usize));
        // RFC 9110 §8.6: a 204 has no Content-Length.
        if reply.status == StatusCode::NO_CONTENT {
            return self.fields(call, reply.status, headers, None);
        }
        let mut head = self.fields(call, reply.status, headers, length);
        if length.is_none() && session.req_header().version == Version::HTTP_11 {
            let _ = head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        head
    }

    fn fields(&self, call: &Call, status: StatusCode, mut headers: HeaderMap, len: Option<usize>) -> ResponseHeader {
        // R68; an agent that sets the header itself keeps its value.
        if let Some(label) = self.admitted.version().and_then(|version| version.label.clone()) {
            headers.entry(FIELD).or_insert(label);
        }
        with_fields(call, (self.admitted.agent(), self.standing), (status, headers), len)
    }

    fn judge(&self) -> Judge<'_> {
        Judge { gateway: self.gateway, rules: &self.world.contract, admitted: self.admitted }
    }

    /// Reports contract violations of a reply that has already been written.
    pub(super) fn report(&self, body: &[u8]) {
        // The result is ignored: an enforced contract is validated before the reply is written.
        let _ = self.judge().contract(body);
    }

    /// Reads the first bytes of a reply while watching the caller.
    async fn begin(
        &self,
        session: &mut ServerSession,
        reply: &mut Reply,
        pump: &mut Pump<'_>,
        most: usize,
    ) -> std::result::Result<Beginning, Stop> {
        tokio::pin! {
            let begin = reply.body.beginning(most);
        }
        loop {
            tokio::select! {
                biased;
                begun = &mut begin => return Ok(begun?),
                moved = pump.step(session) => moved?,
            }
        }
    }
}

/// Writes a stored reply of an agent; its headers are those that callers may receive.
pub(super) async fn again(
    session: &mut ServerSession,
    (connection, standing): (&Connection, Option<&Standing>),
    call: &mut Call,
    (route, whole): (&Route, Whole),
) -> std::result::Result<Outcome, Stop> {
    let Whole { status, headers, body } = whole;
    let length = (status != StatusCode::NO_CONTENT).then_some(body.len());
    let head = with_fields(call, (route, standing), (status, headers), length);
    write(session, connection, call, head, body).await
}

/// Writes a response of the directory.
pub(super) async fn local(
    session: &mut ServerSession,
    connection: &Connection,
    call: &mut Call,
    (answer, standing): (directory::Answer, Option<Standing>),
) -> std::result::Result<Outcome, Stop> {
    let directory::Answer { status, mut headers, body } = answer;
    // RFC 9110 §8.6, §15.4.5: neither has content, and Content-Length would describe another response.
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    tell(&mut headers, call, standing.as_ref());
    write(session, connection, call, head_of(status, headers), body).await
}

/// Writes a complete response, and records how the call ended.
async fn write(
    session: &mut ServerSession,
    connection: &Connection,
    call: &mut Call,
    head: ResponseHeader,
    body: Bytes,
) -> std::result::Result<Outcome, Stop> {
    let status = head.status.as_u16();
    call.stage = match put(session, connection, head, body).await {
        Some(length) => {
            call.count.bytes_out += length;
            Stage::Answered(status)
        }
        None => Stage::Gone(status),
    };
    Ok(if matches!(call.stage, Stage::Gone(_)) { Outcome::Aborted } else { Outcome::Complete })
}

/// Writes head and body. Returns the bytes of the body, or `None` if the caller is gone.
async fn put(session: &mut ServerSession, connection: &Connection, head: ResponseHeader, body: Bytes) -> Option<u64> {
    listen::before_answer(session, connection).await;
    // Pingora's HTTP/1 writer omits the body of a HEAD response; its HTTP/2 writer does not.
    let headless = session.is_http2() && session.req_header().method == http::Method::HEAD;
    let body = if headless { Bytes::new() } else { body };
    let length = body.len() as u64;
    session.set_write_timeout(Some(connection.limits.body_idle_timeout.get()));
    session.write_response_header(Box::new(head)).await.ok()?;
    session.write_response_body(body, true).await.ok()?;
    Some(length)
}

/// Writes a fault: the only place where a fault becomes a response.
pub(super) async fn refuse(
    session: &mut ServerSession,
    connection: &Connection,
    call: &mut Call,
    fault: Fault,
    format: Format,
) -> Outcome {
    let (head, body) = refusal(call, &fault, format);
    let written = put(session, connection, head, body).await;
    call.count.bytes_out += written.unwrap_or_default();
    call.stage = Stage::Refused(fault);
    if written.is_some() { Outcome::Complete } else { Outcome::Aborted }
}

fn refusal(call: &Call, fault: &Fault, format: Format) -> (ResponseHeader, Bytes) {
    let (media, body) = match call.rpc_id() {
        Some(id) => ("application/json", fault.rpc(&id, call.id()).to_string().into_bytes()),
        None => (format.media_type(), fault.body(format, call.id())),
    };
    let body = Bytes::from(body);
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(call.id()) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(secs) = fault.retry_after_secs() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(secs));
    }
    for (name, value) in fault.headers() {
        append(&mut headers, name, value);
    }
    if let Some(page) = &call.page {
        cors::share(&mut headers, page.as_ref());
    }
    let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (head_of(status, headers), body)
}
