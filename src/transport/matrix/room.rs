//! An agent's room: its alias is resolved, it is joined where that is allowed, and it is checked before a message is
//! sent. An encrypted room is refused: the gateway has no keys, and would send in the clear what is meant to be secret.

use super::{account::Account, failure};
use crate::{agent::MatrixAddress, fault::Fault, net::Ask};
use http::Method;
use serde::Deserialize;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How long a check of the room stays valid.
const HOLDS: Duration = Duration::from_secs(30);

const CLIENT: [&str; 3] = ["_matrix", "client", "v3"];

/// The room in which an agent is called.
#[derive(Debug)]
pub(super) struct Room {
    /// A room id or an alias.
    name: String,
    pub(super) user: Arc<str>,
    join: bool,
    looked: tokio::sync::Mutex<Option<Instant>>,
    id: Mutex<Option<Arc<str>>>,
}

impl Room {
    pub(super) fn new(name: String, user: Arc<str>, join: bool) -> Self {
        Self { name, user, join, looked: tokio::sync::Mutex::default(), id: Mutex::default() }
    }

    /// The room's id, once it is resolved.
    pub(super) fn id(&self) -> Option<Arc<str>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the room's id after a check that is at most half a minute old: the account and the agent have joined,
    /// and the room is not encrypted. Concurrent calls share one check.
    pub(super) async fn enter(self: &Arc<Self>, account: &Account, until: Instant) -> Result<Arc<str>, Fault> {
        let mut looked = self.looked.lock().await;
        if let (Some(at), Some(id)) = (*looked, self.id())
            && at.elapsed() < HOLDS
        {
            return Ok(id);
        }
        let id = self.find(account, until).await?;
        self.look(account, &id, until).await?;
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.clone());
        account.attend(self)?;
        *looked = Some(Instant::now());
        Ok(id)
    }

    /// Discards the check, because the homeserver refused a message although the check had passed.
    pub(super) async fn forget(&self) {
        *self.looked.lock().await = None;
    }

    async fn find(&self, account: &Account, until: Instant) -> Result<Arc<str>, Fault> {
        #[derive(Deserialize)]
        struct Found {
            room_id: String,
        }
        if !self.name.starts_with('#') {
            return Ok(self.name.as_str().into());
        }
        let path = [&CLIENT[..], &["directory", "room", &self.name]].concat();
        let reply = account.ask(get(&path), until).await?;
        if reply.status != 200 {
            return Err(failure::refused("resolving the room's alias", &reply));
        }
        let found: Found =
            serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("resolving the room's alias", why))?;
        match found.room_id.starts_with('!') && MatrixAddress::is_room(&found.room_id) {
            true => Ok(found.room_id.into()),
            false => Err(failure::garbled("resolving the room's alias", "room_id is not a room id")),
        }
    }

    async fn look(&self, account: &Account, id: &str, until: Instant) -> Result<(), Fault> {
        let state = [&CLIENT[..], &["rooms", id, "state"]].concat();
        let path = [&state[..], &["m.room.encryption"]].concat();
        let mut reply = account.ask(get(&path), until).await?;
        if reply.status == 403 && self.join && !is_token(&reply.body) {
            let ask = Ask {
                method: Method::POST,
                path: &[&CLIENT[..], &["join", &self.name]].concat(),
                query: &[],
                body: Some(b"{}"),
            };
            let joined = account.ask(ask, until).await?;
            if joined.status != 200 {
                return Err(failure::refused("joining the agent's room", &joined));
            }
            reply = account.ask(get(&path), until).await?;
        }
        match reply.status {
            404 if failure::is_nothing(&reply) => {}
            200 => {
                return Err(failure::unavailable(
                    "The agent's room is encrypted, and the gateway does not support encrypted rooms",
                    format_args!("{id} is encrypted (use a room without m.room.encryption)"),
                ));
            }
            403 if !is_token(&reply.body) => {
                return Err(failure::unavailable(
                    "The gateway's account is not in the agent's room",
                    format_args!(
                        "the account is not in {id} (invite it and set settings.matrix.join, or join manually)"
                    ),
                ));
            }
            _ => return Err(failure::refused("checking the agent's room", &reply)),
        }
        let path = [&state[..], &["m.room.member", &self.user]].concat();
        let reply = account.ask(get(&path), until).await?;
        let member = reply.status == 200
            && serde_json::from_slice::<serde_json::Value>(&reply.body)
                .is_ok_and(|state| state.get("membership").is_some_and(|is| is == "join"));
        if member || !matches!(reply.status, 200 | 404) {
            return if member { Ok(()) } else { Err(failure::refused("checking the agent's membership", &reply)) };
        }
        Err(failure::unavailable("The agent is not in its room", format_args!("{} is not in {id}", self.user)))
    }
}

/// Whether a 403 is about the account itself, not about the room.
fn is_token(body: &[u8]) -> bool {
    let told: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    told.get("errcode").and_then(serde_json::Value::as_str).is_some_and(|code| code != "M_FORBIDDEN")
}

pub(super) fn get<'a>(path: &'a [&'a str]) -> Ask<'a> {
    Ask { method: Method::GET, path, query: &[], body: None }
}
