//! An agent's room: the gateway resolves its alias, joins it where that is allowed, and checks it before it sends a
//! message. An encrypted room is refused: the gateway has no keys, and would send confidential messages in plain text.

use super::{error_mapping, homeserver_account::MatrixAccount};
use crate::{agent::MatrixAddress, fault::Fault, net::ApiRequest};
use http::Method;
use parking_lot::Mutex;
use serde::Deserialize;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a check of the room stays valid.
const CHECK_TTL: Duration = Duration::from_secs(30);

const CLIENT_API: [&str; 3] = ["_matrix", "client", "v3"];

/// The room in which an agent is called.
#[derive(Debug)]
pub(super) struct AgentRoom {
    /// A room id or an alias.
    id_or_alias: String,
    pub(super) agent_user: Arc<str>,
    join: bool,
    checked_at: tokio::sync::Mutex<Option<Instant>>,
    id: Mutex<Option<Arc<str>>>,
}

impl AgentRoom {
    pub(super) fn new(id_or_alias: String, agent_user: Arc<str>, join: bool) -> Self {
        Self { id_or_alias, agent_user, join, checked_at: tokio::sync::Mutex::default(), id: Mutex::default() }
    }

    /// The room's id, once it is resolved.
    pub(super) fn id(&self) -> Option<Arc<str>> {
        self.id.lock().clone()
    }

    pub(super) fn id_or_alias(&self) -> &str {
        &self.id_or_alias
    }

    /// Returns the room's id after a check that is at most half a minute old: the account and the agent have joined,
    /// and the room is not encrypted. Concurrent calls share one check.
    pub(super) async fn ensure_access(
        self: &Arc<Self>,
        account: &MatrixAccount,
        until: Instant,
    ) -> Result<Arc<str>, Fault> {
        let mut checked_at = self.checked_at.lock().await;
        if let (Some(at), Some(id)) = (*checked_at, self.id())
            && at.elapsed() < CHECK_TTL
        {
            return Ok(id);
        }
        let id = self.resolve_alias(account, until).await?;
        self.check_access(account, &id, until).await?;
        *self.id.lock() = Some(id.clone());
        account.add_room(self)?;
        *checked_at = Some(Instant::now());
        Ok(id)
    }

    /// Discards the check, because the homeserver refused a message although the check had passed.
    pub(super) async fn invalidate_check(&self) {
        *self.checked_at.lock().await = None;
    }

    async fn resolve_alias(&self, account: &MatrixAccount, until: Instant) -> Result<Arc<str>, Fault> {
        #[derive(Deserialize)]
        struct AliasResponse {
            room_id: String,
        }
        if !self.id_or_alias.starts_with('#') {
            return Ok(self.id_or_alias.as_str().into());
        }
        let path = [&CLIENT_API[..], &["directory", "room", &self.id_or_alias]].concat();
        let reply = account.send_with_retry(get_request(&path), until).await?;
        if reply.status != 200 {
            return Err(error_mapping::homeserver_fault("resolving the room's alias", &reply));
        }
        let response: AliasResponse = serde_json::from_slice(&reply.body)
            .map_err(|error| error_mapping::invalid_response_fault("resolving the room's alias", error))?;
        match response.room_id.starts_with('!') && MatrixAddress::is_room_id(&response.room_id) {
            true => Ok(response.room_id.into()),
            false => {
                Err(error_mapping::invalid_response_fault("resolving the room's alias", "room_id is not a room id"))
            }
        }
    }

    async fn check_access(&self, account: &MatrixAccount, id: &str, until: Instant) -> Result<(), Fault> {
        let state = [&CLIENT_API[..], &["rooms", id, "state"]].concat();
        let path = [&state[..], &["m.room.encryption"]].concat();
        let mut reply = account.send_with_retry(get_request(&path), until).await?;
        if reply.status == 403 && self.join && !is_account_error(&reply.body) {
            let request = ApiRequest {
                method: Method::POST,
                path: &[&CLIENT_API[..], &["join", &self.id_or_alias]].concat(),
                query: &[],
                body: Some(b"{}"),
            };
            let joined = account.send_with_retry(request, until).await?;
            if joined.status != 200 {
                return Err(error_mapping::homeserver_fault("joining the agent's room", &joined));
            }
            reply = account.send_with_retry(get_request(&path), until).await?;
        }
        match reply.status {
            404 if error_mapping::is_not_found(&reply) => {}
            200 => {
                return Err(error_mapping::unavailable_fault(
                    "The agent's room is encrypted, and the gateway does not support encrypted rooms",
                    format_args!("{id} is encrypted (use a room without m.room.encryption)"),
                ));
            }
            403 if !is_account_error(&reply.body) => {
                return Err(error_mapping::unavailable_fault(
                    "The gateway's account is not in the agent's room",
                    format_args!(
                        "the account is not in {id} (invite it and set matrix.auto_join: true, or join manually)"
                    ),
                ));
            }
            _ => return Err(error_mapping::homeserver_fault("checking the agent's room", &reply)),
        }
        let path = [&state[..], &["m.room.member", &self.agent_user]].concat();
        let reply = account.send_with_retry(get_request(&path), until).await?;
        let is_member = reply.status == 200
            && serde_json::from_slice::<serde_json::Value>(&reply.body)
                .is_ok_and(|state| state.get("membership").is_some_and(|membership| membership == "join"));
        if is_member || !matches!(reply.status, 200 | 404) {
            return if is_member {
                Ok(())
            } else {
                Err(error_mapping::homeserver_fault("checking the agent's membership", &reply))
            };
        }
        Err(error_mapping::unavailable_fault(
            "The agent is not in its room",
            format_args!("{} is not in {id}", self.agent_user),
        ))
    }
}

/// Whether a 403 is about the account itself, not about the room.
fn is_account_error(body: &[u8]) -> bool {
    let error: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    error.get("errcode").and_then(serde_json::Value::as_str).is_some_and(|code| code != "M_FORBIDDEN")
}

pub(super) fn get_request<'a>(path: &'a [&'a str]) -> ApiRequest<'a> {
    ApiRequest { method: Method::GET, path, query: &[], body: None }
}
