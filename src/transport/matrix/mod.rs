//! Agents on Matrix: a call is a message in the agent's room, sent by the gateway's account, and the agent's reply to
//! that message is the reply to the call. An account runs one sync loop for all agents that are reached through it.
//! Encrypted rooms are refused, and messages are sent only to rooms that an agent's record names.

mod account;
mod answer;
mod failure;
mod message;
mod room;
mod settings;
mod sync;
mod waiting;

pub use settings::MatrixSettings;

use super::{Bounds, Reply, Request, Settings, Way};
use crate::{
    agent::MatrixAddress,
    fault::Fault,
    net::{Api, Ask},
    unit::{FilePath, Secret},
};
use account::Account;
use http::Method;
use message::{Envelope, MOST};
use room::Room;
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};

/// Every Matrix account of the gateway. It outlives every configuration: waiting calls survive a reload.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    accounts: Mutex<Vec<(Login, Weak<Account>)>>,
}

/// The key of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Login {
    homeserver: String,
    token: Secret,
    ca: Option<FilePath>,
}

impl Login {
    fn load(settings: &Settings) -> Result<Self, Vec<String>> {
        let own = settings.matrix.clone().unwrap_or_default();
        let homeserver = own.homeserver.ok_or_else(|| vec![missing("homeserver")])?;
        let token = own.access_token.ok_or_else(|| vec![missing("access_token")])?;
        let token = token.load().map_err(|why| vec![format!("matrix.access_token: {why}")])?;
        Ok(Self { homeserver, token, ca: settings.tls.ca.clone() })
    }

    fn api(&self) -> Result<Api, Vec<String>> {
        let within = |whys: Vec<String>| whys.iter().map(|why| format!("matrix.homeserver: {why}")).collect::<Vec<_>>();
        Api::build(&self.homeserver, self.ca.as_ref(), &self.token).map_err(within)
    }
}

fn missing(field: &str) -> String {
    format!("matrix.{field}: is missing (agents on Matrix require an account of the gateway)")
}

/// Returns the values of `settings` that cannot be used, for any agent.
pub(super) fn problems(settings: &Settings) -> Vec<String> {
    let Some(own) = &settings.matrix else { return Vec::new() };
    let mut problems = Vec::new();
    if own.homeserver.is_some() || own.access_token.is_some() {
        problems.extend(Login::load(settings).and_then(|login| login.api()).err().unwrap_or_default());
    }
    if own.default_room.as_deref().is_some_and(|room| !MatrixAddress::is_room(room)) {
        problems.push("matrix.room: is not a room (must be '!id:server' or '#alias:server')".to_owned());
    }
    problems
}

impl Matrix {
    /// Builds the transport to the agent at `address`.
    pub(super) fn way(&self, address: &MatrixAddress, settings: &Settings) -> Result<Arc<dyn Way>, Vec<String>> {
        let account = self.account(settings)?;
        if let Some(told) = address.homeserver()
            && !told.eq_ignore_ascii_case(account.api.authority())
        {
            let ours = account.api.authority();
            return Err(vec![format!("endpoint: is on {told} (must be on {ours}, as the gateway's Matrix account)")]);
        }
        let own = settings.matrix.clone().unwrap_or_default();
        let name = address.room().map(str::to_owned).or(own.default_room);
        let name = name.ok_or_else(|| vec!["matrix.room: is missing (the endpoint names no room)".to_owned()])?;
        let room = Arc::new(Room::new(name, address.user().into(), own.auto_join.unwrap_or(false)));
        Ok(Arc::new(Line { account, room, bounds: Bounds::from(&settings.timeouts) }))
    }

    fn account(&self, settings: &Settings) -> Result<Arc<Account>, Vec<String>> {
        let login = Login::load(settings)?;
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.retain(|(_, account)| account.strong_count() > 0);
        let known = accounts.iter().find(|(known, _)| *known == login).and_then(|(_, account)| account.upgrade());
        if let Some(known) = known {
            return Ok(known);
        }
        let account = Arc::new(Account::new(login.api()?));
        accounts.push((login, Arc::downgrade(&account)));
        Ok(account)
    }
}

/// The transport to one agent.
#[derive(Debug)]
struct Line {
    account: Arc<Account>,
    room: Arc<Room>,
    bounds: Bounds,
}

#[async_trait::async_trait]
impl Way for Line {
    fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    async fn call(&self, request: Request<'_>, deadline: Instant) -> Result<Reply, Fault> {
        let until = deadline.min(Instant::now() + self.bounds.first_byte);
        // Whatever the call was waiting for, its deadline is reported as a timeout.
        timeout_at(until, self.exchange(request, until)).await.unwrap_or_else(|_| Err(failure::too_late()))
    }
}

impl Line {
    async fn exchange(&self, mut request: Request<'_>, until: Instant) -> Result<Reply, Fault> {
        let body = std::mem::replace(&mut request.body, super::Body::Empty);
        let input = body.whole(MOST).await?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        let own = message::own(&request);
        let envelope = Envelope {
            token: &token,
            operation: request.operation,
            user: &self.room.user,
            fields: [&own, request.headers],
        };
        let content = envelope.content(&input)?;
        let repeated = message::transaction(&request, [self.room.name(), &*self.room.user], &input);
        self.account.listen(until.min(Instant::now() + self.bounds.connect + SLACK)).await?;
        let room = self.room.enter(&self.account, until).await?;
        let (ticket, answer) = self.account.waiting.open(&token, &room, &self.room.user)?;
        let event = self.say(&room, repeated.as_deref().unwrap_or(&token), &content, until).await?;
        ticket.confirm(event);
        if repeated.is_some() {
            // The agent may have replied to the first sending of a repeated call.
            sync::page(&self.account, &room, &[]).await?;
        }
        let said = answer.await.map_err(|_| failure::too_late())??;
        Ok(said.into())
    }

    /// Sends the message. Sending again under the same transaction id creates no second event.
    async fn say(&self, room: &str, transaction: &str, content: &[u8], until: Instant) -> Result<String, Fault> {
        let path = ["_matrix", "client", "v3", "rooms", room, "send", "m.room.message", transaction];
        let ask = Ask { method: Method::PUT, path: &path, query: &[], body: Some(content) };
        let reply = self.account.ask(ask, until).await?;
        if reply.status != 200 {
            self.room.forget().await;
            return Err(failure::refused("sending a message", &reply));
        }
        let told: serde_json::Value =
            serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("sending a message", why))?;
        let event = told.get("event_id").and_then(serde_json::Value::as_str).map(str::to_owned);
        event.ok_or_else(|| failure::garbled("sending a message", "event_id is missing"))
    }
}

/// The time that the first sync may take beyond connecting.
const SLACK: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
