//! The transport to agents on Matrix: a call is a message in the agent's room, and the agent's reply to it.

use super::{
    agent_room::AgentRoom,
    error_mapping,
    homeserver_account::MatrixAccount,
    invocation_event::{self, InvocationEvent, MAX_CONTENT_BYTES},
    pending_calls::RegisteredCall,
    room_timeline, sync,
};
use crate::{
    fault::Fault,
    net::{ApiReply, ApiRequest},
    transport::{
        attempt_span::TracedEndpoint,
        timeouts::{CallEnd, TimeoutKind, UpstreamTimeouts},
        upstream_body::RequestBody,
        upstream_reply::UpstreamReply,
        upstream_transport::{Transport, UpstreamCall},
    },
};
use http::Method;
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// The transport to one agent.
#[derive(Debug)]
pub(super) struct MatrixTransport {
    pub(super) account: Arc<MatrixAccount>,
    pub(super) room: Arc<AgentRoom>,
    pub(super) timeouts: UpstreamTimeouts,
}

#[async_trait::async_trait]
impl Transport for MatrixTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    fn traced_endpoint(&self) -> Option<TracedEndpoint> {
        let host = self.account.api.authority().to_owned();
        Some(TracedEndpoint { transport: "matrix", host, port: None })
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let until = deadline.min(Instant::now() + self.timeouts.first_byte);
        // The deadline is reported as a timeout, in every phase of the call.
        let outcome = timeout_at(until, self.send_and_wait(request, until)).await;
        let outcome = outcome.unwrap_or_else(|_| Err(error_mapping::timeout_fault()));
        outcome.map_err(|fault| self.timeouts.attribute(fault, TimeoutKind::FirstByte, CallEnd { until, deadline }))
    }
}

impl MatrixTransport {
    async fn send_and_wait(&self, mut request: UpstreamCall<'_>, until: Instant) -> Result<UpstreamReply, Fault> {
        let body = std::mem::replace(&mut request.body, RequestBody::Empty);
        let input = body.collect(MAX_CONTENT_BYTES).await?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        let gateway_fields = invocation_event::gateway_fields(&request);
        let event = InvocationEvent {
            token: &token,
            operation: request.operation,
            user: &self.room.agent_user,
            fields: [&gateway_fields, request.headers],
        };
        let content = event.content(&input)?;
        let transaction =
            invocation_event::transaction_id(&request, [self.room.id_or_alias(), &*self.room.agent_user], &input);
        let first_sync_until = until.min(Instant::now() + self.timeouts.connect + FIRST_SYNC_SLACK);
        let receiving = sync::ensure_receiving(&self.account, first_sync_until).await;
        receiving.map_err(|fault| self.attribute_first_sync(fault, first_sync_until, until))?;
        let room = self.room.ensure_access(&self.account.api, &self.account.rooms, until).await?;
        let RegisteredCall { guard, reply } = self.account.pending.register(&token, &room, &self.room.agent_user)?;
        // With a key, a call that is made again has the same transaction id, and creates no second message.
        let is_repeatable = transaction.is_some();
        let mark_outcome =
            |fault: Fault| if is_repeatable { fault } else { error_mapping::with_unknown_outcome(fault) };
        let sent = self.send_message(&room, transaction.as_deref().unwrap_or(&token), &content, until).await;
        let sent = sent.map_err(mark_outcome)?;
        if sent.status != 200 {
            self.room.invalidate_check().await;
            return Err(error_mapping::homeserver_fault("sending a message", &sent));
        }
        guard.set_event(parse_event_id(&sent).map_err(mark_outcome)?);
        if is_repeatable {
            // The agent may have replied to the first sending of a repeated call.
            room_timeline::deliver_page(&self.account, &room, &[]).await?;
        }
        let reply_content = reply.await.map_err(|_| error_mapping::timeout_fault())?.map_err(mark_outcome)?;
        Ok(reply_content.into())
    }

    /// Says in a fault of the first sync that connecting took too long; the caller names what ended the whole call.
    fn attribute_first_sync(&self, fault: Fault, until: Instant, end_of_call: Instant) -> Fault {
        if until >= end_of_call {
            return fault;
        }
        self.timeouts.attribute(fault, TimeoutKind::Connect, CallEnd { until, deadline: end_of_call })
    }

    /// Sends the message. Sending again under the same transaction id creates no second event.
    async fn send_message(
        &self,
        room: &str,
        transaction: &str,
        content: &[u8],
        until: Instant,
    ) -> Result<ApiReply, Fault> {
        let path = ["_matrix", "client", "v3", "rooms", room, "send", "m.room.message", transaction];
        let request = ApiRequest { method: Method::PUT, path: &path, query: &[], body: Some(content) };
        self.account.api.send_with_retry(request, until).await
    }
}

/// Returns the id of the event that a homeserver has created.
fn parse_event_id(reply: &ApiReply) -> Result<String, Fault> {
    let response: serde_json::Value = serde_json::from_slice(&reply.body)
        .map_err(|error| error_mapping::invalid_response_fault("sending a message", error))?;
    let event_id = response.get("event_id").and_then(serde_json::Value::as_str).map(str::to_owned);
    event_id.ok_or_else(|| error_mapping::invalid_response_fault("sending a message", "event_id is missing"))
}

/// The time that the first sync may take beyond connecting.
const FIRST_SYNC_SLACK: Duration = Duration::from_secs(10);
