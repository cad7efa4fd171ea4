//! The sync loop of an account: one long poll for all its rooms, resumed where the last one ended, for as long as an
//! upstream uses the account. Messages sent during an outage are received afterwards.

use super::{
    account::{Account, Ear, jitter},
    answer::Message,
    failure,
    room::get,
};
use crate::{
    fault::Fault,
    net::{ApiReply, Ask, Bounds, FetchError},
    unit::{Size, Span},
};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, sleep};

/// How long the homeserver may hold a sync open, and how long the whole request may take.
const POLL: Duration = Duration::from_secs(30);
const ANSWER: Span = Span::secs(45);

/// The maximum size of a sync response: 200 rooms with one full event each fit into it.
const LONGEST: Size = Size::kib(16 << 10);

/// Events per room and sync, and pages of further events where a room has more.
const EVENTS: u32 = 50;
const PAGES: usize = 20;

/// The backoff between two attempts; doubled up to the maximum.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The position of the sync loop.
struct Cursor {
    since: Option<String>,
    /// The filter's id at the homeserver, and the scope that it was created for.
    filter: Option<(String, Heard)>,
    me: Option<String>,
    events: u32,
    failures: u32,
}

/// The rooms and senders whose messages are received.
type Heard = (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>);

#[derive(Deserialize)]
struct Synced {
    next_batch: String,
    #[serde(default)]
    rooms: Rooms,
}

#[derive(Default, Deserialize)]
struct Rooms {
    #[serde(default)]
    join: HashMap<String, Joined>,
}

#[derive(Default, Deserialize)]
struct Joined {
    #[serde(default)]
    timeline: Timeline,
}

#[derive(Default, Deserialize)]
struct Timeline {
    #[serde(default)]
    events: Vec<Value>,
    #[serde(default)]
    limited: bool,
    #[serde(default)]
    prev_batch: Option<String>,
}

/// Runs the sync loop until the account is dropped.
pub(super) async fn follow(account: Weak<Account>) {
    let mut cursor = Cursor { since: None, filter: None, me: None, events: EVENTS, failures: 0 };
    loop {
        let Some(account) = account.upgrade() else { return };
        let looked = cursor.look(&account).await;
        let fault = looked.err();
        cursor.failures = if fault.is_some() { cursor.failures.saturating_add(1) } else { 0 };
        account.ear.send_modify(|ear| {
            *ear = Ear { open: ear.open || fault.is_none(), fault: fault.clone(), looks: ear.looks + 1 };
        });
        let Some(fault) = fault else { continue };
        tracing::warn!(homeserver = account.api.authority(), "Matrix sync failed, replies are delayed: {fault}");
        let pause = LONGEST_PAUSE.min(SHORTEST_PAUSE * 2_u32.saturating_pow(cursor.failures.min(10) - 1));
        sleep(SHORTEST_PAUSE + jitter(SHORTEST_PAUSE)).await;
        tokio::select! {
            () = sleep(pause) => {}
            () = account.wake.notified() => {}
        }
    }
}

impl Cursor {
    /// Runs one sync, and delivers the messages since the last one to the calls that await them.
    async fn look(&mut self, account: &Account) -> Result<(), Fault> {
        let filter = self.filter(account).await?;
        let timeout = if self.since.is_some() { POLL.as_millis() } else { 0 }.to_string();
        let mut query = vec![("timeout", &*timeout), ("filter", &*filter), ("set_presence", "offline")];
        let since = self.since.clone();
        query.extend(since.as_deref().map(|since| ("since", since)));
        let path = ["_matrix", "client", "v3", "sync"];
        let ask = Ask { method: Method::GET, path: &path, query: &query, body: None };
        let poll = account.api.send(ask, Bounds { size: LONGEST, time: ANSWER });
        let reply = tokio::select! {
            biased;
            reply = poll => reply,
            // Nothing is lost: the next sync begins at the same position.
            () = account.wake.notified(), if since.is_some() => return Ok(()),
        };
        let synced = self.read(account, reply).await?;
        let mut gaps = Vec::new();
        for (room, joined) in synced.rooms.join {
            let Timeline { events, limited, prev_batch } = joined.timeline;
            deliver(account, &room, &events);
            gaps.extend(prev_batch.filter(|_| limited).map(|before| (room, before)));
        }
        // Gaps are filled last, so that a busy room delays no other room.
        for (room, before) in gaps {
            if let Some(since) = &since {
                recall(account, &room, (&before, since)).await?;
            }
        }
        self.since = Some(synced.next_batch);
        self.events = EVENTS;
        Ok(())
    }

    async fn read(&mut self, account: &Account, reply: Result<ApiReply, FetchError>) -> Result<Synced, Fault> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(why) => {
                if matches!(why, FetchError::TooLong { .. }) {
                    // Ask for fewer events; the events left out are fetched in pages.
                    (self.events, self.filter) = ((self.events / 4).max(1), None);
                }
                return Err(failure::unreached(&why));
            }
        };
        match reply.status {
            200 => serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("a sync", why)),
            401 | 403 => {
                let fault = failure::refused("a sync", &reply);
                account.waiting.fail(&fault);
                Err(fault)
            }
            429 => {
                sleep(failure::limited(&reply).unwrap_or(failure::SOON).min(POLL)).await;
                Err(failure::refused("a sync", &reply))
            }
            400 | 404 => {
                // The homeserver has lost the filter or the position, for instance after a restore from backup.
                (self.since, self.filter, self.me) = (None, None, None);
                Err(failure::refused("a sync", &reply))
            }
            _ => Err(failure::refused("a sync", &reply)),
        }
    }

    /// Returns the id of the filter for the current scope: messages of the agents in their rooms, and nothing else.
    async fn filter(&mut self, account: &Account) -> Result<String, Fault> {
        let rooms = account.rooms();
        let heard: Heard =
            (rooms.iter().filter_map(|room| room.id()).collect(), rooms.iter().map(|room| room.user.clone()).collect());
        if let Some((id, made)) = &self.filter
            && *made == heard
        {
            return Ok(id.clone());
        }
        let until = Instant::now() + Duration::from_secs(10);
        if self.me.is_none() {
            self.me =
                Some(member(account, get(&["_matrix", "client", "v3", "account", "whoami"]), "user_id", until).await?);
        }
        let me = self.me.clone().unwrap_or_default();
        let body = definition(&heard, self.events).to_string().into_bytes();
        let path = ["_matrix", "client", "v3", "user", &me, "filter"];
        let ask = Ask { method: Method::POST, path: &path, query: &[], body: Some(&body) };
        let id = member(account, ask, "filter_id", until).await?;
        self.filter = Some((id.clone(), heard));
        Ok(id)
    }
}

fn definition((rooms, users): &Heard, events: u32) -> Value {
    let nothing = json!({"types": []});
    let senders: Vec<&str> = users.iter().map(|user| &**user).collect();
    json!({
        "presence": nothing,
        "account_data": nothing,
        "room": {
            "rooms": rooms.iter().map(|room| &**room).collect::<Vec<&str>>(),
            "state": nothing,
            "ephemeral": nothing,
            "account_data": nothing,
            "timeline": {"types": ["m.room.message"], "senders": senders, "limit": events},
        },
    })
}

/// Sends a request and returns one string member of its response.
async fn member(account: &Account, ask: Ask<'_>, name: &str, until: Instant) -> Result<String, Fault> {
    let reply = account.ask(ask, until).await?;
    if reply.status != 200 {
        return Err(failure::refused("setting up a sync", &reply));
    }
    let told: Value = serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("setting up a sync", why))?;
    let told = told.get(name).and_then(Value::as_str).map(str::to_owned);
    told.ok_or_else(|| failure::garbled("setting up a sync", format_args!("{name} is missing")))
}

/// Fetches the messages between `since` and `before` that one sync left out.
async fn recall(account: &Account, room: &str, (before, since): (&str, &str)) -> Result<(), Fault> {
    let mut from = before.to_owned();
    for _ in 0..PAGES {
        let next = page(account, room, &[("from", &from), ("to", since)]).await?;
        let Some(next) = next else { return Ok(()) };
        from = next;
    }
    tracing::warn!("Matrix room has more messages than one sync reads, replies among them may be lost");
    Ok(())
}

/// Delivers one page of a room's messages, newest first. Returns the token of the next page, if there is one.
pub(super) async fn page(account: &Account, room: &str, span: &[(&str, &str)]) -> Result<Option<String>, Fault> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default)]
        chunk: Vec<Value>,
        #[serde(default)]
        end: Option<String>,
    }
    let filter = r#"{"types":["m.room.message"]}"#;
    let query = [&[("dir", "b"), ("limit", "50"), ("filter", filter)], span].concat();
    let path = ["_matrix", "client", "v3", "rooms", room, "messages"];
    let ask = Ask { method: Method::GET, path: &path, query: &query, body: None };
    let reply = account.ask(ask, Instant::now() + Duration::from_secs(10)).await?;
    match reply.status {
        200 => {}
        // The account has left the room meanwhile; the other rooms are still read.
        403 | 404 => return Ok(None),
        _ => return Err(failure::refused("reading a room's messages", &reply)),
    }
    let page: Page =
        serde_json::from_slice(&reply.body).map_err(|why| failure::garbled("reading a room's messages", why))?;
    deliver(account, room, &page.chunk);
    Ok(page.end.filter(|_| !page.chunk.is_empty()))
}

fn deliver(account: &Account, room: &str, events: &[Value]) {
    for message in events.iter().filter_map(Message::read) {
        account.waiting.deliver(room, message);
    }
}
