//! An agent's room: the gateway resolves its alias, joins it where that is allowed, and checks it before it sends a
//! message. An encrypted room is refused: the gateway has no keys, and would send confidential messages in plain text.

use super::{
    error_mapping,
    homeserver_api::{HomeserverApi, get_request},
};
use crate::{
    agent::MatrixAddress,
    fault::Fault,
    net::{ApiReply, ApiRequest},
};
use http::Method;
use parking_lot::Mutex;
use serde::Deserialize;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How long a check of the room stays valid.
const CHECK_TTL: Duration = Duration::from_secs(30);

/// The maximum number of rooms of one account; their messages between two syncs stay within the bound of `sync`.
const MAX_ROOMS: usize = 200;

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
        api: &HomeserverApi,
        rooms: &AccountRooms,
        until: Instant,
    ) -> Result<Arc<str>, Fault> {
        let mut checked_at = self.checked_at.lock().await;
        if let (Some(at), Some(id)) = (*checked_at, self.id())
            && at.elapsed() < CHECK_TTL
        {
            return Ok(id);
        }
        let id = self.resolve_alias(api, until).await?;
        self.check_access(api, &id, until).await?;
        *self.id.lock() = Some(id.clone());
        rooms.add(self)?;
        *checked_at = Some(Instant::now());
        Ok(id)
    }

    /// Discards the check, because the homeserver refused a message although the check had passed.
    pub(super) async fn invalidate_check(&self) {
        *self.checked_at.lock().await = None;
    }

    async fn resolve_alias(&self, api: &HomeserverApi, until: Instant) -> Result<Arc<str>, Fault> {
        #[derive(Deserialize)]
        struct AliasResponse {
            room_id: String,
        }
        if !self.id_or_alias.starts_with('#') {
            return Ok(self.id_or_alias.as_str().into());
        }
        let path = [&CLIENT_API[..], &["directory", "room", &self.id_or_alias]].concat();
        let reply = api.send_with_retry(get_request(&path), until).await?;
        if reply.status != 200 {
            return Err(error_mapping::homeserver_fault("resolving the room's alias", &reply));
        }
        let response: AliasResponse = serde_json::from_slice(&reply.body)
            .map_err(|error| error_mapping::invalid_response_fault("resolving the room's alias", error))?;
        if !response.room_id.starts_with('!') || !MatrixAddress::is_room_id(&response.room_id) {
            let reason = "room_id is not a room id";
            return Err(error_mapping::invalid_response_fault("resolving the room's alias", reason));
        }
        Ok(response.room_id.into())
    }

    /// Checks that the account is in the room, that the room is not encrypted, and that the agent is in it.
    async fn check_access(&self, api: &HomeserverApi, id: &str, until: Instant) -> Result<(), Fault> {
        let reply = self.request_encryption_state(api, id, until).await?;
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
        self.check_agent_membership(api, id, until).await
    }

    /// Reads the room's encryption state, which only members may read; joins the room first where that is allowed.
    async fn request_encryption_state(&self, api: &HomeserverApi, id: &str, until: Instant) -> Result<ApiReply, Fault> {
        let path = [&CLIENT_API[..], &["rooms", id, "state", "m.room.encryption"]].concat();
        let reply = api.send_with_retry(get_request(&path), until).await?;
        if reply.status != 403 || !self.join || is_account_error(&reply.body) {
            return Ok(reply);
        }
        let request = ApiRequest {
            method: Method::POST,
            path: &[&CLIENT_API[..], &["join", &self.id_or_alias]].concat(),
            query: &[],
            body: Some(b"{}"),
        };
        let joined = api.send_with_retry(request, until).await?;
        if joined.status != 200 {
            return Err(error_mapping::homeserver_fault("joining the agent's room", &joined));
        }
        api.send_with_retry(get_request(&path), until).await
    }

    async fn check_agent_membership(&self, api: &HomeserverApi, id: &str, until: Instant) -> Result<(), Fault> {
        let path = [&CLIENT_API[..], &["rooms", id, "state", "m.room.member", &self.agent_user]].concat();
        let reply = api.send_with_retry(get_request(&path), until).await?;
        match reply.status {
            200 if has_joined(&reply.body) => Ok(()),
            200 | 404 => Err(error_mapping::unavailable_fault(
                "The agent is not in its room",
                format_args!("{} is not in {id}", self.agent_user),
            )),
            _ => Err(error_mapping::homeserver_fault("checking the agent's membership", &reply)),
        }
    }
}

/// The rooms of one account.
#[derive(Debug, Default)]
pub(super) struct AccountRooms {
    rooms: Mutex<Vec<Weak<AgentRoom>>>,
    /// Wakes the sync loop: a room was added, or a call waits for the first sync.
    pub(super) wake_sync: Notify,
}

impl AccountRooms {
    /// Returns the rooms in which calls are made.
    pub(super) fn list(&self) -> Vec<Arc<AgentRoom>> {
        let mut rooms = self.rooms.lock();
        rooms.retain(|room| room.strong_count() > 0);
        rooms.iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds `room` to the rooms whose messages are received.
    fn add(&self, room: &Arc<AgentRoom>) -> Result<(), Fault> {
        let mut rooms = self.rooms.lock();
        rooms.retain(|existing| existing.strong_count() > 0);
        if rooms.iter().any(|existing| existing.as_ptr() == Arc::as_ptr(room)) {
            return Ok(());
        }
        if rooms.len() >= MAX_ROOMS {
            let detail = format!("one Matrix account serves at most {MAX_ROOMS} agents");
            return Err(error_mapping::unavailable_fault("The agent cannot be reached", detail));
        }
        rooms.push(Arc::downgrade(room));
        self.wake_sync.notify_one();
        Ok(())
    }
}

/// Whether the membership event says that the agent is in the room.
fn has_joined(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(body)
        .is_ok_and(|state| state.get("membership").is_some_and(|membership| membership == "join"))
}

/// Whether a 403 is about the account itself, not about the room.
fn is_account_error(body: &[u8]) -> bool {
    let error: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    error.get("errcode").and_then(serde_json::Value::as_str).is_some_and(|code| code != "M_FORBIDDEN")
}
