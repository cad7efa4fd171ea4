//! The upgrade of an HTTP connection to a WebSocket (RFC 6455 §4.1): to the same addresses, under the same TLS profile,
//! with the same header fields as a call. The connection is not shared, and its messages are not interpreted here.

use super::{
    Http, Target, connect, failure,
    message::{Exchange, believable},
};
use crate::{
    fault::{Code, Fault},
    transport::{Reply, body::Outgoing, headers::Passage, reply::ReplyBody, websocket::Io},
};
use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use std::{
    fmt::Display,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

/// The maximum number of bytes read of a refusal's body.
const REFUSAL: usize = 64 << 10;

/// The parameters of an upgrade request.
pub(in crate::transport) struct Offer<'a> {
    pub(in crate::transport) headers: &'a HeaderMap,
    pub(in crate::transport) passage: Passage<'a>,
    /// The subprotocols that the agent may choose from.
    pub(in crate::transport) protocols: Option<&'a HeaderValue>,
    /// Whether the connection outlives the deadline of a call.
    pub(in crate::transport) lasting: bool,
}

/// The outcome of an upgrade request.
pub(in crate::transport) enum Switched {
    /// The WebSocket's byte stream, and the subprotocol that the agent chose.
    Open(Box<dyn Io>, Option<HeaderValue>),
    /// The agent refused the upgrade with an ordinary reply.
    Refused(Reply),
}

impl Http {
    /// Connects and performs the handshake, within the connect and the first-byte timeout.
    ///
    /// # Errors
    /// The agent cannot be reached, does not reply in time, or sends an invalid handshake.
    pub(in crate::transport) async fn switch(
        &self,
        target: &Arc<Target>,
        offer: Offer<'_>,
        deadline: Instant,
    ) -> Result<Switched, Fault> {
        if deadline <= Instant::now() {
            return Err(failure::too_late("the call's deadline passed before the agent was called"));
        }
        let wire = connect::alone(target, &self.policy(), deadline).await?;
        let until = deadline.min(Instant::now() + target.bounds.first_byte);
        let (mut sender, connection) = http1::Builder::new()
            .max_header_size(super::LARGEST_HEAD)
            .max_buf_size(2 * super::LARGEST_HEAD)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(|why| failure::unanswered(&why))?;
        let key = generate_key();
        let message = handshake(target, &offer, (&key, deadline))?;
        let mut connection = pin!(connection.with_upgrades());
        let mut answer = pin!(async {
            let response = sender.send_request(message).await.map_err(|why| failure::unanswered(&why))?;
            answered(response, &key, offer.protocols).await
        });
        let both = async {
            tokio::select! {
                biased;
                answered = &mut answer => answered,
                _ = &mut connection => answer.await,
            }
        };
        let late = |_| failure::too_late("no complete reply to the WebSocket handshake in time");
        timeout_at(until, both).await.map_err(late)?
    }
}

fn handshake(
    target: &Arc<Target>,
    offer: &Offer<'_>,
    (key, deadline): (&str, Instant),
) -> Result<http::Request<Outgoing>, Fault> {
    let (headers, passage) = (offer.headers, offer.passage);
    let exchange = Exchange { target, method: Method::GET, path: None, headers, passage, deadline };
    let mut message = exchange.message(Outgoing::Whole(None), Version::HTTP_11)?;
    let fields = message.headers_mut();
    // These fields describe a body or a reply that a handshake does not have, and the gateway is not a web page.
    let idle =
        [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::ACCEPT, header::ACCEPT_ENCODING, header::ORIGIN];
    idle.into_iter().for_each(|name| drop(fields.remove(name)));
    if offer.lasting {
        fields.remove("x-request-timeout");
    }
    fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    let key = HeaderValue::from_str(key).map_err(|why| Fault::new(Code::Internal, "The gateway failed").detail(why))?;
    fields.insert(header::SEC_WEBSOCKET_KEY, key);
    if let Some(protocols) = offer.protocols {
        fields.insert(header::SEC_WEBSOCKET_PROTOCOL, protocols.clone());
    }
    Ok(message)
}

async fn answered(
    mut response: Response<Incoming>,
    key: &str,
    offered: Option<&HeaderValue>,
) -> Result<Switched, Fault> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return refused(response).await.map(Switched::Refused);
    }
    let protocol = proper(response.headers(), key, offered)?;
    let io = hyper::upgrade::on(&mut response).await.map_err(|why| failure::unanswered(&why))?;
    Ok(Switched::Open(Box::new(TokioIo::new(io)), protocol))
}

/// Validates the server's handshake (RFC 6455 §4.1): the agent must accept nothing that the gateway did not offer.
fn proper(headers: &HeaderMap, key: &str, offered: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Fault> {
    let only = |name: &HeaderName| {
        let mut values = headers.get_all(name).into_iter();
        let first = values.next();
        first.filter(|_| values.next().is_none())
    };
    let says = |name: &HeaderName, word: &str| {
        let tokens = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        tokens.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(word))
    };
    if !says(&header::UPGRADE, "websocket") || !says(&header::CONNECTION, "upgrade") {
        return Err(improper("Upgrade or Connection does not name the WebSocket protocol"));
    }
    let accepted =
        only(&header::SEC_WEBSOCKET_ACCEPT).is_some_and(|accept| *accept == derive_accept_key(key.as_bytes()));
    if !accepted {
        return Err(improper("Sec-WebSocket-Accept does not match Sec-WebSocket-Key"));
    }
    if headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) {
        return Err(improper("the agent chose an extension that was not offered"));
    }
    if !headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        return Ok(None);
    }
    let chosen = only(&header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok());
    let offered = offered.and_then(|value| value.to_str().ok()).unwrap_or_default();
    match chosen.filter(|chosen| offered.split(',').any(|one| one.trim() == *chosen)) {
        Some(chosen) => Ok(HeaderValue::from_str(chosen).ok()),
        None => Err(improper("the agent chose a subprotocol that was not offered")),
    }
}

fn improper(detail: impl Display) -> Fault {
    Fault::new(Code::AgentError, "The agent's WebSocket handshake is not valid").detail(detail)
}

/// Reads the agent's refusal, up to a bound. A success is an error: only an upgrade was requested.
async fn refused(response: Response<Incoming>) -> Result<Reply, Fault> {
    believable(&response)?;
    let (head, mut body) = response.into_parts();
    if head.status.is_success() {
        return Err(Fault::new(Code::AgentError, "The agent did not open a WebSocket").detail(head.status));
    }
    let mut bytes = BytesMut::new();
    // A truncated refusal is still a refusal.
    while let Some(Ok(frame)) = poll_fn(|task| Pin::new(&mut body).poll_frame(task)).await {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > REFUSAL {
            break;
        }
    }
    Ok(Reply { status: head.status, headers: head.headers, body: ReplyBody::from(bytes.freeze()) })
}
