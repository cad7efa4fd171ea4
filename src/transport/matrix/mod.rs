//! Agents on Matrix: a call is a message in the agent's room, sent by the gateway's account, and the agent's reply to
//! that message is the reply to the call. An account runs one sync loop for all agents that are reached through it.
//! Encrypted rooms are refused, and messages are sent only to rooms that an agent's record names.

mod agent_room;
mod config;
mod error_mapping;
mod homeserver_account;
mod invocation_event;
mod pending_calls;
mod reply_message;
mod sync;

pub use config::MatrixConfig;

use super::{Transport, TransportConfig, UpstreamCall, UpstreamReply, UpstreamTimeouts};
use crate::{
    agent::MatrixAddress,
    fault::Fault,
    net::{ApiClient, ApiRequest},
    values::{ConfigPath, Secret},
};
use agent_room::AgentRoom;
use homeserver_account::MatrixAccount;
use http::Method;
use invocation_event::{InvocationEvent, MAX_CONTENT_BYTES};
use parking_lot::Mutex;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

/// Every Matrix account of the gateway. It outlives every configuration: waiting calls survive a reload.
#[derive(Debug, Default)]
pub(super) struct MatrixAccounts {
    accounts: Mutex<Vec<(MatrixLogin, Weak<MatrixAccount>)>>,
}

/// The key of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MatrixLogin {
    homeserver: String,
    token: Secret,
    ca: Option<ConfigPath>,
}

impl MatrixLogin {
    fn load(settings: &TransportConfig) -> Result<Self, Vec<String>> {
        let config = settings.matrix.clone().unwrap_or_default();
        let homeserver = config.homeserver.ok_or_else(|| vec![missing_field("homeserver")])?;
        let token = config.access_token.ok_or_else(|| vec![missing_field("access_token")])?;
        let token = token.load().map_err(|problem| vec![format!("matrix.access_token: {problem}")])?;
        Ok(Self { homeserver, token, ca: settings.tls.ca.clone() })
    }

    fn api(&self) -> Result<ApiClient, Vec<String>> {
        let with_field =
            |errors: Vec<String>| errors.iter().map(|error| format!("matrix.homeserver: {error}")).collect::<Vec<_>>();
        ApiClient::build(&self.homeserver, self.ca.as_ref(), &self.token).map_err(with_field)
    }
}

fn missing_field(field: &str) -> String {
    format!("matrix.{field}: is missing (agents on Matrix require an account of the gateway)")
}

/// Returns the values of `settings` that cannot be used, for any agent.
pub(super) fn problems(settings: &TransportConfig) -> Vec<String> {
    let Some(config) = &settings.matrix else { return Vec::new() };
    let mut problems = Vec::new();
    if config.homeserver.is_some() || config.access_token.is_some() {
        problems.extend(MatrixLogin::load(settings).and_then(|login| login.api()).err().unwrap_or_default());
    }
    if config.default_room.as_deref().is_some_and(|room| !MatrixAddress::is_room_id(room)) {
        problems.push("matrix.default_room: is not a room (must be '!id:server' or '#alias:server')".to_owned());
    }
    problems
}

impl MatrixAccounts {
    /// Builds the transport to the agent at `address`.
    pub(super) fn build_transport(
        &self,
        address: &MatrixAddress,
        settings: &TransportConfig,
    ) -> Result<Arc<dyn Transport>, Vec<String>> {
        let account = self.get_or_create_account(settings)?;
        if let Some(homeserver) = address.homeserver()
            && !homeserver.eq_ignore_ascii_case(account.api.authority())
        {
            let ours = account.api.authority();
            return Err(vec![format!(
                "endpoint: is on {homeserver} (must be on {ours}, as the gateway's Matrix account)"
            )]);
        }
        let config = settings.matrix.clone().unwrap_or_default();
        let room_name = address.room().map(str::to_owned).or(config.default_room);
        let room_name =
            room_name.ok_or_else(|| vec!["matrix.default_room: is missing (the endpoint names no room)".to_owned()])?;
        let room = Arc::new(AgentRoom::new(room_name, address.user().into(), config.auto_join.unwrap_or(false)));
        Ok(Arc::new(MatrixTransport { account, room, timeouts: UpstreamTimeouts::from(&settings.timeouts) }))
    }

    fn get_or_create_account(&self, settings: &TransportConfig) -> Result<Arc<MatrixAccount>, Vec<String>> {
        let login = MatrixLogin::load(settings)?;
        let mut accounts = self.accounts.lock();
        accounts.retain(|(_, account)| account.strong_count() > 0);
        let existing = accounts.iter().find(|(key, _)| *key == login).and_then(|(_, account)| account.upgrade());
        if let Some(existing) = existing {
            return Ok(existing);
        }
        let account = Arc::new(MatrixAccount::new(login.api()?));
        accounts.push((login, Arc::downgrade(&account)));
        Ok(account)
    }
}

/// The transport to one agent.
#[derive(Debug)]
struct MatrixTransport {
    account: Arc<MatrixAccount>,
    room: Arc<AgentRoom>,
    timeouts: UpstreamTimeouts,
}

#[async_trait::async_trait]
impl Transport for MatrixTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let until = deadline.min(Instant::now() + self.timeouts.first_byte);
        // The deadline is reported as a timeout, in every phase of the call.
        timeout_at(until, self.send_and_wait(request, until))
            .await
            .unwrap_or_else(|_| Err(error_mapping::timeout_fault()))
    }
}

impl MatrixTransport {
    async fn send_and_wait(&self, mut request: UpstreamCall<'_>, until: Instant) -> Result<UpstreamReply, Fault> {
        let body = std::mem::replace(&mut request.body, super::RequestBody::Empty);
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
        self.account.ensure_receiving(until.min(Instant::now() + self.timeouts.connect + FIRST_SYNC_SLACK)).await?;
        let room = self.room.ensure_access(&self.account, until).await?;
        let (guard, receiver) = self.account.pending.register(&token, &room, &self.room.agent_user)?;
        let event_id = self.send_event(&room, transaction.as_deref().unwrap_or(&token), &content, until).await?;
        guard.set_event(event_id);
        if transaction.is_some() {
            // The agent may have replied to the first sending of a repeated call.
            sync::deliver_page(&self.account, &room, &[]).await?;
        }
        let reply_content = receiver.await.map_err(|_| error_mapping::timeout_fault())??;
        Ok(reply_content.into())
    }

    /// Sends the message. Sending again under the same transaction id creates no second event.
    async fn send_event(&self, room: &str, transaction: &str, content: &[u8], until: Instant) -> Result<String, Fault> {
        let path = ["_matrix", "client", "v3", "rooms", room, "send", "m.room.message", transaction];
        let request = ApiRequest { method: Method::PUT, path: &path, query: &[], body: Some(content) };
        let reply = self.account.send_with_retry(request, until).await?;
        if reply.status != 200 {
            self.room.invalidate_check().await;
            return Err(error_mapping::homeserver_fault("sending a message", &reply));
        }
        let response: serde_json::Value = serde_json::from_slice(&reply.body)
            .map_err(|error| error_mapping::invalid_response_fault("sending a message", error))?;
        let event_id = response.get("event_id").and_then(serde_json::Value::as_str).map(str::to_owned);
        event_id.ok_or_else(|| error_mapping::invalid_response_fault("sending a message", "event_id is missing"))
    }
}

/// The time that the first sync may take beyond connecting.
const FIRST_SYNC_SLACK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
