//! An agent's room: found by its alias, entered where that is allowed, and looked at before anything is said in it.
//! An encrypted room is refused: the gateway holds no keys, and would say in the clear what was meant to be secret.

use super::{account::Account, failure};
use crate::{agent::MatrixAddress, fault::Fault, net::Ask};
use http::Method;
use serde::Deserialize;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How long a look at the room holds.
const HOLDS: Duration = Duration::from_secs(30);

const CLIENT: [&str; 3] = ["_matrix", "client", "v3"];

/// Where an agent is spoken to.
#[derive(Debug)]
pub(super) struct Room {
    /// An id or an alias.
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

    /// Its id, once it is known.
    pub(super) fn id(&self) -> Option<Arc<str>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The room's id, after a look that is not older than half a minute: the account and the agent are in it, and it
    /// is not encrypted. Calls that come together look once.
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

    /// The next call looks again: the homeserver refused what the last look had found to be good.
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
            return Err(failure::refused("a look for the room's alias", &reply));
        }
        let found: Found =
            serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("a look for the room's alias", why))?;
        match found.room_id.starts_with('!') && MatrixAddress::is_room(&found.room_id) {
            true => Ok(found.room_id.into()),
            false => Err(failure::garbled("a look for the room's alias", "what came is no room's id")),
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
                    "The agent's room is encrypted, and the gateway does not speak in encrypted rooms.",
                    format_args!("{id} is encrypted (use a room without m.room.encryption)"),
                ));
            }
            403 if !is_token(&reply.body) => {
                return Err(failure::unavailable(
                    "The gateway's account is not in the agent's room.",
                    format_args!(
                        "the account is not in {id} (invite it and set settings.matrix.join, or join by hand)"
                    ),
                ));
            }
            _ => return Err(failure::refused("a look at the agent's room", &reply)),
        }
        let path = [&state[..], &["m.room.member", &self.user]].concat();
        let reply = account.ask(get(&path), until).await?;
        let member = reply.status == 200
            && serde_json::from_slice::<serde_json::Value>(&reply.body)
                .is_ok_and(|state| state.get("membership").is_some_and(|is| is == "join"));
        if member || !matches!(reply.status, 200 | 404) {
            return if member { Ok(()) } else { Err(failure::refused("a look at the agent's membership", &reply)) };
        }
        Err(failure::unavailable("The agent is not in its room.", format_args!("{} is not in {id}", self.user)))
    }
}

/// A 403 that is about the account itself and not about the room.
fn is_token(body: &[u8]) -> bool {
    let told: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    told.get("errcode").and_then(serde_json::Value::as_str).is_some_and(|code| code != "M_FORBIDDEN")
}

pub(super) fn get<'a>(path: &'a [&'a str]) -> Ask<'a> {
    Ask { method: Method::GET, path, query: &[], body: None }
}
